#!/usr/bin/env python3
"""script.py CASE: one thing that a script does wrong, or that is unusual, as one process without an agent."""
import sys

import rewire.torch
import torch


class Scaler:
    """A loss scaler that skips the first step, as GradScaler does where gradients overflow."""

    def __init__(self):
        self.scale, self.steps = 2.0, 0

    def step(self, optimizer):
        self.steps += 1
        if self.steps > 1:
            optimizer.step()

    def update(self):
        self.scale = 1.0

    def get_scale(self):
        return self.scale

    def state_dict(self):
        return {"scale": self.scale}

    def load_state_dict(self, state):
        self.scale = state["scale"]


class Unsendable:
    def state_dict(self):
        return {"lock": self}

    def __reduce__(self):
        raise TypeError("not this one")

    def step(self):
        pass


def main():
    case = sys.argv[1]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    unused = torch.nn.Parameter(torch.zeros(3))
    parameters = [*model.parameters(), *([unused] if case == "no-gradient" else [])]
    optimizer = torch.optim.SGD(parameters, lr=0.1) if case == "sgd" else torch.optim.AdamW(parameters, lr=0.1)
    scaler = Scaler() if case == "skipped" else None
    schedules = {"unsendable": Unsendable,
                 "one-cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)}
    scheduler = schedules[case]() if case in schedules else None
    if case == "data":
        rewire.torch.Job(model, optimizer, data=torch.utils.data.DataLoader(list(range(8)), shuffle=True))
    job = rewire.torch.Job(model, optimizer, scheduler=scheduler, scaler=scaler)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        if step == 2 and case == "moved":
            model[0].weight.data = model[0].weight.data.clone()
        if step == 2 and case == "late-state":
            optimizer.state[model[0].weight]["average"] = torch.zeros(4, 4)
        if step == 2 and case == "late-parameter":
            optimizer.add_param_group({"params": [unused]})
        if case == "closure":
            job.step(lambda: 0.0)
        job.step()
        if case == "twice":
            job.step()
        if scheduler is not None:
            scheduler.step()
    print("steps", job.steps)


if __name__ == "__main__":
    main()
