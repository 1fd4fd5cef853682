#!/usr/bin/env python3
"""A small GPT, trained by several processes whose number changes while it trains.

    rewire run -n 2 --max 4 -- python3 torch_gpt.py --epochs 3

`rewire.torch` is the only difference to the script without Rewire. Every sample has a backward pass of its own, and
the gradients are added in fixed point. So the end is the same to the bit whatever happens to the world.
"""
import argparse
import contextlib
import hashlib
import os

import rewire.torch
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

GPUS = torch.cuda.device_count()
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % GPUS) if GPUS else torch.device("cpu")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic algorithms need it
VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 64, 16, 32, 2, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, x):
        y = self.before_attention(x)
        x = x + self.attention(y, y, y, attn_mask=self.mask, need_weights=False)[0]
        return x + self.mlp(self.before_mlp(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight  # shared

    def forward(self, ids, targets):
        x = self.blocks(self.tokens(ids) + self.positions.weight)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class Text(Dataset):
    """Each token follows from the one before by a rule that has exceptions."""

    def __len__(self):
        return 512

    def __getitem__(self, number):
        random = torch.Generator().manual_seed(number)
        ids = torch.randint(VOCABULARY, (CONTEXT + 1,), generator=random)
        for i in range(CONTEXT):
            if torch.rand((), generator=random) < 0.9:
                ids[i + 1] = (ids[i] * 5 + 3) % VOCABULARY
        return number, ids[:-1], ids[1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--last", help="a file with the number of the last step; it may be written during the run")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    sampler = DistributedSampler(Text(), ranks, rank % ranks, seed=1)
    loader = DataLoader(sampler.dataset, batch_size=8, sampler=sampler, num_workers=args.workers)
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
    job = rewire.torch.Job(model, optimizer, data=loader, scheduler=scheduler, exact=True,
                           on_world=lambda world: print(f"step {job.steps}: slot {world.slot} of {world.slots}", flush=True))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for numbers, ids, targets in loader:
            optimizer.zero_grad()
            for i, number in enumerate(numbers):
                torch.manual_seed(1000 * epoch + int(number))  # dropout, by the sample and not by the member
                with contextlib.nullcontext() if i + 1 == len(numbers) else job.no_sync():
                    model(ids[i: i + 1].to(DEVICE), targets[i: i + 1].to(DEVICE)).backward()
            optimizer.step()
            scheduler.step()
            if args.last and os.path.exists(args.last) and job.steps >= int(open(args.last).read()):
                return finish(job, model, scheduler)
    finish(job, model, scheduler)


def finish(job, model, scheduler):
    state = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(f"finished after {job.steps} steps, learning rate {scheduler.get_last_lr()[0]:.6f}, state {state[:16]}", flush=True)


if __name__ == "__main__":
    main()
