#!/usr/bin/env python3
"""The GPT of torch_gpt.py with an optimizer whose state is divided over the members (ZeRO stage 1).

    rewire run -n 2 --max 4 -- python3 torch_zero.py --epochs 3

Each member has its share of AdamW's moments, and the shares move when the number of members changes. After the loss
of a member, its share comes from a copy in the next member's memory. --save FILE writes a checkpoint after each epoch,
from which --resume FILE goes on with any number of members.
"""
import os

import rewire.torch
import torch
import torch.distributed as dist
from small_gpt import backward, begin, reached, state_of


def save(path, epochs, model, optimizer):
    """All members call this. After the loss of a member, the next epoch saves."""
    if optimizer.consolidate_state_dict() and dist.get_rank() == 0:
        torch.save({"epochs": epochs, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".new")
        os.rename(path + ".new", path)


def resume(path, model, optimizer):
    """Returns the number of epochs that the checkpoint has."""
    if path is None:
        return 0
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epochs"]


def train(args, first, job, loader, model, optimizer):
    for epoch in range(first, args.epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            backward(model, epoch, batch, job.no_sync)
            optimizer.step()
            if reached(args.last, job.steps):
                return
        if args.save:
            save(args.save, epoch + 1, model, optimizer)


def main():
    args, model, loader = begin()
    dist.init_process_group("nccl")
    optimizer = rewire.torch.ShardedOptimizer(torch.optim.AdamW, model.parameters(), lr=3e-3)
    first = resume(args.resume, model, optimizer)
    job = rewire.torch.Job(model, optimizer, data=loader, exact=True,
                           on_world=lambda world: print(f"step {job.steps}: slot {world.slot} of {world.slots}", flush=True))
    train(args, first, job, loader, model, optimizer)
    print(f"finished after {job.steps} steps, state {state_of(model)}", flush=True)


if __name__ == "__main__":
    main()
