#!/usr/bin/env python3
"""fsep_script.py FOLDER RANK: one of two processes with sharded experts; compares with whole experts here."""
import pathlib
import sys
import time

import rewire.torch
import torch
from rewire.fsep import EMPTY
from rewire.nccl import Communicator, new_unique_id
from rewire.torch.place import Place

RANKS, LAYERS, EXPERTS, SLOTS, WIDTH, HIDDEN = 2, 2, 3, 2, 5, 7
OUT = WIDTH + 1  # of compute()
SHAPES = [(WIDTH, HIDDEN), (HIDDEN, OUT)]
PLACEMENTS = [[[0, 1, 1, 2], [2, 0, 1, EMPTY]], [[2, 1, 0, 1], [0, EMPTY, 1, 2]]]  # by step and layer
ROWS = [[[4, 0], [3, 2]], [[1, 3], [5, 0]]]  # by layer and rank


def compute(x, up, down):
    return torch.tanh(x @ up) @ down


def weights_of(layer, expert):
    torch.manual_seed(100 * layer + expert)
    return [torch.randn(shape) for shape in SHAPES]


def rows_of(step, layer, rank):
    """In the second step a slot of rank 0 in layer 1 is empty, and rank 1 has no rows there."""
    if (step, layer, rank) == (1, 1, 1):
        return [0, 0]
    rows = ROWS[layer][rank]
    own = PLACEMENTS[step][layer][rank * SLOTS:]
    return [0 if own[slot] == EMPTY else count for slot, count in enumerate(rows)]


def whole_gradients(step, weights):
    """The gradients of all ranks' rows, layer by layer, without shards."""
    leaves = [[[part.clone().requires_grad_() for part in parts] for parts in of_layer] for of_layer in weights]
    for rank in range(RANKS):
        for layer in range(LAYERS):
            x = input_of(step, layer, rank)
            own = PLACEMENTS[step][layer][rank * SLOTS:]
            for part, expert in zip(x.split(rows_of(step, layer, rank)), own):
                if len(part):
                    compute(part, *leaves[layer][expert]).square().sum().backward()
    return [[torch.cat([torch.zeros_like(part).reshape(-1) if part.grad is None else part.grad.reshape(-1)
                        for part in parts]) for parts in of_layer] for of_layer in leaves]


def input_of(step, layer, rank):
    torch.manual_seed(1000 * step + 10 * layer + rank)
    return torch.randn(sum(rows_of(step, layer, rank)), WIDTH)


def unique_id(folder, rank):
    path = folder / "id"
    if rank == 0:
        (folder / "new").write_bytes(new_unique_id())
        (folder / "new").rename(path)
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until, "no id"
        time.sleep(0.01)
    return path.read_bytes()


def main():
    folder, rank = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    Place.of(rank)  # makes the device current
    communicator = Communicator(unique_id(folder, rank), RANKS, rank)
    experts = rewire.torch.ShardedExperts(communicator.address, rank, 1, RANKS, compute, layers=LAYERS, experts=EXPERTS,
                                          slots=SLOTS, shapes=SHAPES)
    device = experts.chunks[0].device
    weights = [[weights_of(layer, expert) for expert in range(EXPERTS)] for layer in range(LAYERS)]
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            experts.load(layer, expert, weights[layer][expert])
    optimizer = torch.optim.SGD(experts.parameters(), lr=0.1)
    for step, placements in enumerate(PLACEMENTS):
        for layer, slots in enumerate(placements):
            experts.place(layer, slots)
        optimizer.zero_grad(set_to_none=step == 0)
        with experts.step():
            total = torch.zeros((), device=device)
            for layer in range(LAYERS):
                x = experts.exchange(input_of(step, layer, rank).to(device), lambda x: x.clone(), lambda x: x.clone())
                y = experts(layer, x + 0 * total, rows_of(step, layer, rank))
                assert y.shape[1] == OUT
                y = experts.exchange(y, lambda x: x.clone(), lambda x: x.clone())
                total = total + y.square().sum()
            total.backward()
        expected = whole_gradients(step, weights)
        optimizer.step()
        for layer in range(LAYERS):
            for expert in range(EXPERTS):
                size = experts.elements
                own = expected[layer][expert][rank * size: (rank + 1) * size]
                torch.testing.assert_close(experts.chunks[layer].grad[expert, : len(own)].cpu(), own, rtol=1e-4, atol=1e-5)
                flat = iter(expected[layer][expert].split([part.numel() for part in weights[layer][expert]]))
                for part in weights[layer][expert]:
                    part -= 0.1 * next(flat).view_as(part)
                whole = torch.cat([part.reshape(-1) for part in weights[layer][expert]])[rank * size: (rank + 1) * size]
                torch.testing.assert_close(experts.chunks[layer][expert, : len(own)].detach().cpu(), whole, rtol=1e-4, atol=1e-5)
    x = torch.zeros(1, WIDTH, device=device)
    for wrong in (lambda: experts(0, x, [1, 0, 0]), lambda: experts(0, x, [1, 1]), lambda: experts(0, x, [1, 0]),
                  lambda: experts.load(0, 0, weights[0][0][:1])):
        try:
            wrong()
            raise AssertionError("was taken")
        except (ValueError, RuntimeError):
            pass
    experts.close()
    communicator.destroy()
    print("sharded")


if __name__ == "__main__":
    main()
