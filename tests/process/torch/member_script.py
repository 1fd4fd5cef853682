#!/usr/bin/env python3
"""member_script.py LAST CASE: a data-parallel script in which CASE happens to one member, or is unusual in all.

LAST: a file with the number of the last step, which may be written during the run.
"""
import os
import signal
import sys

import rewire.torch
import torch
import torch.distributed as dist
from agreed_number import agreed_number
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CASE = sys.argv[2]
STEP = 7  # in which it happens to member 1


class FailingSGD(torch.optim.SGD):
    fails = False

    def step(self, closure=None):
        if self.fails:
            raise ArithmeticError("in the update")
        return super().step(closure)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("nccl")
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    if CASE == "groups":
        check_groups()
    torch.manual_seed(1)
    samples = torch.randn(101, 4).to(device)
    torch.manual_seed(dist.get_rank())
    loader = DataLoader(TensorDataset(samples), batch_size=4, drop_last=True,
                        sampler=DistributedSampler(samples), num_workers=1 if CASE == "spawn" else 0,
                        multiprocessing_context="spawn" if CASE == "spawn" else None)
    wide = CASE == "shapes" and dist.get_rank() == 1
    model = torch.nn.Linear(4, 2 if wide else 1).to(device)
    if CASE == "seeds":
        model.bias.requires_grad_(False)
    if CASE not in ("seeds", "shapes"):
        model = DistributedDataParallel(model)
    optimizer = FailingSGD(model.parameters(), lr=0.05, momentum=0.9)
    length = len(loader) if CASE == "length" else 8  # of an epoch, in this member's first world
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / length))
    job = rewire.torch.Job(model, optimizer, data=loader, scheduler=scheduler)
    if CASE == "handler":
        signal.signal(signal.SIGTERM, lambda *_: job.reclaim(60))
    last = None
    while last is None or job.steps < last:
        for (batch,) in loader:
            optimizer.zero_grad()
            (model(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
            if job.world.member == 1 and job.steps == STEP:
                happen(job, optimizer)
            if CASE == "rate" and job.world.member == 2 and job.steps == STEP + 1:
                optimizer.param_groups[0]["lr"] *= 0.5
            outcome = job.step()
            if outcome.kind.name == "REPEAT":
                print(f"repeats step {job.steps} in a world of {outcome.world.slots}", flush=True)
            scheduler.step()
        last = agreed_number(sys.argv[1])
    print(f"finished after {job.steps} steps, {[float(p.detach().sum()) for p in model.parameters()]}", flush=True)


def check_groups():
    """Groups and collectives that follow no world are refused by name. A group of all members works."""
    one, rows = torch.ones(4), [torch.ones(4) for _ in range(dist.get_world_size())]
    other = 1 - dist.get_rank()
    for call, text in ((lambda: dist.new_group([dist.get_rank()]), "new_group: 1 ranks of 2: a group of some members"),
                       (lambda: dist.new_group(backend="gloo"), "new_group: backend=gloo: a group of another backend"),
                       (lambda: dist.all_reduce(one, dist.ReduceOp.BAND), "op: NCCL has no such operation"),
                       (lambda: dist.reduce_scatter(one, rows), "support reduce_scatter"),
                       (lambda: dist.all_to_all(rows, rows), "support alltoall"),
                       (lambda: dist.gather(one, rows if other == 1 else None), "support gather"),
                       (lambda: dist.scatter(one, rows if other == 1 else None), "support scatter"),
                       (lambda: dist.send(one, other), "support send"), (lambda: dist.recv(one, other), "support recv")):
        try:
            call()
            raise AssertionError(f"was not refused: {text}")
        except (RuntimeError, ValueError) as error:
            assert text in str(error), (text, str(error))
    for options in ({}, {"backend": "nccl"}):
        dist.all_reduce(one, group=dist.new_group(**options))
    assert one.tolist() == [4.0] * 4, one


def happen(job, optimizer):
    if CASE in ("raise", "rate"):
        raise ArithmeticError("before the step")
    if CASE == "raise-in-step":
        optimizer.fails = True
    if CASE == "exit":
        sys.exit(3)
    if CASE == "reclaim":
        job.reclaim(60)
    if CASE in ("sigterm", "handler"):
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
