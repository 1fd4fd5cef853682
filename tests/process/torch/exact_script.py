#!/usr/bin/env python3
"""exact_script.py HOW LAST: `exact=True` with several reductions in each step, in a world that changes.

HOW: `twice`: a pass for each sample, and two reductions, each after the last sample's pass. Each step compares the
gradients with those of the whole global batch. `each`: a reduction after each sample's pass, so members with other
shares make another number. LAST: a file with the number of the last step, which may be written during the run.
"""
import contextlib
import sys

import rewire.torch
import torch
from agreed_number import agreed_number
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SAMPLES, BATCH = 48, 4  # batch of each of the first two slots
LOSSES = (torch.nn.functional.mse_loss, torch.nn.functional.l1_loss)


def main():
    how, last_file = sys.argv[1:]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("nccl")
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    x, y = torch.randn(SAMPLES, 6).to(device), torch.randn(SAMPLES, 1).to(device)
    sampler = DistributedSampler(range(SAMPLES), shuffle=False)
    loader = DataLoader(TensorDataset(torch.arange(SAMPLES), x, y), batch_size=BATCH, sampler=sampler)
    plain = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).to(device)
    model = DistributedDataParallel(plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    job = rewire.torch.Job(model, optimizer, data=loader, exact=True, bucket_bytes=64)
    last = None
    while last is None or job.steps < last:
        for numbers, inputs, targets in loader:
            for loss in LOSSES:
                for i in range(len(inputs)):
                    with contextlib.nullcontext() if how == "each" or i + 1 == len(inputs) else model.no_sync():
                        loss(model(inputs[i: i + 1]), targets[i: i + 1]).backward()
            first = int(numbers.min()) // (2 * BATCH) * 2 * BATCH
            whole = slice(first, first + 2 * BATCH)
            expected = torch.autograd.grad(sum(loss(plain(x[whole]), y[whole]) for loss in LOSSES), list(plain.parameters()))
            if job.step().kind.name != "REPEAT" and how == "twice":
                for parameter, gradient in zip(plain.parameters(), expected):
                    torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
            optimizer.zero_grad()
        last = agreed_number(last_file)
    print(f"finished after {job.steps} steps, {[round(float(p.sum()), 5) for p in model.parameters()]}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
