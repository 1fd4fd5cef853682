"""torch.cuda.amp.GradScaler in a job: its scale is the same on all members. Owned by the training thread."""
import gc
from typing import Any

from torch.cuda.amp import GradScaler

__all__ = ["advance", "exists"]


def exists() -> bool:
    """Returns whether the script has made a scaler that scales: nothing else tells that one belongs to an optimizer."""
    base = GradScaler.__mro__[-2]  # torch.amp.GradScaler, where there is one
    return any(issubclass(type(thing), base) and thing.is_enabled() for thing in gc.get_objects())


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
