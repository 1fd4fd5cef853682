"""An optimizer whose state is divided over the members (ZeRO stage 1), and follows their number.

    optimizer = rewire.torch.ShardedOptimizer(torch.optim.AdamW, model.parameters(), lr=3e-4)

All parameters lie in one flat tensor, in order. Each slot updates its shard of it (world.shard), and an all-gather
then gives each the others' shards. torch.distributed's ZeroRedundancyOptimizer instead gives whole parameters to ranks,
which an unequal division of the state follows. The optimizer must treat each element alone, as AdamW and SGD do; LAMB
and Adafactor do not. Owned by the training thread, except for allocate() and discard().
"""
from typing import Any, Dict, Iterable, Iterator, Optional, Tuple, Type

import torch

from ..nccl import NcclError
from ..world import World, shard
from .process import process

__all__ = ["ShardedOptimizer"]

_MOST_SLOTS = 1 << 16  # the all-gather gives each slot the same number of elements, beyond the end of the parameters


class ShardedOptimizer(torch.optim.Optimizer):
    """kind: a class of optimizers; options: its own. parameters: of one type, on one device."""

    def __init__(self, kind: Type[torch.optim.Optimizer], parameters: Iterable[torch.nn.Parameter],
                 **options: Any) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        types = {parameter.dtype for parameter in self._parameters}
        if len(types) != 1:
            raise TypeError(f"parameters: are of {len(types)} types {sorted(map(str, types))}: must be of one")
        self.elements = sum(parameter.numel() for parameter in self._parameters)
        world = process().member.world
        self._slots, self._slot = world.slots, world.slot
        whole = process().empty(self.elements + _MOST_SLOTS, self._parameters[0].dtype)
        self.flat, self._whole = whole[: self.elements], whole
        with torch.no_grad():
            for parameter, place in self._places(self.flat):
                place.copy_(parameter.reshape(-1))
                parameter.data = place.view_as(parameter)
        self._allocated: Dict[int, torch.Tensor] = {}  # by address; until a change is committed or called off
        self._part = torch.nn.Parameter(torch.empty(0))
        self._take(*shard(self.elements, self._slots, self._slot))
        self._inner = kind([self._part], **options)
        super().__init__(self._parameters, self._inner.defaults)

    def _places(self, flat: torch.Tensor) -> Iterator[Tuple[torch.nn.Parameter, torch.Tensor]]:
        first = 0
        for parameter in self._parameters:
            yield parameter, flat[first: first + parameter.numel()]
            first += parameter.numel()

    def _take(self, begin: int, end: int) -> None:
        """Makes the elements [begin, end) this slot's shard."""
        self._begin, self._end = begin, end
        self._part.data = self.flat[begin:end]
        self._part.grad = torch.zeros_like(self._part)

    def state_dict(self) -> Any:
        raise RuntimeError("state_dict(): the state is divided over the members, and no call gathers it")

    def load_state_dict(self, state_dict: Any) -> None:
        raise RuntimeError("load_state_dict(): the state is divided over the members, and no call divides it")

    def add_param_group(self, param_group: Any) -> None:
        if self.param_groups:
            raise RuntimeError("add_param_group(): all parameters are given at the beginning, with the same options")
        super().add_param_group(param_group)

    # ---- an update -------------------------------------------------------------------------------------------------

    def step(self, closure: Any = None) -> None:
        """Raises NcclError where a member is lost: some of the parameters are then those of the last step."""
        if closure is not None:
            raise TypeError("step(closure): is not supported")
        with torch.no_grad():
            self.update_shard()
            chunk = (self.elements + self._slots - 1) // self._slots
            mine = self._whole[self._slot * chunk: (self._slot + 1) * chunk]
            process().all_gather(mine, self._whole[: self._slots * chunk])
            if not process().wait():
                error: Optional[NcclError] = process().take_error()
                assert error is not None
                raise error

    def update_shard(self) -> None:
        """The update without the exchange of parameters."""
        first = 0
        assert self._part.grad is not None
        for parameter in self._parameters:
            low, high = max(first, self._begin), min(first + parameter.numel(), self._end)
            if low < high:
                place = self._part.grad[low - self._begin: high - self._begin]
                if parameter.grad is None:
                    place.zero_()
                else:
                    place.copy_(parameter.grad.reshape(-1)[low - first: high - first])
            first += parameter.numel()
        for key, value in self.param_groups[0].items():
            if key != "params":
                self._inner.param_groups[0][key] = value
        self._inner.step()

    # ---- for Job ---------------------------------------------------------------------------------------------------

    def tensors(self) -> Dict[str, torch.Tensor]:
        """Returns the state by name. A tensor of more than one dimension, or none, is the same on all slots."""
        return {f"optimizer/{key}": value for key, value in sorted(self._inner.state[self._part].items())
                if value is not None}

    def is_sharded(self, tensor: torch.Tensor) -> bool:
        return bool(tensor.dim() == 1 and tensor.numel() == self._end - self._begin)

    def lies_flat(self) -> bool:
        """Returns whether the parameters still lie in the flat tensor."""
        return all(parameter.data_ptr() == place.data_ptr() for parameter, place in self._places(self.flat))

    def allocate(self, name: str, size: int) -> int:
        """On a thread of Rewire's, while training goes on."""
        dtype = self.tensors()[name].dtype
        process().drain()
        part = process().empty(size // torch.empty(0, dtype=dtype).element_size(), dtype)
        address = int(part.data_ptr())
        self._allocated[address] = part
        return address

    def discard(self, _: str, address: int) -> None:
        self._allocated.pop(address)

    def adopt(self, name: str, address: Optional[int], begin: int, end: int) -> None:
        state = self._inner.state[self._part]
        key = name[len("optimizer/"):]
        if (begin, end) != (self._begin, self._end):
            self._take(begin, end)
        state[key] = torch.empty(0, dtype=state[key].dtype) if address is None else self._allocated.pop(address)

    def set_world(self, world: World) -> None:
        self._slots, self._slot = world.slots, world.slot
