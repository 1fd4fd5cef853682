#!/usr/bin/env python3
"""mean_script.py LAST: every member compares each step's gradients with those of the whole global batch.

The last global batch of an epoch is short, so some slots have a smaller share or none. LAST: a file with the number
of the last step, which may be written during the run.
"""
import os
import sys

import rewire.torch
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SAMPLES, BATCH = 42, 4  # of each of the first two slots: global batches of 8, and one of 2


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = torch.randn(SAMPLES, 6), torch.randn(SAMPLES, 1)
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    sampler = DistributedSampler(range(SAMPLES), ranks, rank % ranks, shuffle=False)
    loader = DataLoader(TensorDataset(torch.arange(SAMPLES), x, y), batch_size=BATCH, sampler=sampler)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    job = rewire.torch.Job(model, optimizer, data=loader, bucket_bytes=64, on_world=lambda world: print(
        f"step {job.steps}: slot {world.slot} of {world.slots}", flush=True))
    while True:
        for numbers, inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            first = int(numbers.min()) // (2 * BATCH) * 2 * BATCH
            whole = slice(first, min(first + 2 * BATCH, SAMPLES))
            expected = torch.autograd.grad(torch.nn.functional.mse_loss(model(x[whole]), y[whole]), model.parameters())
            outcome = job.step()
            if outcome.kind.name != "REPEAT":
                for parameter, gradient in zip(model.parameters(), expected):
                    torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
            if os.path.exists(sys.argv[1]):
                with open(sys.argv[1], encoding="ascii") as file:
                    last = int(file.read())
                if job.steps >= last:
                    print(f"finished after {job.steps} steps, {[round(float(p.sum()), 5) for p in model.parameters()]}", flush=True)
                    return


if __name__ == "__main__":
    main()
