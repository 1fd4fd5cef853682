#!/usr/bin/env python3
"""script.py CASE: one thing that a script does wrong, or that is unusual, as one process without an agent."""
import sys
import unittest.mock

import rewire.torch
import torch
from rewire.torch import companions
from rewire.torch.progress import Progress


class Unsendable:
    last_epoch = 0

    def state_dict(self):
        return {"lock": self}

    def __reduce__(self):
        raise TypeError("not this one")

    def step(self):
        pass


kept = []


def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()


def main():
    case = sys.argv[1]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    unused = torch.nn.Parameter(torch.zeros(3))
    parameters = [*model.parameters(), *([unused] if case == "no-gradient" else [])]
    optimizer = torch.optim.SGD(parameters, lr=0.1) if case in ("sgd", "value") else torch.optim.AdamW(parameters, lr=0.1)
    schedules = {"unsendable": Unsendable, "no-schedule": lambda: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
                 "one-cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)}
    scheduler = schedules[case]() if case in schedules else None
    if case == "ahead":  # the others had finished the update of this step
        other = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(other, 0.5)
        progress = Progress(model, other, {"scheduler": schedule}, None)
        progress.after_update()
        for present, repeated, rate in ((7, 8, 0.05), (8, 8, 0.05), (8, 7, 0.1), (7, 7, 0.1)):
            progress.begin_step(present, False)
            progress.keep(present)
            progress.back_to(repeated, present)
            schedule.step()  # the script does not know that its step is repeated
            progress.begin_step(repeated, False)
            assert schedule.get_last_lr() == [rate], (schedule.get_last_lr(), present, repeated)
            assert other.param_groups[0]["lr"] == rate
        del other, schedule, progress
    if case == "other-device":
        with unittest.mock.patch.multiple("torch.cuda", is_available=lambda: True, current_device=lambda: 1,
                                          device_count=lambda: 2, set_device=lambda _: None):
            rewire.torch.Job(model, optimizer)
    if case == "partial":
        data = list(range(8))
        loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data, 1, 0))
        job = rewire.torch.Job(model, optimizer, data=loader)
        next(iter(loader))
        next(iter(loader))
    if case == "scaler":
        with unittest.mock.patch("torch.cuda.amp.grad_scaler.amp_definitely_not_available", lambda: False):
            scaler = torch.cuda.amp.GradScaler(init_scale=8.0, growth_interval=2)
        for scale in (8.0, 16.0):
            companions.advance(scaler)
            assert scaler.get_scale() == scale, scaler.get_scale()
    if case == "plateau":
        kept.append(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))
    if case == "parallel":
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        model = torch.nn.parallel.DistributedDataParallel(model)
    if case in ("sharded", "moved-sharded"):
        optimizer = rewire.torch.ShardedOptimizer(torch.optim.AdamW, model.parameters(), lr=0.1)
        other = torch.optim.AdamW(torch.nn.Linear(2, 2).parameters())
        for forbidden in (optimizer.state_dict, lambda: optimizer.load_state_dict(other.state_dict()),
                          lambda: optimizer.add_param_group({})):
            try:
                forbidden()
                raise AssertionError("was not refused")
            except (RuntimeError, ValueError):
                pass
    if case == "data":
        rewire.torch.Job(model, optimizer, data=torch.utils.data.DataLoader(list(range(8)), shuffle=True))
    if case == "second-step":
        loader = torch.utils.data.DataLoader(range(8), sampler=torch.utils.data.DistributedSampler(range(8), 1, 0))
        rewire.torch.Job(model, optimizer, data=loader)
        next(iter(loader))
        train(model, optimizer)
        train(model, optimizer)
    if case == "short-step":
        loader = torch.utils.data.DataLoader(range(5), sampler=torch.utils.data.DistributedSampler(range(5), 1, 0))
        rewire.torch.Job(model, optimizer, data=loader)
        for number, _ in enumerate(loader):
            if number in (1, 3, 4):
                train(model, optimizer)
    if case == "strided":
        model = torch.nn.Conv2d(2, 2, 3).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rewire.torch.Job(model, optimizer)
        optimizer.zero_grad()
        model(torch.randn(1, 2, 8, 8)).sum().backward()
        optimizer.step()
    if case == "empty":
        optimizer.add_param_group({"params": [empty := torch.nn.Parameter(torch.zeros(0))]})
        model.register_parameter("empty", empty)
        model.register_forward_hook(lambda _, __, result: result + empty.sum())
    if case == "foreach":
        optimizer = torch.optim.AdamW(parameters, lr=0.1, foreach=True)
    job = rewire.torch.Job(model, optimizer, scheduler=None if case == "no-schedule" else scheduler)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        if step == 2 and case in ("moved", "moved-sharded"):
            model[0].weight.data = model[0].weight.data.clone()
        if step == 2 and case == "late-state":
            optimizer.state[model[0].weight]["average"] = torch.zeros(4, 4)
        if step == 0 and case == "value":
            optimizer.state[model[0].weight]["count"] = 3
        if step == 0 and case == "failed-backward":
            hook = model[2].weight.register_hook(lambda _: 1 / 0)
            try:
                model(torch.randn(8, 4)).sum().backward()
            except ZeroDivisionError:
                hook.remove()
        if step == 2 and case == "late-parameter":
            optimizer.add_param_group({"params": [unused]})
        if case == "closure":
            optimizer.step(lambda: 0.0)
        optimizer.step()
        if case == "twice":
            job.step()
        if case == "second-job":
            rewire.torch.Job(model, optimizer)
        if scheduler is not None:
            scheduler.step()
    assert job.world.slots == 1 and job.world.slot == 0, job.world
    print("steps", job.steps)


if __name__ == "__main__":
    main()
