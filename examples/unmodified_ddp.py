#!/usr/bin/env python3
"""An ordinary script with DistributedDataParallel. It knows nothing of Rewire.

    rewire run -n 2 -- python3 unmodified_ddp.py
    rewire rebuild                                  # in another terminal, as often as you like

Its communicators are built anew while it trains, and no loss differs. Its world cannot change: when a process dies, the
NCCL calls of the others end with an error within a stated time. They then end, and can start from the checkpoint.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--checkpoint", default="unmodified_ddp.pt")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location=device)
        first = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    odd = dist.new_group(list(range(1, ranks, 2)))  # ordinary jobs have communicators of some members, too
    for step in range(first, args.steps):
        torch.manual_seed(step * ranks + rank)
        x = torch.randn(32, 64, device=device)
        loss = (model(x) - x.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank % 2 == 1:
            dist.all_reduce(loss.detach(), group=odd)
        if rank == 0:
            print(f"step {step + 1}: loss {float(mean / ranks).hex()}", flush=True)
        if rank == 0 and (step + 1) % 50 == 0:
            state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)


if __name__ == "__main__":
    main()
