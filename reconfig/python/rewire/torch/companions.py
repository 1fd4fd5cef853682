"""The schedules and the loss scalers of a script, whose state is part of the job's. Owned by the training thread."""
import gc
from typing import Any, List

import torch
from torch.cuda.amp import GradScaler

__all__ = ["advance", "made", "scalers", "schedules"]

_SCALER = GradScaler.__mro__[-2]  # torch.amp.GradScaler, where there is one


def made(kind: type) -> List[Any]:
    """Returns the objects of a kind that the script has now."""
    gc.collect()
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def scalers() -> List[Any]:
    return [scaler for scaler in made(_SCALER) if scaler.is_enabled()]


def schedules(optimizer: torch.optim.Optimizer) -> List[Any]:
    """Returns the schedules of an optimizer, without those that are parts of another one."""
    found = [thing for thing in made(object) if type(thing).__module__ == "torch.optim.lr_scheduler"
             and getattr(thing, "__dict__", {}).get("optimizer") is optimizer]
    parts = {id(part) for schedule in found for part in getattr(schedule, "_schedulers", ())}
    return [schedule for schedule in found if id(schedule) not in parts]


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
