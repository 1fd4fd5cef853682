"""An optimizer whose state is divided over the members (ZeRO stage 1), and follows their number.

    optimizer = rewire.torch.ShardedOptimizer(torch.optim.AdamW, model.parameters(), lr=3e-4)

All parameters lie in one flat tensor, in order. Each slot updates its shard of it (world.shard), and an all-gather
then gives each the others' shards. The optimizer must treat each element alone, as AdamW and SGD do; LAMB
and Adafactor do not. Owned by the training thread, except for allocate() and discard().
"""
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Type

import torch

from ..nccl import NcclError
from ..world import World, shard
from .collectives import collectives
from .process import process

__all__ = ["ShardedOptimizer"]

_MOST_SLOTS = 1 << 16  # the all-gather gives each slot the same number of elements, beyond the end of the parameters
_PIECE = 1 << 24  # elements of all slots that a checkpoint gathers at a time


class ShardedOptimizer(torch.optim.Optimizer):
    """kind: a class of optimizers; options: its own. parameters: of one type, on one device."""

    def __init__(self, kind: Type[torch.optim.Optimizer], parameters: Iterable[torch.nn.Parameter],
                 **options: Any) -> None:
        given = list(parameters)
        if any(isinstance(parameter, dict) for parameter in given):
            raise TypeError("parameters: are in groups: all parameters must share one group of options")
        self._indices = [index for index, parameter in enumerate(given) if parameter.requires_grad]
        self._parameters = [given[index] for index in self._indices]
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
        self.inner = kind([self._part], **options)
        self.in_job = False
        self._collected: Optional[Dict[str, Any]] = None  # what state_dict() divides by parameters
        collectives().shards = self._collect
        torch.optim.Optimizer.__init__(self, given, self.inner.defaults)  # a subclass has another base

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

    def _overlaps(self) -> Iterator[Tuple[int, slice, slice]]:
        """Yields the parameters of which this slot has elements: which of them, and their place in the shard."""
        first = 0
        for index, parameter in enumerate(self._parameters):
            low, high = max(first, self._begin), min(first + parameter.numel(), self._end)
            if low < high:
                yield index, slice(low - first, high - first), slice(low - self._begin, high - self._begin)
            first += parameter.numel()

    def add_param_group(self, param_group: Any) -> None:
        if self.param_groups:
            raise RuntimeError("add_param_group(): all parameters are given at the beginning, with the same options")
        torch.optim.Optimizer.add_param_group(self, param_group)

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
        self._collected = None
        assert self._part.grad is not None
        for index, elements, place in self._overlaps():
            grad = self._parameters[index].grad
            if grad is None:
                self._part.grad[place].zero_()
            else:
                self._part.grad[place].copy_(grad.reshape(-1)[elements])
        for key, value in self.param_groups[0].items():
            if key != "params":
                self.inner.param_groups[0][key] = value
        self.inner.step()

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> bool:
        """Collects the state in the host memory of the member with rank `to`, whose state_dict() then returns it. All
        members call this together. Returns False where nothing is collected: after the loss of a member, and in a
        joiner that runs through epochs that are over."""
        self._collected = None
        return collectives().gather_shards(to)

    def _collect(self, keep: bool) -> None:
        """Gathers in pieces, so that no device holds the whole state."""
        chunk = (self.elements + self._slots - 1) // self._slots
        piece = max(1, min(chunk, _PIECE // self._slots))
        whole: Dict[str, Any] = {}
        for key, value in sorted(self.inner.state[self._part].items()):
            if not isinstance(value, torch.Tensor) or not self.is_sharded(value):
                whole[key] = value.cpu().clone() if isinstance(value, torch.Tensor) else value
                continue
            host = torch.empty((self._slots, chunk if keep else 0), dtype=value.dtype)
            mine, everything = (process().empty(n, value.dtype) for n in (piece, piece * self._slots))
            for first in range(0, chunk, piece):
                own = value[first: first + piece]
                mine[: own.numel()].copy_(own)
                process().all_gather(mine, everything)
                if not process().wait():
                    return
                if keep:
                    place = host[:, first: first + piece]
                    place.copy_(everything.view(self._slots, piece)[:, : place.shape[1]])
            whole[key] = host.reshape(-1)[: self.elements]
        self._collected = whole if keep else None

    def state_dict(self) -> Any:
        """Returns what the optimizer without shards would return, whose load_state_dict() takes it."""
        if self._collected is None:
            raise RuntimeError("state_dict(): the state is divided over the members: consolidate_state_dict() must be "
                               "called before, after the last step, by all members, and return True")
        state: Dict[int, Dict[str, Any]] = {}
        first = 0
        for index, parameter in zip(self._indices, self._parameters):
            end = first + parameter.numel()
            state[index] = {}
            for key, value in self._collected.items():
                if isinstance(value, torch.Tensor) and value.shape == (self.elements,):
                    value = value[first:end].view(parameter.shape)
                state[index][key] = value.clone() if isinstance(value, torch.Tensor) else value
            first = end
        options = {key: value for key, value in self.param_groups[0].items() if key != "params"}
        return {"state": state if self._collected else {},
                "param_groups": [{**options, "params": list(range(len(self.param_groups[0]["params"])))}]}

    def load_state_dict(self, state_dict: Any) -> None:
        """Takes this slot's shard of a state_dict(), also of one of the optimizer without shards. All members call this
        with the same, before Job(...)."""
        if self.in_job:
            raise RuntimeError("load_state_dict(): must come before Job(...), which moves the state at any time")
        groups, state = state_dict["param_groups"], state_dict["state"]
        given = len(self.param_groups[0]["params"])
        if len(groups) != 1 or len(groups[0]["params"]) != given:
            raise ValueError(f"load_state_dict(): groups of {[len(group['params']) for group in groups]} parameters: "
                             f"must be one of {given}")
        states = [state.get(groups[0]["params"][index], {}) for index in self._indices] if state else []
        for index, values in zip(self._indices, states):
            if values.keys() != states[0].keys():
                raise ValueError(f"load_state_dict(): parameter {index} has {sorted(values)}: must have "
                                 f"{sorted(states[0])} as parameter {self._indices[0]}")
        options = {key: value for key, value in groups[0].items() if key != "params"}
        on_device = options.get("fused") or options.get("capturable")
        loaded = {key: self._loaded(key, [values[key] for values in states], bool(on_device))
                  for key in (states[0] if states else ())}
        self.param_groups[0].update(options)
        self.inner.state[self._part].update(loaded)
        self._collected = None

    def _loaded(self, key: str, values: List[Any], on_device: bool) -> Any:
        """Returns this slot's part of one kind of state. on_device: also of a number of steps."""
        first = values[0]
        if not any(isinstance(value, torch.Tensor) and value.dim() > 0 for value in values):
            if any(bool(value != first) for value in values):
                raise ValueError(f"load_state_dict(): {key}: differs between parameters: must be the same for all")
            if not isinstance(first, torch.Tensor):
                return first
            return first.to(self.flat.device, torch.float32, copy=True) if on_device else first.clone()
        for index, value, parameter in zip(self._indices, values, self._parameters):
            if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
                shape = tuple(value.shape) if isinstance(value, torch.Tensor) else None
                raise ValueError(f"load_state_dict(): {key} of parameter {index} has shape {shape}: must be "
                                 f"{tuple(parameter.shape)}")
        part = process().empty(self._end - self._begin, self.flat.dtype)
        for index, elements, place in self._overlaps():
            part[place].copy_(values[index].reshape(-1)[elements])
        return part

    # ---- for Job ---------------------------------------------------------------------------------------------------

    def tensors(self) -> Dict[str, torch.Tensor]:
        """Returns the state by name. A tensor of more than one dimension, or none, is the same on all slots."""
        return {f"optimizer/{key}": value for key, value in sorted(self.inner.state[self._part].items())
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
        state = self.inner.state[self._part]
        key = name[len("optimizer/"):]
        if (begin, end) != (self._begin, self._end):
            self._take(begin, end)
        state[key] = torch.empty(0, dtype=state[key].dtype) if address is None else self._allocated.pop(address)

    def set_world(self, world: World) -> None:
        self._slots, self._slot = world.slots, world.slot
