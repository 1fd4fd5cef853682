"""A PyTorch training script whose world changes while it trains.

    job = rewire.torch.Job(model, optimizer, data=loader, scheduler=scheduler)

Job takes over optimizer.step(), which the script goes on to call, and the loops over `data`. The first step is the
script's own; from the second on, a step is an update boundary (rewire/rewire.h). Everything is owned by the training
thread.
"""
import contextlib
import ctypes
import functools
import types
from typing import Any, Callable, ContextManager, Dict, Optional

import torch

from ..nccl import NcclError
from ..world import Change, Kind, Outcome, World
from . import data as data_module
from . import companions, parallel
from .collectives import collectives
from .joining import Joining
from .process import process
from .progress import Progress
from .reduction import BUCKET_BYTES, Reduction
from .sharded import ShardedOptimizer
from .tensors import StateError, StateTensors, refuse_differences

__all__ = ["Job", "Left", "StateError"]


class Left(SystemExit):
    """Raised by the step in which this member has left the world: the process ends with status 0."""


class Job:
    """Connects a script's objects to the job. In a joiner, the constructor enters the world and receives the state.

    model: on its device. A DistributedDataParallel of its parameters is taken over. optimizer: the script's. data: a
    DataLoader with a DistributedSampler; loops over it then follow the world. scheduler: the schedule of the learning
    rate. scaler: a GradScaler. The script steps scheduler and scaler as without Rewire. on_world: called with the new
    world, in a step, after each change but this member's own join. reduce=False: the script reduces the gradients
    itself. exact, bucket_bytes: see Reduction.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        data: Optional["torch.utils.data.DataLoader[Any]"] = None,
        scheduler: Any = None,
        scaler: Any = None,
        on_world: Optional[Callable[[World], Any]] = None,
        reduce: bool = True,
        exact: bool = False,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model: must be a torch.nn.Module, not a {type(model).__name__}")
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"optimizer: must be one torch.optim.Optimizer, not a {type(optimizer).__name__}")
        self._process = process()
        self.world = self._process.member.world
        self._optimizer = optimizer
        if isinstance(optimizer, ShardedOptimizer):
            optimizer.in_job = True
        if getattr(optimizer.step, "_rewire", False):
            raise StateError("optimizer: belongs to another Job")
        self._refuse_unknown = functools.partial(companions.refuse_unknown, model, optimizer, scheduler, scaler)
        self._refuse_unknown()
        if reduce:
            self._process.check_devices(model)
        if not self.world.joining:
            refuse_differences(model, optimizer)
        self._reduction = Reduction(model, bucket_bytes, exact) if reduce else None
        self._take_over_parallel = functools.partial(parallel.take_over, model, self._reduction)
        self._take_over_parallel()
        self._on_world = on_world
        self._position: Optional[data_module.Position] = None
        if data is not None:
            self._position = data_module.follow(data, self.world.slots, self.world.slot, self._on_batch,
                                                self._on_loop_end)
        stateful: Dict[str, Any] = {"scheduler": scheduler, "scaler": scaler}
        stateful = {name: thing for name, thing in stateful.items() if thing is not None}
        self._progress = Progress(model, optimizer, stateful, self._position)
        self._tensors = StateTensors(model, optimizer)
        self._version = (ctypes.c_uint64 * 1)(0)  # a registered tensor: Rewire restores it after a loss
        self._known = 0  # the version of the values that are in no registered tensor (Progress)
        self._registered = False
        self._stepped = False  # since the last batch
        self._scaled = scaler is not None  # a scaler skips steps
        self._batches = 0  # of this loop since the last step
        self._per_step = 0  # batches of the first step
        self._joining = Joining(self._progress, optimizer, self.world.joining, data is not None)
        self._update = self._take_over(optimizer)
        if self.world.joining:
            self._tensors.materialize(self._update)
            self._register()
            self._process.connect()  # by the build of this world
            self._enter_world()
            if not self._joining.serve():
                raise Left(0)
            companions.advance(scaler)
            # The script of this member has not had the step, after which it may set its gradients to zero.
            self._drop_gradients()
        else:
            self._process.connect()

    def _take_over(self, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        """Makes optimizer.step() this job's step. Returns the optimizer's own."""
        update: Callable[..., Any] = optimizer.step

        @functools.wraps(update)  # with the marks that schedules look for
        def step(_: torch.optim.Optimizer, *arguments: Any, **options: Any) -> None:
            self.step(*arguments, **options)

        setattr(step, "_rewire", True)
        # A method, because a schedule that is made later asks for its object.
        setattr(optimizer, "step", types.MethodType(step, optimizer))
        return update

    def _enter_world(self) -> None:
        on_world, self._on_world = self._on_world, None
        self._take(self._process.member.update(self._apply))
        self._on_world = on_world

    def no_sync(self) -> ContextManager[None]:
        """Backward passes inside accumulate their gradients without a reduction."""
        return contextlib.nullcontext() if self._reduction is None else self._reduction.no_sync()

    def reclaim(self, within_s: float) -> None:
        """Has this member leave the world within the time, as SIGTERM does within 120 s: a later step raises Left. Any
        thread and a signal's handler may call this."""
        self._process.member.reclaim(within_s)

    @property
    def steps(self) -> int:
        """The number of updates that the job has applied."""
        return int(self._version[0])

    def _on_batch(self, number: int) -> None:
        self._stepped = False
        self._batches += 1
        collectives().next_batch()
        self._progress.begin_batch(self.steps, number)
        if self._reduction is not None and self._position is not None:
            self._reduction.begin_batch(self._position.share(number))

    def _on_loop_end(self) -> None:
        self._batches = 0
        self._progress.end_loop(self._joining.lacks_program)
        collectives().end_loop(self._progress.loops)

    def _register(self) -> None:
        self._process.trains = True
        member = self._process.member
        if isinstance(self._optimizer, ShardedOptimizer):
            sharded = self._optimizer
            member.set_parallel(zero_stage=1, on_world=self._enter, allocate=sharded.allocate, adopt=sharded.adopt,
                                discard=sharded.discard)
        else:
            member.set_parallel(on_world=self._enter)
        member.register("rewire.torch/version", self._version, Change.VOLATILE)
        self._tensors.register(member)
        self._registered = True

    def _enter(self, world: World) -> None:
        self._joining.expect()
        self.world = world
        if isinstance(self._optimizer, ShardedOptimizer):
            self._optimizer.set_world(world)
        if self._position is not None:
            self._position.set_world(world.slots, world.slot)

    # ---- a step ------------------------------------------------------------------------------------------------

    def step(self, closure: Any = None, **options: Any) -> Outcome:
        """Applies the update; optimizer.step() calls this. Kind.REPEAT: a member was lost; the state is that of this
        step or of an earlier one, and a loop over `data` continues from there. Raises Left in the step in which this
        member leaves the world. options: those of optimizer.step()."""
        if closure is not None:
            raise TypeError("step(closure): an optimizer that evaluates the model in its step is not supported")
        if self._stepped and self._position is not None:
            raise StateError("step(): the batch has had its step: with data= a batch has at most one, because the "
                             "position in the data tells which step is repeated (a loop that takes the next batch "
                             "before the step of this one is not supported)")
        self._stepped = True
        self._check_batches()
        if self._reduction is not None:
            self._reduction.check()
        error = self._process.take_error()
        self._progress.begin_step(self.steps, self._joining.lacks_program)
        if not self._registered:
            if error is not None:
                raise error
            return self._first(options)
        if error is None:
            self._tensors.check()
            try:
                return self._take(self._process.member.update(functools.partial(self._apply, **options)))
            except NcclError:
                self._process.take_error()
        return self._take(self._process.member.recover())

    def _check_batches(self) -> None:
        """Raises StateError for a step after fewer batches than the first one: a joiner, which counts the batches of
        its first loop from 0, would not make it with the others."""
        batches, self._batches = self._batches, 0
        self._per_step = self._per_step or batches
        if self._position is not None and not self._scaled and batches < self._per_step:
            raise StateError(f"step(): after {batches} of {self._per_step} batches: with data= each step takes the "
                             "same number of batches; leave out the shorter one at the end of a loop")

    def _first(self, options: Dict[str, Any]) -> Outcome:
        """Runs the script's first step without an update boundary, because the optimizer makes its state in it."""
        if self._process.trains:
            raise StateError("Job: another Job of this process trains already: must be one, for one model and one "
                             "optimizer")
        self._refuse_unknown()
        self._take_over_parallel()  # one that the script has made after Job
        if self._reduction is not None:
            self._reduction.check_new()
        self._progress.after_update()
        self._progress.check()
        self._update(**options)
        self._version[0] = self._known = 1
        self._register()
        self._progress.after_update()
        return Outcome(Kind.CONTINUE, self.world, 0, 0, 0)

    def _apply(self, **options: Any) -> None:
        """Applies the update. A joiner first receives its missing values from a member that has them."""
        if not self._joining.lacks_all:
            self._progress.keep(self.steps)
        received = self._joining.share(self.world, self.steps)
        if received is not None:
            self._version[0] = received
        self._update(**options)
        self._version[0] += 1
        self._known = self.steps
        self._progress.after_update()
        self._process.synchronize()
        self._joining.applied()

    def _drop_gradients(self) -> None:
        if self._reduction is not None:
            self._reduction.drop()
        else:
            self._optimizer.zero_grad()

    def _take(self, outcome: Outcome) -> Outcome:
        self.world = outcome.world
        if outcome.kind is Kind.LEAVE:
            raise Left(0)
        if outcome.kind is Kind.REPEAT:
            if self._joining.lacks_all:
                raise StateError("join: a member was lost in this member's first step: this member has no state yet "
                                 "and cannot repeat the step")
            self._joining.repeat()
            if self._position is not None:
                collectives().after_loss(self._progress.loops)
            self._progress.back_to(self.steps, self._known)
            self._known = self.steps
            self._drop_gradients()
        if outcome.kind in (Kind.WORLD_CHANGED, Kind.REPEAT) and self._on_world is not None:
            self._on_world(outcome.world)
        return outcome
