#!/usr/bin/env python3
"""The script of `./dev bench torch`: a small transformer on invented text, data parallel.

Under `rewire run` its world changes by rewire.torch. Started plainly, by torchrun's environment, it is PyTorch alone:
DistributedDataParallel over gloo, torch.save and torch.load. Every sample has a backward pass of its own; the sums
under Rewire are exact, so losses and state do not depend on the world. It writes the step log of bench/demo/steps.py.
"""
import argparse
import contextlib
import hashlib
import json
import os
import struct
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

VOCABULARY, CONTEXT, HEADS = 128, 32, 4
LOSS_SCALE = 2**40  # losses are summed as integers
IN_JOB = bool(os.environ.get("REWIRE_SOCKET"))
if IN_JOB:
    import rewire.torch
    from rewire.torch.reduction import Reduction


class Text(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, number):
        ids = torch.randint(VOCABULARY, (CONTEXT + 1,), generator=torch.Generator().manual_seed(number))
        return number, ids[:-1], ids[1:]


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, HEADS, 4 * width, dropout=0.1, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, layers), nn.Linear(width, VOCABULARY)

    def forward(self, ids, targets):
        return nn.functional.cross_entropy(self.head(self.layers(self.tokens(ids))).flatten(0, 1), targets.flatten())


class Log:
    def __init__(self, path, member):
        self.member = member
        self.file = open(path.replace("{member}", str(member)), "w", encoding="ascii", buffering=1)

    def row(self, kind, **values):
        values.update(kind=kind, member=self.member, wall_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        self.file.write(json.dumps(values) + "\n")

    def phase(self, name):
        self.row("phase", phase=name)


class Script:
    """The script's objects. `job` is None without Rewire, and where Rewire only reduces the gradients."""

    def __init__(self, args):
        self.args = args
        dist.init_process_group("nccl" if IN_JOB else "gloo")
        self.slots = dist.get_world_size()
        sampler = DistributedSampler(Text(), seed=1)
        self.loader = DataLoader(sampler.dataset, batch_size=args.batch // self.slots or 1, sampler=sampler)
        self.model = Model(args.width, args.layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10000)
        self.job, self.steps, self.outcome = None, 0, None
        if args.reduction_only:
            self.reduction = Reduction(self.model, exact=args.exact)
        else:
            self.model = DistributedDataParallel(self.model)
            if IN_JOB:
                self.job = rewire.torch.Job(self.model, self.optimizer, data=self.loader, scheduler=self.scheduler, exact=args.exact)
        self.no_sync = (self.reduction if args.reduction_only else self.model).no_sync

    def load(self, path):
        saved = torch.load(path)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        self.steps = saved["steps"]

    def save(self, path, log):
        if dist.get_rank() == 0:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                        "scheduler": self.scheduler.state_dict(), "steps": self.steps}, path)
            log.phase("written")
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        else:
            log.phase("written")
        dist.barrier()
        log.phase("saved")

    def backward(self, numbers, ids, targets):
        """Returns the loss of this member's samples, as an integer sum."""
        if not self.args.exact:
            loss = self.model(ids, targets)
            loss.backward()
            return torch.tensor([0, 0])
        total = torch.zeros(2, dtype=torch.int64)
        for i, number in enumerate(numbers):
            torch.manual_seed(int(number))  # dropout, by the sample and not by the member
            with contextlib.nullcontext() if i + 1 == len(numbers) else self.no_sync():
                loss = self.model(ids[i: i + 1], targets[i: i + 1])
                loss.backward()
            total += torch.tensor([int(loss.item() * LOSS_SCALE), 1])
        dist.all_reduce(total)
        return total

    def step(self):
        if self.job is None:
            self.optimizer.step()
            self.steps += 1
            return True
        self.outcome = self.job.step()
        self.steps = self.job.steps
        return self.outcome.kind.name != "REPEAT"

    def state(self):
        """The hash of all parameters and of the optimizer's state."""
        whole = hashlib.sha256()
        for parameter in self.model.parameters():
            whole.update(parameter.detach().numpy().tobytes())
            for _, value in sorted(self.optimizer.state[parameter].items()):
                whole.update(value.numpy().tobytes())
        return whole.hexdigest()[:32]


def train(script, args, log):
    repeats, last = 0, time.monotonic_ns()
    while True:
        for numbers, ids, targets in script.loader:
            script.optimizer.zero_grad()
            loss, count = script.backward(numbers, ids, targets).tolist()
            applied = script.step()
            script.scheduler.step()
            if not applied:
                repeats += 1
                continue
            world = script.job.world if script.job else None
            now = time.monotonic_ns()
            log.row("step", step_ns=now - last, step=script.steps, epoch=world.epoch if world else 0, slots=world.slots if world else script.slots,
                    repeats=repeats, loss=loss / LOSS_SCALE / max(count, 1), bits=struct.pack(">qq", loss, count).hex(),
                    cpu_ns=time.thread_time_ns())
            last, repeats = now, 0
            if script.steps >= args.steps or (args.stop_file and os.path.exists(args.stop_file)
                                              and script.steps >= int(open(args.stop_file, encoding="ascii").read())):
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--steps", "--stop-after", type=int, default=1 << 30)
    parser.add_argument("--stop-file", help="has the number of the last step; it may be written during the run")
    parser.add_argument("--load")
    parser.add_argument("--save")
    parser.add_argument("--batch", type=int, default=8, help="samples of a step, of all members")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--no-exact", dest="exact", action="store_false")
    parser.add_argument("--reduction-only", action="store_true", help="Rewire's reduction, and the optimizer's own step")
    args = parser.parse_args()
    log = Log(args.log, int(os.environ.get("REWIRE_MEMBER", os.environ.get("RANK", "0"))))
    log.phase("main")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    script = Script(args)
    log.phase("nccl")
    if args.load:
        script.load(args.load)
    log.phase("loaded")
    train(script, args, log)
    print(f"final step {script.steps} state {script.state()}", flush=True)
    if args.save:
        script.save(args.save, log)


if __name__ == "__main__":
    main()
