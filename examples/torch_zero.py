#!/usr/bin/env python3
"""The GPT of torch_gpt.py with an optimizer whose state is divided over the members (ZeRO stage 1).

    rewire run -n 2 --max 4 -- python3 torch_zero.py --epochs 3

Each member has its share of AdamW's moments, and the shares move when the number of members changes. After the loss
of a member, its share comes from a copy in the next member's memory.
"""
import rewire.torch
import torch
from small_gpt import backward, begin, reached, state_of


def train(args, job, loader, model, optimizer):
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            backward(model, epoch, batch, job.no_sync)
            optimizer.step()
            if reached(args.last, job.steps):
                return


def main():
    args, model, loader = begin()
    optimizer = rewire.torch.ShardedOptimizer(torch.optim.AdamW, model.parameters(), lr=3e-3)
    job = rewire.torch.Job(model, optimizer, data=loader, exact=True,
                           on_world=lambda world: print(f"step {job.steps}: slot {world.slot} of {world.slots}", flush=True))
    train(args, job, loader, model, optimizer)
    print(f"finished after {job.steps} steps, state {state_of(model)}", flush=True)


if __name__ == "__main__":
    main()
