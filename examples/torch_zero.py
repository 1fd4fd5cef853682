#!/usr/bin/env python3
"""The GPT of torch_gpt.py with an optimizer whose state is divided over the members (ZeRO stage 1).

    rewire run -n 2 --max 4 -- python3 torch_zero.py --epochs 3

Each member has its share of AdamW's moments, and the shares move when the number of members changes. After the loss
of a member, its share comes from a copy in the next member's memory.
"""
import argparse
import contextlib
import hashlib
import os

import rewire.torch
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_gpt import DEVICE, Gpt, Text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--last", help="a file with the number of the last step; it may be written during the run")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    sampler = DistributedSampler(Text(), ranks, rank % ranks, seed=1)
    loader = DataLoader(sampler.dataset, batch_size=8, sampler=sampler)
    model = Gpt().to(DEVICE)
    optimizer = rewire.torch.ShardedOptimizer(torch.optim.AdamW, model.parameters(), lr=3e-3)
    job = rewire.torch.Job(model, optimizer, data=loader, exact=True,
                           on_world=lambda world: print(f"step {job.steps}: slot {world.slot} of {world.slots}", flush=True))
    steps = train(args, job, sampler, loader, model, optimizer)
    state = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(f"finished after {steps} steps, state {state[:16]}", flush=True)


def train(args, job, sampler, loader, model, optimizer):
    """Returns the number of the last step."""
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for numbers, ids, targets in loader:
            optimizer.zero_grad()
            for i, number in enumerate(numbers):
                torch.manual_seed(1000 * epoch + int(number))  # dropout, by the sample and not by the member
                with contextlib.nullcontext() if i + 1 == len(numbers) else job.no_sync():
                    model(ids[i: i + 1].to(DEVICE), targets[i: i + 1].to(DEVICE)).backward()
            optimizer.step()
            if args.last and os.path.exists(args.last) and job.steps >= int(open(args.last).read()):
                return job.steps
    return job.steps


if __name__ == "__main__":
    main()
