"""A PyTorch training script whose world changes while it trains.

    job = rewire.torch.Job(model, optimizer, data=loader, scheduler=scheduler)
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()      # reduces the gradients
        job.step()                        # in place of optimizer.step() and scheduler.step()

The first step is the script's own; from the second on, step() is an update boundary (rewire/rewire.h). Everything
is owned by the training thread.
"""
import contextlib
import ctypes
from typing import Any, Callable, ContextManager, Optional

import torch

from ..nccl import NcclError, Operation
from ..world import Change, Kind, Outcome, World
from . import data as data_module
from .process import process
from .progress import Progress
from .reduction import BUCKET_BYTES, Reduction
from .tensors import StateError, StateTensors

__all__ = ["Job", "Left", "StateError"]


class Left(SystemExit):
    """Raised by step() where this member has left the world: the process ends with status 0."""


class Job:
    """model, optimizer: the script's; the model is on its device. scheduler: step() steps it once for each update.
    data: a DataLoader with a DistributedSampler; loops over it then follow the world. on_world: called with the
    world after each change of it, in step(). reduce=False: the script reduces the gradients itself. exact,
    bucket_bytes: see Reduction.

    A joiner enters the world in this call, with the others' state.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        data: Optional["torch.utils.data.DataLoader[Any]"] = None,
        scheduler: Any = None,
        on_world: Optional[Callable[[World], Any]] = None,
        reduce: bool = True,
        exact: bool = False,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._process = process()
        self.world = self._process.member.world
        self._optimizer, self._scheduler = optimizer, scheduler
        self._scheduled = None if scheduler is None else scheduler.last_epoch
        self._reduction = Reduction(model, bucket_bytes, exact) if reduce else None
        self._on_world = on_world
        self._position: Optional[data_module.Position] = None
        if data is not None:
            self._position = data_module.follow(data, self.world.slots, self.world.slot, self._on_batch)
        self._progress = Progress(model, optimizer, scheduler, self._position)
        self._tensors = StateTensors(model, optimizer)
        self._version = (ctypes.c_uint64 * 1)(0)  # restored by Rewire
        self._known = 0  # the version that Python's values are of
        self._registered = False
        self._changed = False  # the world, in the present update
        self._joining = self.world.joining
        if self._joining:
            self._tensors.materialize()
            self._register()
            self._process.connect()  # by the build of this world
            self._enter_world()
        else:
            self._process.connect()

    def _enter_world(self) -> None:
        on_world, self._on_world = self._on_world, None
        self._take(self._process.member.update(self._apply))
        self._on_world = on_world

    def no_sync(self) -> ContextManager[None]:
        """Backward passes inside accumulate their gradients without a reduction."""
        return contextlib.nullcontext() if self._reduction is None else self._reduction.no_sync()

    @property
    def steps(self) -> int:
        """The number of updates that the job has applied."""
        return int(self._version[0])

    def _on_batch(self, number: int) -> None:
        if self._reduction is not None and self._position is not None:
            self._reduction.weight = self._position.share(number)

    def _register(self) -> None:
        member = self._process.member
        member.set_parallel(on_world=self._enter)
        member.register("rewire.torch/version", self._version, Change.VOLATILE)
        self._tensors.register(member)
        self._registered = True

    def _enter(self, world: World) -> None:
        self._changed = True
        self.world = world
        if self._position is not None:
            self._position.set_world(world.slots, world.slot)

    # ---- a step ------------------------------------------------------------------------------------------------

    def step(self, closure: Any = None) -> Outcome:
        """Applies the update, in place of optimizer.step() and scheduler.step(). After the loss of a member
        the outcome is Kind.REPEAT: the state is that of this step or an earlier one, and a loop over `data` goes on
        from there. Raises Left where this member leaves the world."""
        if closure is not None:
            raise TypeError("step(closure): an optimizer that evaluates the model in its step is not supported")
        if self._scheduler is not None and self._scheduler.last_epoch != self._scheduled:
            raise StateError("scheduler.step(): was called outside job.step(), which steps the schedule itself")
        error = self._reduction.take_error() if self._reduction is not None else None
        if not self._registered:
            if error is not None:
                raise error
            return self._first()
        if error is None:
            self._tensors.check()
            try:
                return self._take(self._process.member.update(self._apply))
            except NcclError:
                pass
        return self._take(self._process.member.recover())

    def _first(self) -> Outcome:
        """The script's own step, without a boundary: the optimizer makes its state in it."""
        self._progress.after_update()
        self._optimize()
        self._version[0] = self._known = 1
        self._register()
        self._progress.after_update()
        self._progress.check()
        return Outcome(Kind.CONTINUE, self.world, 0, 0, 0)

    def _optimize(self) -> None:
        self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()
            self._scheduled = self._scheduler.last_epoch

    def _apply(self) -> None:
        """The update. Where members have joined, they first get what they lack from one that has it."""
        if not self._joining:
            self._progress.keep(self.steps)
        if self._changed:
            self._share_with_joiners()
        self._optimize()
        self._version[0] += 1
        self._known = self.steps
        self._progress.after_update()
        self._process.synchronize()
        self._changed = self._joining = False

    def _take(self, outcome: Outcome) -> Outcome:
        self.world = outcome.world
        if outcome.kind is Kind.LEAVE:
            raise Left(0)
        if outcome.kind is Kind.REPEAT:
            if self._joining:
                raise StateError("a member was lost in the step in which this member joined: it has no state yet")
            self._changed = False
            self._progress.back_to(self.steps, self._known)
            self._known = self.steps
            if self._scheduler is not None:
                self._scheduled = self._scheduler.last_epoch
            if self._reduction is not None:
                self._reduction.drop()
            else:
                self._optimizer.zero_grad()
        if outcome.kind in (Kind.WORLD_CHANGED, Kind.REPEAT) and self._on_world is not None:
            self._on_world(outcome.world)
        return outcome

    # ---- joiners -----------------------------------------------------------------------------------------------

    def _share_with_joiners(self) -> None:
        """Sends the gradients and Python's values from a slot that has them, if a member has joined."""
        here = self._process
        slots = self.world.slots
        lowest = here.empty(2, torch.int64)
        lowest[0] = slots if self._joining else self.world.slot
        lowest[1] = 0 if self._joining else 1
        here.all_reduce(lowest, Operation.MIN)
        here.wait()
        root, all_have = int(lowest[0]), bool(lowest[1])
        if all_have:
            return
        packed = b"" if self._joining else self._progress.pack(self.steps)
        header = here.empty(1, torch.int64)
        header[0] = len(packed)
        here.broadcast(header, root)
        here.wait()
        content = here.empty(int(header[0]), torch.uint8)
        if self.world.slot == root:
            content.copy_(torch.frombuffer(bytearray(packed), dtype=torch.uint8))
        here.broadcast(content, root)
        here.wait()
        if self._joining:
            self._version[0] = self._progress.unpack(content.cpu().numpy().tobytes())
        self._share_gradients(root)

    def _share_gradients(self, root: int) -> None:
        here = self._process
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        has = here.empty(len(parameters), torch.uint8)
        for index, parameter in enumerate(parameters):
            has[index] = 0 if parameter.grad is None else 1
        here.broadcast(has, root)
        here.wait()
        for index, parameter in enumerate(parameters):
            if not has[index]:
                continue
            copy = here.empty(parameter.numel(), parameter.dtype)
            if not self._joining and parameter.grad is not None:
                copy.copy_(parameter.grad.reshape(-1))
            here.broadcast(copy, root)
            here.wait()
            if self._joining:
                parameter.grad = copy.view_as(parameter)
