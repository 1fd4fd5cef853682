"""A small GPT and its text, for torch_gpt.py and torch_zero.py. Nothing here knows of Rewire.

Every sample has a backward pass of its own, with its own random numbers for dropout.
"""
import argparse
import contextlib
import hashlib
import os

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


def begin():
    """Returns the arguments, the model, and a loader of this process's part of each global batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--last", help="a file with the number of the last step; it may be written during the run")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--save", help="write a checkpoint here after each epoch (torch_zero.py)")
    parser.add_argument("--resume", help="begin with this checkpoint (torch_zero.py)")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    sampler = DistributedSampler(Text(), ranks, rank % ranks, seed=1)
    return args, Gpt().to(DEVICE), DataLoader(sampler.dataset, batch_size=8, sampler=sampler, num_workers=args.workers)


def backward(model, epoch, batch, no_sync):
    """no_sync: the context of all passes but the last."""
    numbers, ids, targets = batch
    for i, number in enumerate(numbers):
        torch.manual_seed(1000 * epoch + int(number))
        with contextlib.nullcontext() if i + 1 == len(numbers) else no_sync():
            model(ids[i: i + 1].to(DEVICE), targets[i: i + 1].to(DEVICE)).backward()


def reached(path, steps):
    """Returns whether the file has the number of a last step that was made."""
    return path is not None and os.path.exists(path) and steps >= int(open(path).read())


def state_of(model):
    return hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]
