#!/usr/bin/env python3
"""A mixture of experts over the processes of one node, whose busy experts get help from idle processes.

    rewire run -n 2 --no-agent -- python3 torch_moe.py

A router sends each token to one expert, and some experts are liked better than others. BalancedExperts moves rows of
busy experts, and their weights, to processes with less to do, and the results back. The training is the same without it.
"""
import argparse
import os

import rewire.torch
import torch
import torch.distributed as dist
from torch import nn

OWN, WIDTH, HIDDEN, TOKENS = 4, 32, 64, 512  # OWN: experts of a process


class Exchange(torch.autograd.Function):
    """Sends rows to the processes, `sent` to each, and gets `received` from each; the way back in backward."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.sizes = received, sent
        result = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(result, rows.contiguous(), received, sent)
        return result

    @staticmethod
    def backward(ctx, gradients):
        return Exchange.apply(gradients, *ctx.sizes), None, None


def one_expert(x, up, down):
    """The last column of a row is the router's probability."""
    return torch.nn.functional.gelu(x[:, :-1] @ up) @ down * x[:, -1:]


class Layer(nn.Module):
    def __init__(self, rank, ranks):
        super().__init__()
        self.ranks, self.router = ranks, nn.Linear(WIDTH, OWN * ranks)
        weights = [nn.Parameter(torch.randn(OWN, *shape) * 0.1) for shape in ((WIDTH, HIDDEN), (HIDDEN, WIDTH))]
        self.experts = rewire.torch.BalancedExperts(f"moe-{os.environ['MASTER_PORT']}", rank, ranks, weights, one_expert,
                                                    width=WIDTH + 1, rows=8 * TOKENS)

    def forward(self, x):
        probability, expert = self.router(x).softmax(1).max(1)
        order = expert.argsort(stable=True)
        to_experts = torch.bincount(expert, minlength=OWN * self.ranks)
        here = torch.empty_like(to_experts)
        dist.all_to_all_single(here, to_experts)
        of_ranks, sent = here.view(self.ranks, OWN), to_experts.view(self.ranks, OWN).sum(1).tolist()
        received = of_ranks.sum(1).tolist()
        rows = Exchange.apply(torch.cat([x, probability.unsqueeze(1)], 1)[order], sent, received)
        # From sorted by sender, then expert, to sorted by expert.
        owner = torch.arange(OWN, device=x.device).repeat(self.ranks).repeat_interleave(of_ranks.reshape(-1))
        by_expert = owner.argsort(stable=True)
        y = self.experts(rows[by_expert], of_ranks.sum(0).tolist())
        y = Exchange.apply(y[by_expert.argsort()], received, sent)
        return x + y[order.argsort(), :WIDTH]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layer, target = Layer(rank, ranks).to(device), torch.randn(WIDTH, WIDTH, device=device) / WIDTH**0.5
    with torch.no_grad():
        layer.router.bias[:OWN] += 2  # the experts of rank 0 are liked best
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    for step in range(args.steps):
        x = torch.randn(TOKENS, WIDTH, device=device, generator=torch.Generator(device).manual_seed(ranks * step + rank))
        loss = (layer(x) - torch.tanh(x @ target)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        mean = loss.detach().clone()
        for tensor in [mean, *(parameter.grad for parameter in layer.router.parameters())]:
            dist.all_reduce(tensor)
        optimizer.step()
        layer.experts.check()
        if rank == 0 and (step + 1) % 10 == 0:
            moved = layer.experts.counts().given_rows
            print(f"step {step + 1}: loss {float(mean) / ranks:.4f}, {moved} rows moved so far", flush=True)
    layer.experts.end()


if __name__ == "__main__":
    main()
