"""The job's progress besides its tensors in place: schedules, positions in the data, buffers, random numbers.

After a loss every survivor goes back to a version of the state. Rewire restores the registered tensors, and each
survivor the rest, from what it has kept of the last versions. A joiner receives one member's present values.
Owned by the training thread.
"""
import pickle
from typing import Any, Dict, List

import torch

__all__ = ["Progress"]

_KEPT = 3  # Rewire restores the newest version that the survivors have in common, of the last two or three


def _hyperparameters(optimizer: torch.optim.Optimizer) -> List[Dict[str, Any]]:
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def _on_host(tensors: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """A joiner's device may have another number."""
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}


def _plain(state: Any) -> Any:
    """Returns a copy of a state_dict() without functions, such as OneCycleLR's, which are the same on each member."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items() if not callable(value)}
    if isinstance(state, list):
        return [_plain(value) for value in state]
    return state


class Progress:
    """`version` is the number of updates so far. position: has state_dict() and load_state_dict(), of the data."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any, position: Any) -> None:
        self._model, self._optimizer = model, optimizer
        self._stateful = {"scheduler": scheduler, "position": position}
        self._stateful = {name: thing for name, thing in self._stateful.items() if thing is not None}
        self._after: Dict[str, Any] = {}  # of the last update's end
        self._past: Dict[int, Dict[str, Any]] = {}  # by version

    def after_update(self) -> None:
        """Keeps what forward and backward change. Call at the end of each update, and before the first step."""
        self._after = {
            "buffers": {name: buffer.clone() for name, buffer in self._model.named_buffers()},
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        }
        position = self._stateful.get("position")
        if position is not None:
            self._after["position"] = position.state_dict()

    def _before_update(self) -> Dict[str, Any]:
        """Returns the values that the program changes between two updates."""
        states = {name: _plain(thing.state_dict()) for name, thing in self._stateful.items() if name != "position"}
        return {"hyperparameters": _hyperparameters(self._optimizer), **states}

    def keep(self, version: int) -> None:
        """Keeps the values of a version. Call at the begin of the update after it."""
        self._past[version] = {**self._after, **self._before_update()}
        for old in [v for v in self._past if v <= version - _KEPT]:
            del self._past[old]

    def back_to(self, version: int, present: int) -> None:
        """Restores the values of a version; `present`: the version before this call. Raises KeyError for a version
        that is not kept."""
        if version == present:  # the program's values are still those after the update
            self._restore({**self._after, **self._before_update()})
            return
        if version == present + 1:
            # Others had finished the update of this step, and Rewire has restored their tensors. The forward pass
            # of the step has been here too; what is missing is the schedule's step.
            if "scheduler" in self._stateful:
                self._stateful["scheduler"].step()
            self.after_update()
            return
        self._restore(self._past[version])
        for newer in [v for v in self._past if v > version]:
            del self._past[newer]
        self._after = {name: self._past[version][name] for name in self._after}

    def _restore(self, values: Dict[str, Any]) -> None:
        self._restore_forward(values)
        if values["random"] is not None:
            torch.set_rng_state(values["random"])
        if values["random_cuda"] is not None:
            torch.cuda.set_rng_state(values["random_cuda"])
        self._restore_program(values)

    def _restore_forward(self, values: Dict[str, Any]) -> None:
        with torch.no_grad():
            for name, buffer in self._model.named_buffers():
                buffer.copy_(values["buffers"][name])
        if "position" in self._stateful:
            self._stateful["position"].load_state_dict(values["position"])

    def _restore_program(self, values: Dict[str, Any]) -> None:
        for name, thing in self._stateful.items():
            if name != "position":
                thing.load_state_dict(_plain(values[name]))
        for group, kept in zip(self._optimizer.param_groups, values["hyperparameters"]):
            group.update(kept)

    def pack(self, version: int) -> bytes:
        """Returns this member's values for a joiner, at the begin of the update after `version`. Random numbers are
        each member's own."""
        past = self._past[version]
        values = dict(past, random=None, random_cuda=None, buffers=_on_host(past["buffers"]))
        # The forward pass of this step has changed these since.
        now: Dict[str, Any] = {"buffers": _on_host(dict(self._model.named_buffers()))}
        if "position" in self._stateful:
            now["position"] = self._stateful["position"].state_dict()
        return pickle.dumps((version, values, now))

    def check(self) -> None:
        """Raises TypeError where the values could not be sent to a joiner. Call before a joiner needs them."""
        for name, value in {**self._after, **self._before_update()}.items():
            try:
                pickle.dumps(value)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                raise TypeError(f"{name}: cannot be sent to a member that joins: {error}") from error

    def unpack(self, packed: bytes) -> int:
        """Takes another member's values. Returns the version."""
        version, values, now = pickle.loads(packed)
        self._restore(values)
        self.after_update()
        self.keep(version)
        self._restore_forward(now)
        return int(version)
