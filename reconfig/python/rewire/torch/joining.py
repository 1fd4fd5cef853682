"""The values that a joiner gets from another member over NCCL, inside its first two updates.

In the first it gets the gradients of the step, and the values that are not in registered tensors. In the second it
gets the learning rates and so on once more: between the two, the others' scripts have stepped their schedules, and
the joiner's script has run from its beginning. Owned by the training thread.
"""
from typing import Optional

import torch

from ..nccl import Operation
from ..world import World
from .collectives import collectives
from .process import process
from .progress import Progress
from .tensors import StateError

__all__ = ["Joining"]

_NOTHING, _PROGRAM, _ALL = 0, 1, 2  # what a member lacks


class Joining:
    def __init__(self, progress: Progress, optimizer: torch.optim.Optimizer, joining: bool, batches: bool) -> None:
        """batches: whether collectives.next_batch() will be called."""
        self._progress, self._optimizer, self._batches = progress, optimizer, batches
        self._lacks = _ALL if joining else _NOTHING
        self._updates = 0  # that begin with a question who lacks something; the same on all members
        self._root = 0  # a member that has given the joiners of the last step what they lacked

    @property
    def lacks_all(self) -> bool:
        return self._lacks == _ALL

    def expect(self) -> None:
        """Call where the world changes, and where a step is repeated."""
        self._updates = 2

    def applied(self) -> None:
        """Call at the end of an update."""
        if self._updates > 0:
            self._updates -= 1
        self._lacks = max(self._lacks - 1, _NOTHING)

    def share(self, world: World, version: int) -> Optional[int]:
        """Call in the update after `version`, in the world of the update. Returns the version that a member that
        lacks everything has received. Raises NcclError where a member is lost."""
        if self._updates == 0:
            return None
        asked = process().empty(2, torch.int64)
        asked[0], asked[1] = self._lacks * world.slots + world.slot, -self._lacks
        process().all_reduce(asked, Operation.MIN)
        self._wait()
        least, root, most = int(asked[0]) // world.slots, int(asked[0]) % world.slots, -int(asked[1])
        if least == _ALL:
            raise StateError("no member is left that has the job's state")
        if least == most:
            return None
        packed = self._progress.pack(version, most == _ALL) if world.slot == root else b""
        packed = self._broadcast(packed, root)
        if most == _ALL:
            self._share_gradients(world.slot == root, root)
            self._root = root
            if self._batches and not self.lacks_all:
                collectives().after_join(root)
        return self._progress.unpack(packed) if self._lacks > least else None

    def serve(self) -> None:
        """Call in a joiner after its first update (collectives.py)."""
        if self._batches:
            collectives().serve(self._root)
        else:
            collectives().next_batch()

    @staticmethod
    def _wait() -> None:
        if not process().wait():
            error = process().take_error()
            assert error is not None
            raise error

    def _broadcast(self, packed: bytes, root: int) -> bytes:
        header = process().empty(1, torch.int64)
        header[0] = len(packed)
        process().broadcast(header, root)
        self._wait()
        content = process().empty(int(header[0]), torch.uint8)
        if packed:
            content.copy_(torch.frombuffer(bytearray(packed), dtype=torch.uint8))
        process().broadcast(content, root)
        self._wait()
        return bytes(content.cpu().numpy())

    def _share_gradients(self, is_root: bool, root: int) -> None:
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        has = process().empty(len(parameters), torch.uint8)
        for index, parameter in enumerate(parameters):
            has[index] = 0 if parameter.grad is None else 1
        process().broadcast(has, root)
        self._wait()
        for index, parameter in enumerate(parameters):
            if not has[index]:
                continue
            copy = process().empty(parameter.numel(), parameter.dtype)
            if is_root and parameter.grad is not None:
                copy.copy_(parameter.grad.reshape(-1))
            process().broadcast(copy, root)
            self._wait()
            if self._lacks == _ALL:
                parameter.grad = copy.view_as(parameter)
