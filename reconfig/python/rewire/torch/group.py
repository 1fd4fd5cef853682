"""A process group for torch.distributed whose members change in place: the backend "rewire".

    import rewire.torch
    torch.distributed.init_process_group("nccl")      # makes it

Its collectives are those of collectives.py. Owned by the training thread.
"""
import functools
import inspect
import os
import pickle
from typing import Any, Callable, List

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]

from ..nccl import Operation
from .collectives import collectives
from .process import process

__all__ = ["take_over"]

_NAME = "rewire"
_OPERATIONS = ((dist.ReduceOp.SUM, Operation.SUM), (dist.ReduceOp.PRODUCT, Operation.PROD),
               (dist.ReduceOp.MAX, Operation.MAX), (dist.ReduceOp.MIN, Operation.MIN),
               (dist.ReduceOp.AVG, Operation.AVERAGE))


def _done(result: List[torch.Tensor]) -> Any:
    """Returns the work of a collective that is complete."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    return _create_work_from_future(future)


def _operation_of(operation: Any) -> Operation:
    for theirs, ours in _OPERATIONS:
        if operation == theirs:
            return ours
    raise ValueError("op: NCCL has no such operation: must be SUM, PRODUCT, MIN, MAX or AVG")


class _Group(dist.ProcessGroup):
    """The group of all members."""

    def getBackendName(self) -> str:  # pylint: disable=invalid-name; PyTorch's name
        return _NAME

    def rank(self) -> int:
        return collectives().rank()

    def size(self) -> int:
        return process().member.world.slots

    def allreduce(self, tensors: List[torch.Tensor], options: Any = None) -> Any:
        operation = Operation.SUM if options is None else _operation_of(options.reduceOp)
        with torch.no_grad():
            for tensor in tensors:
                collectives().all_reduce(tensor, operation)
        return _done(tensors)

    def reduce(self, tensors: List[torch.Tensor], options: Any) -> Any:
        """The root's tensors get the result; the others' are unchanged."""
        with torch.no_grad():
            for tensor in tensors:
                result = tensor.clone()
                collectives().all_reduce(result, _operation_of(options.reduceOp))
                if self.rank() == options.rootRank:
                    tensor.copy_(result)
        return _done(tensors)

    def broadcast(self, tensors: List[torch.Tensor], options: Any) -> Any:
        with torch.no_grad():
            for tensor in tensors:
                collectives().broadcast(tensor, options.rootRank)
        return _done(tensors)

    def allgather(self, outputs: List[List[torch.Tensor]], tensors: List[torch.Tensor], _: Any = None) -> Any:
        with torch.no_grad():
            for places, tensor in zip(outputs, tensors):
                for place, row in zip(places, collectives().all_gather(tensor)):
                    place.copy_(row.view(place.shape))
        return _done(tensors)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, _: Any = None) -> Any:
        with torch.no_grad():
            output.copy_(collectives().all_gather(tensor).reshape(output.shape))
        return _done([output])

    def barrier(self, opts: Any = None) -> Any:  # pylint: disable=unused-argument; PyTorch gives it by name
        return self.allreduce([torch.zeros(1)])


class _Met(dist.Store):
    """init_process_group() waits for the others in a store; the members have met by Rewire. A TCPStore would die with
    the member that serves it."""

    def add(self, _: str, __: int) -> int:
        return process().member.world.slots


def _create(_: Any, __: int, size: int, ___: Any) -> _Group:
    world = process().member.world
    if size != world.slots:
        raise ValueError(f"new_group: {size} ranks of {world.slots}: a group of some members does not follow the world")
    # The base class, which C++ code asks, has constant numbers: as one process, a joiner compares with nobody.
    return _Group(0, 1) if collectives().entering else _Group(world.slot, world.slots)


_theirs: Callable[..., None] = dist.init_process_group


@functools.wraps(_theirs)
def _init_process_group(*arguments: Any, **options: Any) -> None:
    backend = arguments[0] if arguments else options.get("backend")
    if backend is not None and "nccl" not in backend.lower():
        _theirs(*arguments, **options)
        return
    if not hasattr(dist.Backend, _NAME.upper()):
        register: Any = dist.Backend.register_backend
        options_of_2 = {"devices": ["cpu", "cuda"]} if "devices" in inspect.signature(register).parameters else {}
        register(_NAME, _create, **options_of_2)  # pylint: disable=unexpected-keyword-arg
    world = process().member.world
    _theirs(_NAME, store=_Met(), rank=world.slot, world_size=world.slots)


_new_group_of_backend: Callable[..., Any] = dist.new_group


@functools.wraps(_new_group_of_backend)
def _new_group(*arguments: Any, **options: Any) -> Any:
    given = inspect.signature(_new_group_of_backend).bind(*arguments, **options)
    if dist.get_backend() == _NAME:
        backend = given.arguments.pop("backend", None)
        given.arguments.pop("pg_options", None)  # NCCL's
        if backend not in (None, _NAME) and "nccl" not in backend.lower():
            raise ValueError(f"new_group: backend={backend}: a group of another backend does not follow the world: "
                             "must be nccl, or left out")
    return _new_group_of_backend(*given.args, **given.kwargs)


# PyTorch's calls for objects use several collectives, and read what they have got also where a member was lost.
_broadcast_objects: Callable[..., None] = dist.broadcast_object_list
_gather_objects: Callable[..., None] = dist.all_gather_object


def _bytes(content: bytes, size: int) -> torch.Tensor:
    return torch.frombuffer(bytearray(content.ljust(size, b"\0")), dtype=torch.uint8)


@functools.wraps(_broadcast_objects)
def _broadcast_object_list(object_list: List[Any], src: int = 0, group: Any = None, device: Any = None) -> None:
    here = collectives()
    if dist.get_backend() != _NAME:
        _broadcast_objects(object_list, src, group, device)
        return
    if here.entering:
        raise RuntimeError("broadcast_object_list(): this process joins a job that trains: up to its first batch "
                           "there is nobody to receive from (docs/torch.md)")
    content = pickle.dumps(object_list) if dist.get_rank() == src else b""
    size = torch.tensor([len(content)])
    here.broadcast(size, src)
    if here.alone:
        return
    packed = _bytes(content, int(size))
    here.broadcast(packed, src)
    if not here.alone:
        object_list[:] = pickle.loads(packed.numpy().tobytes())


@functools.wraps(_gather_objects)
def _all_gather_object(object_list: List[Any], obj: Any, group: Any = None) -> None:
    here = collectives()
    if dist.get_backend() != _NAME:
        _gather_objects(object_list, obj, group)
        return
    content = pickle.dumps(obj)
    sizes = here.all_gather(torch.tensor([len(content)])).tolist()
    rows = here.all_gather(_bytes(content, max(size for (size,) in sizes)))
    for slot, ((size,), row) in enumerate(zip(sizes, rows)):
        object_list[slot] = obj if here.alone else pickle.loads(row[:size].cpu().numpy().tobytes())


def take_over() -> None:
    """In a job, torch.distributed.init_process_group("nccl") then makes the group of the job's members, whichever
    they are, and new_group() another of all of them. Other backends are left alone."""
    if os.environ.get("REWIRE_SOCKET"):
        dist.init_process_group = dist.distributed_c10d.init_process_group = _init_process_group
        dist.new_group = dist.distributed_c10d.new_group = _new_group
        dist.broadcast_object_list = dist.distributed_c10d.broadcast_object_list = _broadcast_object_list
        dist.all_gather_object = dist.distributed_c10d.all_gather_object = _all_gather_object
