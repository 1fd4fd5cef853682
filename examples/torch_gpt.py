#!/usr/bin/env python3
"""A small GPT, trained by several processes whose number changes while it trains.

    rewire run -n 2 --max 4 -- python3 torch_gpt.py --epochs 3

`rewire.torch` is the only difference to the script without Rewire. Every sample has a backward pass of its own, and
the gradients are added in fixed point. So the end is the same to the bit whatever happens to the world.
"""
import rewire.torch
import torch
from small_gpt import backward, begin, reached, state_of


def main():
    args, model, loader = begin()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
    job = rewire.torch.Job(model, optimizer, data=loader, scheduler=scheduler, exact=True,
                           on_world=lambda world: print(f"step {job.steps}: slot {world.slot} of {world.slots}", flush=True))
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            backward(model, epoch, batch, job.no_sync)
            optimizer.step()
            scheduler.step()
            if reached(args.last, job.steps):
                return finish(job, model, scheduler)
    finish(job, model, scheduler)


def finish(job, model, scheduler):
    rate = scheduler.get_last_lr()[0]
    print(f"finished after {job.steps} steps, learning rate {rate:.6f}, state {state_of(model)}", flush=True)


if __name__ == "__main__":
    main()
