"""Runs a PyTorch script of the plain shape unchanged, as a job whose world changes.

    rewire run -n 4 --max 8 -- python -m rewire.torch.auto train.py ARGUMENT...

The plain shape: one DistributedDataParallel, one optimizer of its parameters, at most one schedule and one scaler, and
training loops over one DataLoader with a DistributedSampler. The job (job.py) is made where the first such loop begins.
Another shape is refused there, with what the script must add. Owned by the training thread.
"""
import atexit
import functools
import os
import runpy
import sys
from typing import Any, Callable, Iterator, List, Optional, Type

import torch
from torch.cuda.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from .job import Job, StateError

__all__ = ["main"]

_SCHEDULER: Type[Any] = getattr(lr_scheduler, "LRScheduler", None) or getattr(lr_scheduler, "_LRScheduler")


class _Script:
    """The objects that the script has made so far."""

    def __init__(self) -> None:
        self.models = self._made(DistributedDataParallel)
        self.optimizers = self._made(torch.optim.Optimizer)
        self.schedulers = self._made(_SCHEDULER)
        self.scalers = self._made(GradScaler)
        self.job: Optional[Job] = None
        iterate: Callable[[Any], Iterator[Any]] = DataLoader.__iter__

        @functools.wraps(iterate)
        def noting(loader: Any) -> Iterator[Any]:
            self._on_loop(loader)
            method: Callable[[Any], Iterator[Any]] = type(loader).__iter__  # another where a job was made
            return iterate(loader) if method is noting else method(loader)

        setattr(DataLoader, "__iter__", noting)

    @staticmethod
    def _made(kind: Type[Any]) -> List[Any]:
        """Returns a list that gets each instance when it is made."""
        made: List[Any] = []
        init = kind.__init__

        @functools.wraps(init)
        def noting(self: Any, *arguments: Any, **options: Any) -> None:
            init(self, *arguments, **options)
            if all(other is not self for other in made):
                made.append(self)

        setattr(kind, "__init__", noting)
        return made

    def _on_loop(self, loader: Any) -> None:
        """Makes the job where the loop is one of training."""
        training = self.models and self.models[0].training and torch.is_grad_enabled()
        if self.job is not None or not training or not isinstance(loader.sampler, DistributedSampler):
            return
        self._refuse_unknown()
        self.job = Job(self.models[0], self.optimizers[0], data=loader, scheduler=self._only(self.schedulers),
                       scaler=self._only([scaler for scaler in self.scalers if scaler.is_enabled()]))

    @staticmethod
    def _only(things: List[Any]) -> Any:
        return things[0] if things else None

    def _refuse_unknown(self) -> None:
        for things, most, name in ((self.models, 1, "DistributedDataParallel"), (self.optimizers, 1, "Optimizer"),
                                   (self.schedulers, 1, "schedule"), (self.scalers, 1, "GradScaler")):
            if len(things) > most:
                raise StateError(f"the script has {len(things)} objects of the kind {name}, and this module takes "
                                 "one: add rewire.torch.Job(model, optimizer, data=loader) to it (docs/torch.md)")
        if not self.optimizers:
            raise StateError("a training loop begins before the script has an optimizer")

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
