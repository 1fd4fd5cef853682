"""Tensors of a script that parallel layouts divide, and that follow the world: TP, PP, DP and ZeRO.

    parts = rewire.torch.Parts(layout)            # layout(slots): a dict of the fields of docs/layouts.md
    up = parts.parameter("up", initial)           # this slot's part, a torch.nn.Parameter
    optimizer = torch.optim.AdamW(parts.parameters())
    parts.optimize(optimizer)                     # whose tensors are in the layout, too
    parts.begin(optimizer.step)                   # a joiner enters here
    while parts.steps < last:
        forward_backward()                        # of this slot's part; collectives: parts.all_reduce()
        outcome = parts.step(optimizer.step)      # the update boundary

The script computes with its part, and after a change with its new one: parts.world says which slot it has. Everything
is owned by the training thread.
"""
import ctypes
import functools
from typing import Any, Callable, Dict, List, Optional

import torch

from ..layouts import Part, layout_part, layout_text
from ..memory import Memory
from ..nccl import NcclError, Operation
from ..world import Change, Kind, Layout, Outcome, World
from .job import Left
from .process import process
from .tensors import StateError

__all__ = ["Parts"]

_GRADIENT = "/grad"
_CHANGES = {"constant": Change.CONSTANT, "volatile": Change.VOLATILE, "transient": Change.TRANSIENT}


class _Tensor:
    """A registered tensor. follow: called with the tensor's new part after a change. present: returns what the script
    uses."""

    def __init__(self, dtype: torch.dtype, flat: torch.Tensor) -> None:
        self.dtype, self.flat = dtype, flat
        self.follow: Callable[[torch.Tensor], Any] = lambda _: None
        self.present: Callable[[], torch.Tensor] = lambda: self.flat


class Parts:
    """layout: called with a number of slots. Returns a dict with the fields of docs/layouts.md, or None if the script
    cannot train with that number; then such a change is refused. The layout of N slots must be the same on each member
    and at each call. A thread of Rewire's calls it while training goes on. Parts adds the gradient of each parameter.
    on_world: called with the new world, in a step, when all tensors have their new parts."""

    def __init__(self, layout: Callable[[int], Optional[Dict[str, Any]]], *,
                 on_world: Optional[Callable[[World], Any]] = None) -> None:
        self._given_layout = layout
        self._process = process()
        self._member = self._process.member
        self.world = self._member.world
        self._on_world = on_world
        self._text = self._layout_of(self.world.slots)
        if self._text is None:
            raise ValueError(f"layout: returned None for {self.world.slots} slots, which this member's world has")
        self._tensors: Dict[str, _Tensor] = {}
        self._parameters: Dict[str, torch.nn.Parameter] = {}
        self._allocated: Dict[int, torch.Tensor] = {}  # by address, until adopted or discarded
        self._version = (ctypes.c_uint64 * 1)(0)
        self._begun = False
        self._member.set_parallel(layout=self._layout_of, on_world=self._enter, allocate=self._allocate,
                                  adopt=self._adopt, discard=lambda _, address: self._allocated.pop(address))
        self._member.register("rewire.torch/version", self._version, Change.VOLATILE)

    @property
    def steps(self) -> int:
        """The number of updates that the job has applied."""
        return int(self._version[0])

    # ---- the layout ------------------------------------------------------------------------------------------------

    def _layout_of(self, slots: int) -> Optional[str]:
        given = self._given_layout(slots)
        if given is None:
            return None
        tensors: List[Dict[str, Any]] = []
        for entry in given["tensors"]:
            tensors.append(entry)
            if entry.get("role", "parameter") == "parameter":  # and so is the gradient: in the same shape
                gradient = {key: value for key, value in entry.items() if key != "optimizer"}
                gradient.update(name=entry["name"] + _GRADIENT, change="transient")
                if "buffer" in entry:
                    gradient["buffer"] = entry["buffer"] + _GRADIENT
                tensors.append(gradient)
        return layout_text({**given, "tensors": tensors})

    def part(self, name: str) -> Part:
        """Returns which elements of a tensor this member has, and where."""
        assert self._text is not None
        return layout_part(self._text, name, self.world.slot)

    # ---- tensors ---------------------------------------------------------------------------------------------------

    def tensor(self, name: str, dtype: torch.dtype = torch.float32, change: str = "constant") -> torch.Tensor:
        """Registers a tensor of the layout, with the element size of dtype. Returns this member's part, filled with
        zeroes; in the shape of the part, or flat where ZeRO divides it. change: as in the layout."""
        if self._begun:
            raise RuntimeError(f"{name}: must be made before begin()")
        part = self.part(name)
        registered = _Tensor(dtype, self._process.empty(part.elements, dtype).zero_())
        self._member.register(name, _memory(registered.flat), _CHANGES[change], Layout.BY_LAYOUT)
        self._tensors[name] = registered
        return registered.flat.view(part.shape)

    def parameter(self, name: str, initial: Optional[torch.Tensor] = None,
                  dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
        """Registers a parameter and its gradient. initial: the value of the whole tensor at the job's begin."""
        parameter = torch.nn.Parameter(self.tensor(name, dtype))
        if initial is not None and not self.world.joining:
            self.fill(name, initial)
        parameter.grad = self.tensor(name + _GRADIENT, dtype, "transient")
        self._tensors[name].follow = functools.partial(_set_data, parameter)
        self._tensors[name].present = lambda: parameter
        self._tensors[name + _GRADIENT].follow = functools.partial(setattr, parameter, "grad")
        self._parameters[name] = parameter
        return parameter

    def parameters(self) -> List[torch.nn.Parameter]:
        """Returns all parameters. Those of which this slot has no part are empty, and take part in nothing."""
        return list(self._parameters.values())

    def fill(self, name: str, whole: torch.Tensor) -> None:
        """Copies this member's part of a whole tensor, such as one of a checkpoint."""
        flat = self._tensors[name].flat
        for piece in self.part(name).pieces:
            sizes = [end - begin for begin, end in zip(piece.begin, piece.end)]
            place = flat.as_strided(sizes, piece.strides, flat.storage_offset() + piece.offset)
            place.copy_(whole[tuple(slice(begin, end) for begin, end in zip(piece.begin, piece.end))])

    def optimize(self, optimizer: torch.optim.Optimizer, moments: Any = ("exp_avg", "exp_avg_sq")) -> None:
        """Registers the optimizer's tensors of each parameter: NAME/MOMENT of the layout, whose entry has
        "optimizer": {"names": [...]}, and the number of steps. moments: their keys in optimizer.state."""
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        steps = torch.zeros(len(names))
        self._member.register("rewire.torch/optimizer/steps", _memory(steps), Change.CONSTANT)
        for index, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) not in names:
                raise ValueError("optimizer: has a parameter that Parts does not have: must be one of parameter()")
            state = optimizer.state[parameter]
            state["step"] = steps[index]
            for moment in moments:
                name = f"{names[id(parameter)]}/{moment}"
                state[moment] = self.tensor(name, parameter.dtype)
                if state[moment].shape != parameter.shape:
                    raise ValueError(f"{name}: has the shape {tuple(state[moment].shape)}, and the parameter "
                                     f"{tuple(parameter.shape)}: the layout must divide both alike (zero.stage 0 or 3)")
                self._tensors[name].follow = functools.partial(state.__setitem__, moment)
                self._tensors[name].present = functools.partial(state.__getitem__, moment)

    # ---- a change of the world -------------------------------------------------------------------------------------

    def _allocate(self, name: str, size: int) -> int:
        dtype = self._tensors[name].dtype
        self._process.drain()  # this thread may get memory that queued kernels of the training thread still use
        memory = self._process.empty(size // torch.empty(0, dtype=dtype).element_size(), dtype)
        self._allocated[memory.data_ptr()] = memory
        return int(memory.data_ptr())

    def _adopt(self, name: str, address: Optional[int], _: int, __: int) -> None:
        tensor = self._tensors[name]
        tensor.flat = self._process.empty(0, tensor.dtype) if not address else self._allocated.pop(address)

    def _enter(self, world: World) -> None:
        self.world = world
        self._text = self._layout_of(world.slots)
        for name, tensor in self._tensors.items():
            tensor.follow(tensor.flat.view(self.part(name).shape))

    # ---- a step ----------------------------------------------------------------------------------------------------

    def begin(self, update: Callable[[], Any]) -> None:
        """Call when everything is registered, before the first forward pass. A joiner enters the world here: it
        receives the state and the gradients of the step that the others are in, and applies the update with them."""
        self._begun = True
        self._process.trains = True
        self._process.connect()
        if self.world.joining:
            self.step(update)

    def step(self, update: Callable[[], Any]) -> Outcome:
        """Applies the update. Kind.REPEAT: a member was lost, and the step is to be repeated with the state that is
        left: `steps` says which. Raises Left in the step in which this member leaves the world."""
        if not self._begun:
            raise RuntimeError("step(): begin() must come before")
        self._check()
        self._keep_gradients()
        if self._process.take_error() is None:
            try:
                return self._take(self._member.update(functools.partial(self._apply, update)))
            except NcclError:
                self._process.take_error()
        return self._take(self._member.recover())

    def _check(self) -> None:
        for name, tensor in self._tensors.items():
            present = tensor.present()
            if present.numel() != tensor.flat.numel() or present.data_ptr() != tensor.flat.data_ptr():
                raise StateError(f"{name}: the script has given it other memory: must be changed in place "
                                 "(load_state_dict() of an optimizer comes before optimize())")

    def _keep_gradients(self) -> None:
        """Autograd, and zero_grad(), may have given a parameter another gradient than the registered one."""
        for name, parameter in self._parameters.items():
            registered = self._tensors[name + _GRADIENT].flat.view(parameter.shape)
            if parameter.grad is None:
                registered.zero_()
            elif parameter.grad.data_ptr() != registered.data_ptr():
                registered.copy_(parameter.grad)
            parameter.grad = registered
        self._process.synchronize()  # Rewire reads them on streams of its own

    def _apply(self, update: Callable[[], Any]) -> None:
        update()
        error = self._process.take_error()  # of a reduction in the update
        if error is not None:
            raise error
        self._version[0] += 1
        self._process.synchronize()

    def _take(self, outcome: Outcome) -> Outcome:
        self.world = outcome.world
        if outcome.kind is Kind.LEAVE:
            raise Left(0)
        if outcome.kind in (Kind.WORLD_CHANGED, Kind.REPEAT) and self._on_world is not None:
            self._on_world(outcome.world)
        return outcome

    # ---- collectives -----------------------------------------------------------------------------------------------

    def all_reduce(self, tensor: torch.Tensor, operation: Operation = Operation.SUM) -> torch.Tensor:
        """Returns the reduction of the tensor over all members. Where a member was lost, the values are wrong, and the
        next step() recovers."""
        with torch.no_grad():
            result = self._process.empty(tensor.numel(), tensor.dtype)
            result.copy_(tensor.reshape(-1))
            self._process.all_reduce(result, operation)
            self._process.wait()
            return result.view(tensor.shape)


def _set_data(parameter: torch.nn.Parameter, data: torch.Tensor) -> None:
    # The registered gradient of the new shape follows: PyTorch refuses data of another shape beside a gradient.
    parameter.grad = None
    # An earlier graph that the script still has, by its loss, keeps the node that accumulates the gradient, and its old
    # shape. PyTorch gives the parameter another node when the type of its data changes.
    other = torch.float64 if data.dtype is not torch.float64 else torch.float32
    parameter.data = torch.empty(0, dtype=other, device=data.device)
    parameter.data = data


def _memory(tensor: torch.Tensor) -> Memory:
    return Memory(tensor.data_ptr(), tensor.numel(), tensor.element_size(), tensor.is_cuda, tensor)
