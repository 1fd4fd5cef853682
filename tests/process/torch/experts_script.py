"""experts_script.py NAME RANK: one of two processes whose experts are balanced; compares with the same layer alone."""
import sys

import rewire.torch
import torch

OWN, WIDTH, HIDDEN = 2, 8, 16
TOKENS = [[[300, 20], [10, 0]], [[150, 150], [0, 0]], [[300, 20], [10, 0]]]  # by step and rank: rank 1 helps


def compute(x, up, down):
    """The last column of a row is the router's probability."""
    return torch.tanh(x[:, :-1] @ up) @ down * x[:, -1:]


def main():
    name, rank = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weights = [torch.nn.Parameter(torch.randn(OWN, WIDTH, HIDDEN, device=device)),
               torch.nn.Parameter(torch.randn(OWN, HIDDEN, WIDTH, device=device))]
    experts = rewire.torch.BalancedExperts(name, rank, 2, weights, compute, width=WIDTH + 1, rows=400, dynamic=2,
                                           patience_us=20_000_000)
    optimizer = torch.optim.SGD(experts.parameters(), lr=1e-3)
    for tokens in (of_ranks[rank] for of_ranks in TOKENS):
        x = torch.randn(sum(tokens), WIDTH + 1, device=device, requires_grad=True)
        copies = [weight.detach().clone().requires_grad_() for weight in weights]
        again = x.detach().clone().requires_grad_()
        y = experts(experts(x, tokens, 0), tokens, 1)
        assert float(y.detach()[:, -1].abs().sum()) == 0  # compute() gives narrower rows
        expected = again
        for _ in range(2):
            rows = [compute(part, copies[0][e], copies[1][e]) for e, part in enumerate(expected.split(tokens))]
            expected = torch.nn.functional.pad(torch.cat(rows), (0, 1))
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
        optimizer.zero_grad()
        y.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(x.grad, again.grad, rtol=1e-3, atol=1e-3)
        for weight, copy in zip(weights, copies):
            torch.testing.assert_close(weight.grad, copy.grad, rtol=1e-3, atol=1e-3)
        experts.check()
        optimizer.step()
    counts = experts.counts()
    experts.end()
    assert counts.rounds == 12, counts.rounds
    assert counts.given if rank == 0 else counts.received, "nothing was moved"
    print("moved", counts.given, counts.received)


if __name__ == "__main__":
    main()
