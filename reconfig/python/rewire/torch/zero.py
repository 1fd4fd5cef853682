"""torch.distributed's ZeroRedundancyOptimizer in a job: a ShardedOptimizer, with the arguments that the script gives.

PyTorch's class divides whole parameters among ranks that never change. Owned by the training thread.
"""
from typing import Any, Iterable, Type

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

from .sharded import ShardedOptimizer

__all__ = ["take_over"]


class _FollowingZero(ShardedOptimizer, ZeroRedundancyOptimizer):
    """Also a ZeroRedundancyOptimizer, because scripts test isinstance() before a checkpoint."""

    # pylint: disable-next=super-init-not-called
    def __init__(self, params: Iterable[torch.nn.Parameter], optimizer_class: Type[torch.optim.Optimizer],
                 process_group: Any = None, parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False,
                 **defaults: Any) -> None:
        del parameters_as_bucket_view  # the parameters lie in one tensor in any case
        if overlap_with_ddp:
            raise ValueError("overlap_with_ddp=True: must be False, because Job reduces the gradients")
        if process_group not in (None, dist.group.WORLD):
            raise ValueError("process_group: must be the group of all members")
        ShardedOptimizer.__init__(self, optimizer_class, params, **defaults)


def _new(cls: type, *_: Any, **__: Any) -> Any:
    if cls not in (ZeroRedundancyOptimizer, _FollowingZero):
        raise TypeError(f"{cls.__name__}: subclasses do not follow the job's world: use ZeroRedundancyOptimizer itself")
    return object.__new__(_FollowingZero)


def take_over() -> None:
    """Makes ZeroRedundancyOptimizer(...) return optimizers that follow the world; works after the script imported the
    class."""
    setattr(ZeroRedundancyOptimizer, "__new__", staticmethod(_new))
