"""DistributedDataParallel in a job: the script goes on to call it, and Reduction reduces the gradients.

DistributedDataParallel's own reducer knows the members that it was made with, and its buckets depend on what those
have seen. So it is taken away, with its memory. Owned by the training thread.
"""
from typing import Any, ContextManager, Optional

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.scatter_gather import scatter_kwargs

from .companions import made
from .reduction import Reduction
from .tensors import StateError

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
    """Takes over each DistributedDataParallel of the model's parameters: the model, a module around it or inside it."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for module in made(DistributedDataParallel):
        reduced = {name: names.get(id(parameter)) for name, parameter in module.named_parameters()}
        shared = [name for name in reduced.values() if name is not None]
        if not shared and getattr(module, "reducer", None) is not None:  # None: its constructor failed, or taken over
            raise StateError(f"model: a DistributedDataParallel reduces {next(iter(reduced))}, of another model: Job "
                             "takes one model with one optimizer, and a joiner would lack the state of the other")
        if not shared or isinstance(module, _FollowingParallel):
            continue
        if reduction is None:
            raise StateError(f"reduce=False: a DistributedDataParallel reduces {shared[0]}, with the members that it "
                             "was made with: train its module without it")
        other = [name for name, own in reduced.items() if own is None]
        if other:
            raise StateError(f"model: a DistributedDataParallel reduces {shared[0]} and {other[0]}, which is not a "
                             "parameter of the model: give Job the DistributedDataParallel")
        hook = module._get_ddp_logging_data().get("comm_hook")  # pylint: disable=protected-access
        if hook:
            raise StateError(f"model: has the communication hook {hook}, and Job reduces the gradients: make it "
                             "without the hook (for a reduction of your own: reduce=False)")
        module.__class__ = _FollowingParallel
        object.__setattr__(module, "_rewire", reduction)
        module.reducer = module.logger = None  # both hold it; its hooks end with it
