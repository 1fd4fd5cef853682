#!/usr/bin/env python3
"""torch_worker.py MODE FOLDER STEPS: an ordinary PyTorch job, which knows nothing of Rewire except graphs.

MODE ddp, fsdp or fsdp2: trains a small model until the file FOLDER/stop, or for STEPS steps if not 0. MODE graphs:
captures an all-reduce and follows the files of torch_test.py.
"""
import os
import pathlib
import sys
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402

DEVICES = torch.cuda.device_count()
if WORLD > DEVICES:  # before NCCL reads it: NCCL refuses two ranks of one host on one GPU
    os.environ["NCCL_HOSTID"] = f"rank-{RANK}"

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

MODE, FOLDER, STEPS = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
WIDTH, LAYERS, BATCH = 512, 6, 32
PATIENCE = 600  # seconds


def wait_for(name):
    until = time.monotonic() + PATIENCE
    while not (FOLDER / name).exists():
        if time.monotonic() > until:
            sys.exit(f"rank {RANK}: no file {name}")
        time.sleep(0.01)


def wrapped(model):
    if MODE == "ddp":
        return nn.parallel.DistributedDataParallel(model, device_ids=[RANK % DEVICES])
    if MODE == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        for layer in model.layers:
            fully_shard(layer)
        return fully_shard(model)
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer}),
                                    use_orig_params=True)


def train():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 8, 2 * WIDTH, dropout=0.0, batch_first=True)
    model = wrapped(nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # Ordinary jobs have communicators of some ranks, and some that are idle for long.
    some = [dist.new_group(list(range(first, WORLD, 2))) for first in range(min(2, WORLD))][RANK % min(2, WORLD)]
    idle = dist.new_group(list(range(WORLD)))
    dist.all_reduce(torch.ones(1, device="cuda"), group=idle)
    torch.manual_seed(1 + RANK)
    with open(FOLDER / f"losses.{RANK}", "w", encoding="ascii") as losses:
        step = 0
        while True:
            x = torch.randn(BATCH, 64, WIDTH, device="cuda")
            loss = (model(x) - x.flip(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            dist.all_reduce(mean, group=some)
            losses.write(mean.item().hex() + "\n")
            step += 1
            last = step == STEPS or (STEPS == 0 and RANK == 0 and (FOLDER / "stop").exists())
            flag = torch.tensor([int(last)], device="cuda")
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
            if step == 3:
                losses.flush()
                (FOLDER / f"ready.{RANK}").touch()
            if flag.item():
                break
    dist.all_reduce(mean, group=idle)


def captured(x):
    """Captures x = x + x of the other ranks, and checks one launch."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    x.fill_(1)
    graph.replay()
    torch.cuda.synchronize()
    if x.tolist() != [float(WORLD)] * x.numel():
        sys.exit(f"rank {RANK}: the graph gave {x.tolist()}")
    return graph


def capture():
    from rewire import graphs
    x = torch.ones(4, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = captured(x)
    (FOLDER / f"captured.{RANK}").touch()
    wait_for("release")
    del graph
    torch.cuda.synchronize()
    if not graphs.released():
        sys.exit(f"rank {RANK}: Rewire is not loaded")
    (FOLDER / f"released.{RANK}").touch()
    # The swap is passed at an agreed operation.
    while True:
        dist.all_reduce(x.fill_(1))
        flag = torch.tensor([int((FOLDER / "rebuilt").exists())], device="cuda")
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        if flag.item():
            break
    captured(x)


torch.cuda.set_device(RANK % DEVICES)
dist.init_process_group("nccl")
capture() if MODE == "graphs" else train()
torch.cuda.synchronize()
dist.destroy_process_group()
