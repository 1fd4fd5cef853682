"""The tensors of a model and its optimizer that Rewire moves while training goes on: they change only in the update.

Buffers are not among them (progress.py). Owned by the training thread.
"""
import hashlib
from itertools import zip_longest
from typing import Callable, Dict, Iterator, List, Tuple

import torch

from ..memory import Memory
from ..world import Change, Layout, Member
from .process import process
from .sharded import ShardedOptimizer

__all__ = ["StateError", "StateTensors", "parameter_names", "refuse_differences"]


class StateError(RuntimeError):
    """State that cannot be moved, by name."""


def _memory_of(name: str, tensor: torch.Tensor) -> Memory:
    if tensor.layout is not torch.strided or not tensor.is_contiguous():
        raise StateError(f"{name}: is not contiguous: Rewire moves contiguous memory")
    if tensor.device.type not in ("cpu", "cuda"):
        raise StateError(f"{name}: is on {tensor.device}: must be on a CUDA device or in host memory")
    return Memory(tensor.data_ptr(), tensor.numel(), tensor.element_size(), tensor.is_cuda, tensor)


def parameter_names(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Dict[torch.Tensor, str]:
    """Returns the parameters with their names, shared ones once. Those outside the model are named by their group."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            names.setdefault(parameter, f"group {number} parameter {index}")
    return names


def parameters_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Dict[str, torch.Tensor]:
    """Returns the parameters by name. Those that lie in a ShardedOptimizer's flat tensor have one name."""
    flat: Dict[str, torch.Tensor] = {}
    lying = set()
    if isinstance(optimizer, ShardedOptimizer):
        flat["flat"] = optimizer.flat
        lying = {parameter for _, parameter in trained(optimizer)}
    return {**flat, **{name: parameter.data for parameter, name in parameter_names(model, optimizer).items()
                       if parameter not in lying}}


def trained(optimizer: torch.optim.Optimizer) -> Iterator[Tuple[str, torch.nn.Parameter]]:
    """Yields the optimizer's parameters that can have a gradient, named by their place."""
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            if parameter.requires_grad:
                yield f"{number}.{index}", parameter


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Dict[str, torch.Tensor]:
    if isinstance(optimizer, ShardedOptimizer):
        return optimizer.tensors()
    found = {}
    for place, parameter in trained(optimizer):
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            if isinstance(value, torch.Tensor):
                found[f"optimizer/{place}/{key}"] = value
    return found


def refuse_differences(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raises StateError on all members where their parameters or buffers differ in name, shape or type. All members of
    a first world call this."""
    here, world = process(), process().member.world
    tensors = {**parameters_of(model, optimizer), **dict(model.named_buffers())}
    own = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors.items()]
    content = "\n".join(own).encode()
    mine, everything = here.empty(32, torch.uint8), here.empty(32 * world.slots, torch.uint8)
    mine.copy_(torch.frombuffer(bytearray(hashlib.sha256(content).digest()), dtype=torch.uint8))
    here.all_gather(mine, everything)
    here.wait_or_raise()
    rows = everything.view(world.slots, -1).tolist()
    other = next((slot for slot, row in enumerate(rows) if row != rows[0]), 0)
    if other == 0:
        return
    theirs = here.broadcast_bytes(content, 0).decode().splitlines()
    for here_is, there_is in zip_longest(own, theirs, fillvalue="no more"):
        if here_is != there_is:
            raise StateError(f"model: slot {world.slot} has {here_is}, and slot 0 has {there_is}: must be the same on "
                             "all members")
    raise StateError(f"model: slot {other} has other parameters than slot 0: must be the same on all members")


class StateTensors:
    """The parameters and the optimizer's tensors. Rewire writes into their memory, so they must keep it."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._registered: List[Tuple[str, torch.Tensor, int]] = []  # with the address
        self._keys: Dict[str, int] = {}

    def materialize(self, update: Callable[[], object]) -> None:
        """Makes the optimizer's state as its first step does. The values do not matter: they are received."""
        for _, parameter in trained(self._optimizer):
            parameter.grad = torch.zeros_like(parameter)
        if isinstance(self._optimizer, ShardedOptimizer):
            self._optimizer.update_shard()
        else:
            update()
        self._optimizer.zero_grad(set_to_none=True)

    def register(self, member: Member) -> None:
        """Call after the optimizer has made its state."""
        self._keys = {place: len(self._optimizer.state.get(p, {})) for place, p in trained(self._optimizer)}
        if any(self._keys.values()):
            for place, keys in self._keys.items():
                if keys == 0:
                    raise StateError(f"optimizer parameter {place} (group.index): has no optimizer state after the "
                                     "first step, because it had no gradient: every trained parameter must have one "
                                     "(requires_grad_(False) for the others)")
        self._refuse_values()
        for name, tensor in self._replicated().items():
            if tensor.numel() > 0:
                member.register(name, _memory_of(name, tensor), Change.CONSTANT)
                self._registered.append((name, tensor, tensor.data_ptr()))
        if isinstance(self._optimizer, ShardedOptimizer):
            for name, tensor in self._optimizer.tensors().items():
                if self._optimizer.is_sharded(tensor):
                    member.register(name, _memory_of(name, tensor), Change.CONSTANT, Layout.SHARDED,
                                    self._optimizer.elements)

    def _replicated(self) -> Dict[str, torch.Tensor]:
        named = {f"model/{name}": tensor for name, tensor in parameters_of(self._model, self._optimizer).items()}
        for name, tensor in optimizer_tensors(self._optimizer).items():
            if not isinstance(self._optimizer, ShardedOptimizer) or not self._optimizer.is_sharded(tensor):
                named[name] = tensor
        return named

    def _refuse_values(self) -> None:
        values = {f"optimizer/{place}/{key}": value for place, parameter in trained(self._optimizer)
                  for key, value in self._optimizer.state.get(parameter, {}).items()}
        if isinstance(self._optimizer, ShardedOptimizer):
            values = dict(self._optimizer.tensors())
        for name, value in values.items():
            if value is not None and not isinstance(value, torch.Tensor):
                raise StateError(f"{name}: is a {type(value).__name__}: Rewire moves tensors only: use an optimizer "
                                 "that keeps it in a tensor (docs/torch.md)")

    def check(self) -> None:
        """Raises StateError where the state is no longer what was registered. Call before each update."""
        now = self._replicated()
        if isinstance(self._optimizer, ShardedOptimizer) and not self._optimizer.lies_flat():
            raise StateError("a parameter is no longer in the flat tensor of its ShardedOptimizer (`.data =`, `.to()`)")
        for name, _, address in self._registered:
            tensor = now.get(name)
            if tensor is None or tensor.data_ptr() != address:
                raise StateError(f"{name}: is no longer in the memory that it had after the first step (`.data =`, "
                                 "`.to()`, `.half()`, load_state_dict() of the optimizer): Rewire would move the old "
                                 "memory")
        if len(now) != len(self._registered) + sum(1 for tensor in now.values() if tensor.numel() == 0):
            new = set(now) - {name for name, _, _ in self._registered}
            raise StateError(f"{min(new)}: was made after the first step: Rewire does not move it")
