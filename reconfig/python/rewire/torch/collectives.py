"""The script's own collectives: of its losses, for example, and not of its gradients.

They are complete when they return, and work on copies: where a member is lost, a tensor keeps its values, and the
next step repeats the step. Three cases are special, because not all members run the same code then:

- A joiner's script begins anew. Up to its first batch, its collectives are those of one process.
- The others' scripts go on behind the step in which it joins, perhaps to the end of an epoch. Up to their next batch
  they announce their collectives, and the joiner, inside Job(...), takes part with neutral elements. Where a joiner
  has a slot that others mean by its number, the member that announces stands for it.
- After a loss some members may already be behind the step that others repeat. Up to the next batch, each member's
  collectives are those of one process. So they are at the end of an epoch that another member has left before.

Owned by the training thread.
"""
import enum
import warnings
from typing import Any, Callable, List, Optional

import torch

from ..nccl import Operation
from .process import TYPES, process

__all__ = ["Collectives", "collectives"]


class _Code(enum.IntEnum):
    NEXT_BATCH = 0
    REDUCE = 1
    BROADCAST = 2
    GATHER = 3
    END = 4
    SHARDS = 5


_TYPES = tuple(TYPES)


def _neutral(operation: Operation, dtype: torch.dtype) -> Any:
    if operation is Operation.PROD:
        return 1
    if operation in (Operation.MIN, Operation.MAX):
        limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        return limits.max if operation is Operation.MIN else limits.min  # a float would round int64's
    return 0


class Collectives:
    def __init__(self) -> None:
        self.entering = process().member.world.joining  # until the joiner's script has come to its first batch
        self.alone = self.entering
        self.loops = 0  # over the data, that the member that is farthest has begun
        self._announcing: Optional[int] = None  # the slot that does so
        self._joined: List[int] = []  # slots
        # Gathers the state of a ShardedOptimizer: all members call it together. keep: whether here.
        self.shards: Callable[[bool], None] = lambda keep: None
        process().before_end.append(self._end)

    # ---- changes of the world --------------------------------------------------------------------------------------

    def after_join(self, announcing: int, joined: List[int]) -> None:
        """Call in the step in which others have joined. announcing: a slot that has not joined in it."""
        self._announcing, self._joined = announcing, joined

    def after_loss(self, loops: int) -> None:
        """Call where a step is repeated, on all members. loops: over the data, that the script has begun."""
        self.alone, self._announcing = True, None
        mine, all_of_them = process().empty(1, torch.int64), process().empty(process().member.world.slots, torch.int64)
        mine[0] = loops
        process().all_gather(mine, all_of_them)
        if process().wait():  # else another member was lost, and the next step is repeated too
            self.loops = int(all_of_them.max())

    def next_batch(self) -> None:
        """Call before a batch is given to the script."""
        self._announce(_Code.NEXT_BATCH)
        self._announcing = None
        self.entering = self.alone = False

    def end_loop(self, loops: int) -> None:
        """Call where a loop over the data ends."""
        self.alone = self.alone or loops < self.loops

    def _end(self) -> None:
        self._announce(_Code.END)
        self._announcing = None

    def rank(self) -> int:
        """Returns this member's slot. In a joiner that runs through epochs that are over it is never 0: what rank 0
        does at the end of an epoch, such as a checkpoint, has been done."""
        world = process().member.world
        if self._announcing is not None and 0 in self._joined and world.slot == self._announcing:
            return 0
        return world.slots - 1 if self.entering and world.slot == 0 else world.slot

    def serve(self, announcing: int) -> bool:
        """Takes part, in a joiner, in what the others announce, up to their next batch. Returns whether there is one,
        and not the program's end."""
        while True:
            header = self._header([0, 0, 0, 0], announcing)
            if header is None or header[0] in (_Code.NEXT_BATCH, _Code.END):
                return header is None or header[0] == _Code.NEXT_BATCH
            code, elements, dtype, argument = header
            if code == _Code.SHARDS:  # a joiner has its shard of the state, which nobody else has
                self.shards(False)
                continue
            own = process().empty(elements, _TYPES[dtype])
            if code == _Code.REDUCE:
                own.fill_(_neutral(Operation(argument), own.dtype))
                process().all_reduce(own, Operation(argument))
            elif code == _Code.BROADCAST:
                process().broadcast(own, argument)
            else:
                own.zero_()
                process().all_gather(own, process().empty(elements * process().member.world.slots, own.dtype))
            process().wait()

    def _announce(self, code: _Code, elements: int = 0, dtype: torch.dtype = torch.uint8, argument: int = 0) -> None:
        if self._announcing is not None:
            self._header([code, elements, _TYPES.index(dtype), argument], self._announcing)

    @staticmethod
    def _header(values: List[int], root: int) -> Optional[List[int]]:
        """Returns None where a member was lost."""
        header = process().empty(len(values), torch.int64)
        header.copy_(torch.tensor(values))
        process().broadcast(header, root)
        return [int(value) for value in header] if process().wait() else None

    # ---- the script's ----------------------------------------------------------------------------------------------

    def all_reduce(self, tensor: torch.Tensor, operation: Operation) -> None:
        joined = len(self._joined) if self._announcing is not None else 0
        # A joiner's neutral element would count in NCCL's mean.
        by_hand = operation is Operation.AVERAGE and joined > 0
        members = process().member.world.slots - joined
        reduction = Operation.SUM if by_hand else operation

        def begin(copy: torch.Tensor) -> torch.Tensor:
            self._announce(_Code.REDUCE, copy.numel(), copy.dtype, reduction)
            if by_hand and copy.dtype.is_floating_point:
                copy.div_(members)  # before the sum, which may overflow
            process().all_reduce(copy, reduction)
            return copy

        result = self._run(tensor, begin)
        if result is not None and by_hand and not result.dtype.is_floating_point:
            result.div_(members, rounding_mode="trunc")
        self._take(tensor, result)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        if self._announcing is not None and root in self._joined:
            root = self._announcing

        def begin(copy: torch.Tensor) -> torch.Tensor:
            self._announce(_Code.BROADCAST, copy.numel(), copy.dtype, root)
            process().broadcast(copy, root)
            return copy

        self._take(tensor, self._run(tensor, begin))

    @staticmethod
    def _take(tensor: torch.Tensor, result: Optional[torch.Tensor]) -> None:
        if result is not None:
            tensor.copy_(result.view(tensor.shape))

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the elements of all members, one row for each. As one process: its own row for each. A joiner's
        row is that of the member that announces."""
        slots = process().member.world.slots

        def begin(copy: torch.Tensor) -> torch.Tensor:
            self._announce(_Code.GATHER, copy.numel(), copy.dtype)
            everything = process().empty(slots * copy.numel(), copy.dtype)
            process().all_gather(copy, everything)
            return everything

        result = self._run(tensor, begin)
        if result is None:
            return tensor.reshape(1, -1).expand(slots, -1)
        rows = result.view(slots, -1)
        if self._announcing is not None:
            rows[self._joined] = rows[self._announcing].clone()
        return rows

    def gather_shards(self, to: int) -> bool:
        """Calls `shards` on all members; `to` keeps them, or the member that stands for it. Returns whether they
        gathered."""
        if self.alone:
            return False
        self._announce(_Code.SHARDS)
        if self._announcing is not None and to in self._joined:
            to = self._announcing
        self.shards(process().member.world.slot == to)
        return process().wait() or self._lost()

    def _lost(self) -> bool:
        self.alone = True
        warnings.warn("a member was lost: up to the next batch, collectives of the script give its own values only")
        return False

    def _run(self, tensor: torch.Tensor, begin: Callable[[torch.Tensor], torch.Tensor]) -> Optional[torch.Tensor]:
        """Returns the result, or None where this process is alone."""
        dtype = torch.uint8 if tensor.dtype is torch.bool else tensor.dtype
        if dtype not in _TYPES:
            raise TypeError(f"{dtype}: NCCL has no such type")
        if self.alone or tensor.numel() == 0:
            return None
        copy = process().empty(tensor.numel(), dtype)
        copy.copy_(tensor.reshape(-1))
        result = begin(copy)
        return result if process().wait() or self._lost() else None


_collectives: Optional[Collectives] = None


def collectives() -> Collectives:
    """Returns this process's Collectives."""
    global _collectives  # pylint: disable=global-statement
    if _collectives is None:
        _collectives = Collectives()
    return _collectives
