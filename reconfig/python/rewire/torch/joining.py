"""The values that a joiner gets from another member over NCCL, inside its first updates.

In the first it gets the gradients of the step, and the values that are not in registered tensors. In the second it
gets the learning rates and so on once more: between the two, the others' scripts have stepped their schedules, and
the joiner's script has run from its beginning. In the third it compares its own with another member's. A function of
its schedule may differ, for example one that has the length of the data in the joiner's first world.

The members that lack nothing compare theirs as well. After a loss a script may repeat a step that another one does
not, so a learning rate from the script's own counter differs from then on. All compare their parameters: a script that
changes them after a step has done so without the joiner.

Owned by the training thread.
"""
from typing import List, Optional

import torch

from ..nccl import NcclError
from ..world import World
from .collectives import collectives
from .process import process
from .progress import Progress
from .tensors import StateError

__all__ = ["Joining"]

_NOTHING, _COMPARISON, _PROGRAM, _ALL = 0, 1, 2, 3  # what a member lacks


class Joining:
    def __init__(self, progress: Progress, optimizer: torch.optim.Optimizer, joining: bool, batches: bool) -> None:
        """batches: whether collectives.next_batch() will be called."""
        self._progress, self._optimizer, self._batches = progress, optimizer, batches
        self._lacks = _ALL if joining else _NOTHING
        self._updates = 0  # that begin with a question who lacks something; the same on all members
        self._compared = False
        self._repeats = False
        self._root = 0  # the member that has given the joiners of the last step what they lacked

    @property
    def lacks_all(self) -> bool:
        return self._lacks == _ALL

    @property
    def lacks_program(self) -> bool:
        return self._lacks >= _PROGRAM

    def expect(self) -> None:
        """Call where the world changes, and where a step is repeated."""
        self._updates = 3

    def repeat(self) -> None:
        """Call where a step is repeated. It may be that in which this member has joined, and in the step after it the
        others have the values of their schedules that this member's script has not made."""
        self.expect()
        self._repeats = self.lacks_program

    def applied(self) -> None:
        """Call at the end of an update."""
        if self._updates > 0:
            self._updates -= 1
        repeats, self._repeats = self._repeats, False
        if (self._lacks > _COMPARISON and not repeats) or (self._lacks == _COMPARISON and self._compared):
            self._lacks -= 1

    def share(self, world: World, version: int) -> Optional[int]:
        """Call in the update after `version`, in the world of the update. Returns the version that a member that
        lacks everything has received. Raises NcclError in a member that lacks something where a member is lost. The
        others can apply the update, and keep the error for the next step."""
        if self._updates == 0:
            return None
        try:
            return self._share(world, version)
        except NcclError as error:
            if self.lacks_program:
                raise
            process().keep_error(error)
            return None

    def _share(self, world: World, version: int) -> Optional[int]:
        rows = self._ask(world, version)
        lacks = [row[0] for row in rows]
        least, most = min(lacks), max(lacks)
        # Joiners have begun no loop yet.
        collectives().loops = max((loops for lack, loops, _, _ in rows if lack < _ALL), default=0)
        if least == _ALL:
            raise StateError("no member is left that has the job's state: at least one must stay in each change")
        self._compare_parameters(rows, world.slot, least)
        alike = [row[2] for row in rows if row[0] == least]
        usual = max(alike, key=alike.count)  # the lowest slot's, if several are as frequent
        if self._lacks == least == _NOTHING and rows[world.slot][2] != usual:
            raise StateError("this member's learning rate, or another option of the optimizer, is not that of most "
                             "members: the script, or the optimizer, counted a repeated step twice (docs/torch.md)")
        root = next(slot for slot, row in enumerate(rows) if row[0] == least and row[2] == usual)
        if least == most:
            return None
        if most == _COMPARISON:
            self._compare(root, version)
            return None
        packed = self._progress.pack(version, most == _ALL) if world.slot == root else b""
        packed = process().broadcast_bytes(packed, root)
        if most == _ALL:
            self._share_gradients(world.slot == root, root)
            self._root = root
            if self._batches and not self.lacks_all:
                collectives().after_join(root, [slot for slot, lack in enumerate(lacks) if lack == _ALL])
        return self._progress.unpack(packed) if self._lacks > max(least, _COMPARISON) else None

    def _ask(self, world: World, version: int) -> List[List[int]]:
        """Returns for each slot what its member lacks, the loops over the data that its script has begun, and hashes of
        the optimizer's options and of the parameters."""
        fingerprint = b"" if self.lacks_program else self._progress.fingerprint(version)[:8]
        own = int.from_bytes(fingerprint, "little", signed=True)
        parameters = 0 if self.lacks_all else self._progress.parameters_fingerprint()
        mine = process().empty(4, torch.int64)
        mine.copy_(torch.tensor([self._lacks, self._progress.loops, own, parameters]))
        everything = process().empty(4 * world.slots, torch.int64)
        process().all_gather(mine, everything)
        process().wait_or_raise()
        rows: List[List[int]] = everything.view(-1, 4).tolist()
        return rows

    def _compare_parameters(self, rows: List[List[int]], slot: int, least: int) -> None:
        """Raises StateError in a member whose parameters are not those of most members that lack nothing."""
        hashes = [row[3] for row in rows if row[0] == least]
        if self.lacks_all or rows[slot][3] == max(hashes, key=hashes.count):
            return
        raise StateError("this member's parameters are not those of the others: the script has changed them after a "
                         "step, in some members and not in others: parameters change in the step only (docs/torch.md)")

    def _compare(self, root: int, version: int) -> None:
        mine = self._progress.fingerprint(version)
        theirs = process().broadcast_bytes(mine, root)
        self._compared = True
        if self._lacks == _COMPARISON and theirs != mine:
            raise StateError("this member's learning rate, or another option of the optimizer, is not that of the "
                             "others: a function of its schedule gives another value (docs/torch.md)")

    def serve(self) -> bool:
        """Call in a joiner after its first update (collectives.py). Returns whether training goes on."""
        if self._batches:
            return collectives().serve(self._root)
        collectives().next_batch()
        return True

    def _share_gradients(self, is_root: bool, root: int) -> None:
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        has = process().empty(len(parameters), torch.uint8)
        for index, parameter in enumerate(parameters):
            has[index] = 0 if parameter.grad is None else 1
        process().broadcast(has, root)
        process().wait_or_raise()
        for index, parameter in enumerate(parameters):
            if not has[index]:
                continue
            copy = process().empty(parameter.numel(), parameter.dtype)
            if is_root and parameter.grad is not None:
                copy.copy_(parameter.grad.reshape(-1))
            process().broadcast(copy, root)
            process().wait_or_raise()
            if self._lacks == _ALL:
                parameter.grad = copy.view_as(parameter)
