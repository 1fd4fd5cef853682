"""DistributedDataParallel in a job: the script goes on to call it, and Reduction reduces the gradients.

DistributedDataParallel's own reducer knows the members that it was made with, and its buckets depend on what those
have seen. So it is taken away, with its memory. Owned by the training thread.
"""
from typing import Any, ContextManager, Optional

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.scatter_gather import scatter_kwargs

from .reduction import Reduction

__all__ = ["take_over"]


class _FollowingParallel(DistributedDataParallel):
    """The class of a module that was taken over."""

    _rewire: Reduction

    def forward(self, *inputs: Any, **options: Any) -> Any:
        if self.device_ids:
            inputs, options = (moved[0] for moved in scatter_kwargs(inputs, options, self.device_ids, dim=self.dim))
        return self.module(*inputs, **options)

    def no_sync(self) -> ContextManager[None]:
        return self._rewire.no_sync()

    def join(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("join(): every member of a job takes its share of each global batch (Job(data=))")

    def register_comm_hook(self, *_: Any) -> None:
        raise RuntimeError("register_comm_hook(): Job reduces the gradients; for a reduction of your own: reduce=False")


def take_over(model: torch.nn.Module, reduction: Optional[Reduction]) -> None:
    """Does nothing to other modules."""
    if not isinstance(model, DistributedDataParallel):
        return
    if reduction is None:
        raise TypeError("reduce=False: the model is a DistributedDataParallel, which reduces: give its .module")
    model.__class__ = _FollowingParallel
    object.__setattr__(model, "_rewire", reduction)
    model.reducer = model.logger = None  # both hold it; its hooks end with it
