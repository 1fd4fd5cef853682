#!/usr/bin/env python3
"""An ordinary data-parallel script: DistributedDataParallel, a sampler, a schedule by epoch, a mean loss for the log.

    rewire run -n 2 --max 4 -- python3 torch_ddp.py

The two lines with `rewire` are the only difference to a script that torchrun starts.
"""
import argparse
import os

import rewire.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLASSES, FEATURES = 10, 64


class Points(Dataset):
    """Noisy points around one centre for each class."""

    def __init__(self):
        random = torch.Generator().manual_seed(0)
        self.targets = torch.randint(CLASSES, (1024,), generator=random)
        centres = torch.randn(CLASSES, FEATURES, generator=random)
        self.points = centres[self.targets] + torch.randn(1024, FEATURES, generator=random)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, number):
        return self.points[number], self.targets[number]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--last", help="a file with the number of the last epoch; it may be written during the run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("nccl")
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    sampler = DistributedSampler(Points(), seed=1)
    loader = DataLoader(sampler.dataset, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, CLASSES))
    model = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
    rewire.torch.Job(model, optimizer, data=loader, scheduler=scheduler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(3, device=device)
        for points, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(points.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            total[:2] += torch.stack([loss.detach() * len(points), torch.tensor(len(points), device=device)])
        scheduler.step()
        total[2] = bool(args.last and os.path.exists(args.last) and epoch >= int(open(args.last).read()))
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {dist.get_world_size()} members, {int(total[1])} samples, "
                  f"loss {total[0] / total[1]:.4f}, next rate {scheduler.get_last_lr()[0]:.4f}", flush=True)
        if total[2] == dist.get_world_size():  # not before all members have read the file
            break


if __name__ == "__main__":
    main()
