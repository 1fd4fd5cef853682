#!/usr/bin/env python3
"""mean_script.py LAST: every member compares each step's gradients with those of the whole global batch.

The last global batch of an epoch is short, so some slots have a smaller share or none. The script's own collectives
come after a step, before a joiner's script has reached its first batch, and at the end of an epoch. The script has
ordinary options: groups of parameters, frozen and empty parameters, accumulated gradients, a schedule of two parts.
LAST: a file with the number of the last step, which may be written during the run.
"""
import contextlib
import sys
import warnings

import rewire.torch
import torch
import torch.distributed as dist
from agreed_number import agreed_number
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SAMPLES, BATCH = 42, 4  # batch of each of the first two slots: global batches of 8, the last of 2
VALIDATION = 12  # samples, a multiple of each number of members


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 5), torch.nn.Linear(5, 1)
        self.empty = torch.nn.Parameter(torch.zeros(0))
        self.first.bias.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x))) + self.empty.sum()


def trained(model):
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def new_optimizer(model):
    """Returns an optimizer with two groups, and a schedule of a warm-up and a cosine."""
    groups = [{"params": model.first.parameters()},
              {"params": [model.last.weight, model.last.bias, model.empty], "lr": 0.02, "momentum": 0.5}]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9, foreach=True)
    parts = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: (epoch + 1) / 4),
             torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)]
    return optimizer, torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [3])


def rates_after(epochs):
    optimizer, scheduler = new_optimizer(Model())
    for _ in range(epochs):
        optimizer.step()
        scheduler.step()
    return scheduler.get_last_lr()


def gradients(model, x, y):
    return torch.autograd.grad(torch.nn.functional.mse_loss(model(x), y), trained(model))


def backward(model, x, y, kind):
    """Makes the gradients of the mean loss. kind: 0 in one pass, 1 in two with one reduction, 2 in two with two."""
    if kind == 0:
        torch.nn.functional.mse_loss(model(x), y).backward()
        return
    half = len(x) // 2  # 0 for a share of one sample
    with model.no_sync() if kind == 1 else contextlib.nullcontext():
        (torch.nn.functional.mse_loss(model(x[:half]), y[:half], reduction="sum") / len(x)).backward()
    (torch.nn.functional.mse_loss(model(x[half:]), y[half:], reduction="sum") / len(x)).backward()


def count_validation():
    """Returns the samples that all members take. The sampler is made anew, because the world changes."""
    count = torch.tensor(len(list(DistributedSampler(range(VALIDATION), shuffle=False))))
    dist.all_reduce(count)
    return int(count)


loss_warnings = []  # warnings about collectives that a loss has cut short, of this epoch


def check_collectives(before, after):
    """before, after: the worlds before and after the step. Joiners take part with neutral elements."""
    replaced = after.epoch > before.epoch and after.slots == before.slots
    there = min(before.slots, after.slots) - (1 if replaced else 0)
    flag, low = torch.ones(1, dtype=torch.bool), torch.tensor([-3, 5 + dist.get_rank()])
    count, root = torch.ones(2, 3), torch.full((2,), float(dist.get_rank()))
    dist.all_reduce(count)
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    dist.broadcast(root, 0)
    rows = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, torch.ones(1))
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"an": "object"})
    told = ["from 0" if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(told, 0)
    mean, product, total = torch.ones(2), torch.full((2,), 2.0), torch.ones(2)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    work = dist.all_reduce(product, dist.ReduceOp.PRODUCT, async_op=True)
    work.wait()
    dist.reduce(total, 0)
    row = torch.zeros(dist.get_world_size())
    dist.all_gather_into_tensor(row, torch.ones(1))
    dist.barrier()
    if loss_warnings:
        return  # noticed in one of these
    found = (count.tolist(), low.tolist()[0], bool(flag), root.tolist(), float(sum(rows)), objects, told)
    assert found == ([[there] * 3] * 2, -3, True, [0.0, 0.0], after.slots, [{"an": "object"}] * after.slots, ["from 0"]), (
        found, before, after)
    found = (mean.tolist(), product.tolist(), total.tolist(), float(row.sum()), work.is_completed())
    of_root = there if dist.get_rank() == 0 else 1
    assert found == ([1.0] * 2, [2.0**there] * 2, [of_root] * 2, after.slots, True), (found, before, after)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("nccl")
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    x, y = torch.randn(SAMPLES + 1, 6).to(device), torch.randn(SAMPLES + 1, 1).to(device)
    sampler = DistributedSampler(range(SAMPLES + 1), shuffle=False, drop_last=True)
    loader = DataLoader(TensorDataset(torch.arange(len(x)), x, y), batch_size=BATCH, sampler=sampler)
    plain = Model().to(device)
    model = DistributedDataParallel(plain)
    optimizer, scheduler = new_optimizer(plain)
    job = rewire.torch.Job(model, optimizer, data=loader, scheduler=scheduler, bucket_bytes=64, on_world=lambda world: print(
        f"step {job.steps}: slot {world.slot} of {world.slots}", flush=True))
    epochs, last = 0, None
    warnings.simplefilter("always")
    warnings.showwarning = lambda *warning: loss_warnings.append(warning)
    while last is None or job.steps < last:
        loss_warnings.clear()
        undisturbed = False
        for numbers, inputs, targets in loader:
            backward(model, inputs, targets, job.steps % 3)
            first = int(numbers.min()) // (2 * BATCH) * 2 * BATCH
            whole = slice(first, min(first + 2 * BATCH, SAMPLES))
            expected = gradients(plain, x[whole], y[whole])
            before = job.world
            undisturbed = job.step().kind.name != "REPEAT"
            if undisturbed:
                for parameter, gradient in zip(trained(model), expected):
                    torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
                check_collectives(before, job.world)
            optimizer.zero_grad(set_to_none=job.steps % 2 == 0)
        epochs += 1
        ended = torch.tensor([epochs])
        dist.all_reduce(ended, dist.ReduceOp.MAX)
        validated = count_validation()
        scheduler.step()
        # False in a joiner: its script first skips the finished epochs.
        if job.steps == 6 * epochs and undisturbed and not loss_warnings:
            assert ended[0] == epochs, (ended, epochs)
            # A member that has joined in the last step takes no samples yet.
            assert validated == VALIDATION or job.world.epoch > before.epoch, (validated, before, job.world)
            assert scheduler.get_last_lr() == rates_after(epochs), (scheduler.get_last_lr(), rates_after(epochs))
        last = agreed_number(sys.argv[1])
    print(f"finished after {job.steps} steps, {[round(float(p.sum()), 5) for p in model.parameters()]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
