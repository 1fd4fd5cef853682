"""auto_script.py CASE: for `python -m rewire.torch.auto`, as one process without an agent."""
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class OwnLoader(DataLoader):
    pass


kept = []


def main():
    case = sys.argv[1]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    if case != "no-optimizer":
        optimizer = torch.optim.AdamW(model.parameters())
    if case == "two-optimizers":
        kept.append(torch.optim.SGD(model.parameters(), lr=0.1))
    data = torch.randn(8, 4)
    loader = (OwnLoader if case == "own-loader" else DataLoader)(data, batch_size=2, sampler=DistributedSampler(data))
    with torch.no_grad():
        assert len(list(loader)) == 4  # no training
    if case == "no-loop":
        return
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    print("taken over:", type(model).__name__, flush=True)


if __name__ == "__main__":
    main()
