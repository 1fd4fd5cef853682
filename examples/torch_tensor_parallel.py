#!/usr/bin/env python3
"""A layer that is divided over the members (tensor parallelism), and divided anew when their number changes.

    rewire run -n 2 --max 4 -- python3 torch_tensor_parallel.py
    rewire resize 3        # in another terminal: three members, each with a third

As in Megatron-LM, `up` is divided by columns and `down` by rows, so that one reduction gives the layer's result. The
moments of AdamW are divided as their parameters are. A member that dies costs one step.
"""
import argparse
import os

import rewire.torch
import torch
from rewire.nccl import Operation
from torch.nn import functional

FEATURES, HIDDEN, CLASSES, BATCH = 64, 384, 10, 32


def layout(slots):
    """Says how the tensors are divided over `slots` members (docs/layouts.md)."""
    def entry(name, shape, **more):
        return {"name": name, "shape": shape, "element_bytes": 4,
                "optimizer": {"names": ["exp_avg", "exp_avg_sq"]}, **more}

    return {"parallel": {"tensor": slots}, "tensors": [
        entry("up.weight", [HIDDEN, FEATURES], split={"dim": 0}),
        entry("up.bias", [HIDDEN], split={"dim": 0}),
        entry("down.weight", [CLASSES, HIDDEN], split={"dim": 1}),
        entry("down.bias", [CLASSES]),  # on each member
    ]}


class Layer:
    def __init__(self, parts):
        random = torch.Generator().manual_seed(0)

        def initial(*shape):
            return torch.randn(*shape, generator=random) * shape[-1] ** -0.5

        self.up = parts.parameter("up.weight", initial(HIDDEN, FEATURES))
        self.up_bias = parts.parameter("up.bias")
        self.down = parts.parameter("down.weight", initial(CLASSES, HIDDEN))
        self.down_bias = parts.parameter("down.bias")
        self.parts = parts

    def __call__(self, points):
        hidden = functional.gelu(functional.linear(points, self.up, self.up_bias))
        return Sum.apply(functional.linear(hidden, self.down), self.parts) + self.down_bias


class Sum(torch.autograd.Function):
    """The sum over the members. Each member's part gets the whole gradient."""

    @staticmethod
    def forward(_, part, parts):
        return parts.all_reduce(part)

    @staticmethod
    def backward(_, gradient):
        return gradient, None


def batch(step, device):
    """Returns noisy points around one centre for each class: the same on all members."""
    random = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, FEATURES, generator=random)
    random.manual_seed(100 + step)
    targets = torch.randint(CLASSES, (BATCH,), generator=random)
    return (centres[targets] + 2 * torch.randn(BATCH, FEATURES, generator=random)).to(device), targets.to(device)


def last_step(parts, args):
    """Returns the least number that a member has read. A joiner calls this first, as the others do after a step."""
    if args.last is None:
        return args.steps
    read = int(open(args.last).read()) if os.path.exists(args.last) else args.steps
    return int(-parts.all_reduce(torch.tensor([-read]), Operation.MAX))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--last", help="a file with the number of the last step; it may be written during the run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    parts = rewire.torch.Parts(layout, on_world=lambda world: print(f"slot {world.slot} of {world.slots}", flush=True))
    layer = Layer(parts)
    device = layer.up.device
    optimizer = torch.optim.AdamW(parts.parameters(), lr=0.003)
    parts.optimize(optimizer)
    parts.begin(optimizer.step)
    loss = torch.zeros(())
    while parts.steps < last_step(parts, args):
        points, targets = batch(parts.steps, device)
        optimizer.zero_grad()
        loss = functional.cross_entropy(layer(points), targets)
        loss.backward()
        parts.step(optimizer.step)
        if parts.world.slot == 0 and parts.steps % 20 == 0:
            print(f"step {parts.steps}: {parts.world.slots} members, loss {loss.item():.4f}", flush=True)
    print(f"finished after {parts.steps} steps, loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
