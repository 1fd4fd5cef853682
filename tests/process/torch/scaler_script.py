#!/usr/bin/env python3
"""scaler_script.py LAST: mixed precision with a GradScaler, whose scale grows until a step is skipped. For a GPU.

LAST: a file with the number of the last step, which may be written during the run.
"""
import os
import sys

import rewire.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    torch.manual_seed(0)
    dist.init_process_group("nccl")
    device = torch.device("cuda", torch.cuda.current_device())
    samples = torch.randn(512, 64)
    sampler = DistributedSampler(samples, shuffle=False)
    loader = DataLoader(TensorDataset(samples), batch_size=16, sampler=sampler)
    plain = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    model = DistributedDataParallel(plain.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=4)
    job = rewire.torch.Job(model, optimizer, data=loader, scaler=scaler, on_world=lambda world: print(
        f"step {job.steps}: slot {world.slot} of {world.slots}", flush=True))
    scales, last = [], None
    while last is None or job.steps < last:
        for (batch,) in loader:
            batch = batch.to(device)
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = (model(batch) - batch.flip(1)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        if os.path.exists(sys.argv[1]):
            with open(sys.argv[1], encoding="ascii") as file:
                last = int(file.read())
    if len(scales) > 100 and not any(later < before for before, later in zip(scales, scales[1:])):
        sys.exit(f"no step was skipped: {scales[-20:]}")
    sums = [float(p.detach().double().sum()) for p in model.parameters()]
    print(f"finished after {job.steps} steps, scale {scaler.get_scale()}, sums {sums}", flush=True)


if __name__ == "__main__":
    main()
