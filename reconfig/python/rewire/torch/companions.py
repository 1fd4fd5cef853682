"""The schedules and the loss scalers of a script, whose state is part of the job's. Owned by the training thread."""
import gc
from typing import Any, List

import torch
from torch.cuda.amp import GradScaler
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel

from .tensors import StateError, parameter_names

__all__ = ["advance", "made", "refuse_unknown", "scalers", "schedules"]

_SCALER = GradScaler.__mro__[-2]  # torch.amp.GradScaler, where there is one
# LRScheduler, where there is one, is a base of _LRScheduler. ReduceLROnPlateau has another base in old versions.
# pylint: disable-next=protected-access
_SCHEDULES = (getattr(lr_scheduler, "LRScheduler", None) or lr_scheduler._LRScheduler,
              lr_scheduler.ReduceLROnPlateau)
_KINDS = (torch.optim.Optimizer, AveragedModel, _SCALER, *_SCHEDULES)


def made(*kinds: type) -> List[Any]:
    """Returns the objects of some kinds that the script has now. Without kinds: of those that Job may refuse."""
    gc.collect()
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds or _KINDS)]


def scalers(things: List[Any]) -> List[Any]:
    return [thing for thing in things if isinstance(thing, _SCALER) and thing.is_enabled()]


def schedules(optimizer: torch.optim.Optimizer, things: List[Any]) -> List[Any]:
    """Returns the schedules of an optimizer, without those that are parts of another one."""
    found = [thing for thing in things
             if isinstance(thing, _SCHEDULES) and getattr(thing, "optimizer", None) is optimizer]
    parts = {id(part) for schedule in found for part in getattr(schedule, "_schedulers", ())}
    return [schedule for schedule in found if id(schedule) not in parts]


def refuse_unknown(model: torch.nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any, scaler: Any) -> None:
    """Raises StateError for an object of the script whose state a joiner would lack."""
    names, things = parameter_names(model, optimizer), made()
    for other in things:
        # A wrapper that passes its calls on has the state of this optimizer, and none of its own.
        if not isinstance(other, torch.optim.Optimizer) or getattr(other, "state", None) is optimizer.state:
            continue
        for group in getattr(other, "param_groups", ()):
            shared = [names[parameter] for parameter in group["params"] if parameter in names]
            if shared:
                raise StateError(f"optimizer: {shared[0]} is trained by an {type(other).__name__} as well: Job takes "
                                 "one optimizer, which may have several groups of parameters")
    others = [other for other in schedules(optimizer, things) if other is not scheduler]
    if others and scheduler is not None:
        raise StateError(f"scheduler=: the optimizer also has a {type(others[0]).__name__}: Job takes one schedule, "
                         "which may be a SequentialLR or a ChainedScheduler")
    if others:
        raise StateError(f"scheduler=: is missing: the optimizer has a {type(others[0]).__name__}, and a joiner needs "
                         "its state (pass it to Job)")
    if scaler is None and scalers(things):
        raise StateError("scaler=: is missing: the script has a GradScaler, and a joiner needs its scale (pass it to "
                         "Job)")
    if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
        raise StateError("scaler=: a fused optimizer unscales gradients in its step: is not supported, because a "
                         "joiner makes its first step without the scaler (use fused=False)")
    if any(isinstance(thing, AveragedModel) for thing in things):
        raise StateError("AveragedModel: its averages change outside the step, and a joiner would have others: is not "
                         "supported (average checkpoints instead)")


def advance(scaler: Any) -> None:
    """Does what the other members' scripts do to their scalers after the step in which this one has joined, by
    scaler.update(): a scale grows after growth_interval steps."""
    state = {} if scaler is None else scaler.state_dict()
    if not state:
        return
    state["_growth_tracker"] += 1
    if state["_growth_tracker"] == state["growth_interval"]:
        state["scale"] *= state["growth_factor"]
        state["_growth_tracker"] = 0
    scaler.load_state_dict(state)
