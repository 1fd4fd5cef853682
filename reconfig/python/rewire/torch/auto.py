"""Runs a PyTorch script of the plain shape unchanged, as a job whose world changes.

    rewire run -n 4 --max 8 --torch-auto -- python train.py ARGUMENT...     # python -m rewire.torch.auto train.py

The plain shape: one DistributedDataParallel, one optimizer of its parameters, at most one schedule and one scaler, and
training loops over one DataLoader with a DistributedSampler. The job (job.py) is made where the first such loop begins.
Another shape is refused there, with what the script must add. Owned by the training thread.
"""
import atexit
import functools
import os
import runpy
import sys
from typing import Any, Callable, Iterator, Optional

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from .companions import made, scalers, schedules
from .job import Job, StateError
from .sharded import ShardedOptimizer

__all__ = ["main"]

class _Script:
    def __init__(self) -> None:
        self.job: Optional[Job] = None
        iterate: Callable[[Any], Iterator[Any]] = DataLoader.__iter__

        @functools.wraps(iterate)
        def noting(loader: Any) -> Iterator[Any]:
            if self.job is None and torch.is_grad_enabled() and isinstance(loader.sampler, DistributedSampler):
                self._on_loop(loader)
            method: Callable[[Any], Iterator[Any]] = type(loader).__iter__  # another where a job was made
            return iterate(loader) if method is noting else method(loader)

        setattr(DataLoader, "__iter__", noting)

    def _on_loop(self, loader: Any) -> None:
        """Makes the job where the loop is one of training."""
        models = made(DistributedDataParallel)
        if not any(model.training for model in models):
            return
        things = made()
        optimizers = [thing for thing in things if isinstance(thing, torch.optim.Optimizer)]
        parts = [optimizer.inner for optimizer in optimizers if isinstance(optimizer, ShardedOptimizer)]
        optimizers = [optimizer for optimizer in optimizers if not any(optimizer is part for part in parts)]
        if not optimizers:
            raise StateError("a training loop begins before the script has an optimizer")
        kinds = {"DistributedDataParallel": models, "Optimizer": optimizers,
                 "schedule": schedules(optimizers[0], things), "GradScaler": scalers(things)}
        for kind, things in kinds.items():
            if len(things) > 1:
                raise StateError(f"the script has {len(things)} objects of the kind {kind}, and this module takes one: "
                                 "add rewire.torch.Job(model, optimizer, data=loader) to it (docs/torch.md)")
        options = {"scheduler": kinds["schedule"], "scaler": kinds["GradScaler"]}
        self.job = Job(models[0], optimizers[0], data=loader, **{name: of[0] for name, of in options.items() if of})

    def at_end(self) -> None:
        if self.job is None:
            print("rewire.torch.auto: the script had no training loop over a DataLoader with a DistributedSampler in a "
                  "DistributedDataParallel: its world could not change (docs/torch.md)", file=sys.stderr)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    atexit.register(_Script().at_end)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
