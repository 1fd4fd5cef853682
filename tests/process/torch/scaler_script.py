#!/usr/bin/env python3
"""scaler_script.py LAST: mixed precision with a GradScaler, whose scale grows until a step is skipped.

A GradScaler works on GPUs alone. Without one HostScaler does the same, and its gradients overflow beyond a scale.
LAST: a file with the number of the last step, which may be written during the run.
"""
import sys

import rewire.torch
import torch
import torch.distributed as dist
from agreed_number import agreed_number
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class HostScaler:
    def __init__(self):
        self.state = {"scale": 2.0**10, "growth_factor": 2.0, "growth_interval": 1, "_growth_tracker": 0}
        self.overflow = False

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = dict(state)

    def get_scale(self):
        return self.state["scale"]

    def scale(self, loss):
        return loss * self.state["scale"]

    def step(self, optimizer):
        self.overflow = self.state["scale"] > 2.0**14
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad /= self.state["scale"]
        if not self.overflow:
            optimizer.step()

    def update(self):
        self.state["_growth_tracker"] += 1
        if self.overflow:
            self.state.update(scale=self.state["scale"] / 2, _growth_tracker=0)
        elif self.state["_growth_tracker"] == self.state["growth_interval"]:
            self.state.update(scale=self.state["scale"] * 2, _growth_tracker=0)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("nccl")
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
    samples = torch.randn(512, 64)
    sampler = DistributedSampler(samples, shuffle=False)
    loader = DataLoader(TensorDataset(samples), batch_size=16, sampler=sampler)
    plain = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    model = DistributedDataParallel(plain.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=1) if gpu else HostScaler()
    job = rewire.torch.Job(model, optimizer, data=loader, scaler=scaler, on_world=lambda world: print(
        f"step {job.steps}: slot {world.slot} of {world.slots}", flush=True))
    scales, last = [], None
    while last is None or job.steps < last:
        for (batch,) in loader:
            batch = batch.to(device)
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16, enabled=gpu):
                loss = (model(batch) - batch.flip(1)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        last = agreed_number(sys.argv[1])
    if len(scales) > 100 and not any(later < before for before, later in zip(scales, scales[1:])):
        sys.exit(f"no step was skipped: {scales[-20:]}")
    sums = [float(p.detach().double().sum()) for p in model.parameters()]
    print(f"finished after {job.steps} steps, scale {scaler.get_scale()}, sums {sums}", flush=True)


if __name__ == "__main__":
    main()
