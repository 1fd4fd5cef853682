"""The job's progress besides its tensors in place: schedules, positions in the data, buffers, random numbers.

After a loss every survivor goes back to a version of the state. Rewire restores the registered tensors, and each
survivor the rest, from what it has kept of the last versions. It then repeats the batches since the version: more than
one where a GradScaler has skipped a step. A joiner receives one member's values.
Owned by the training thread.
"""
import hashlib
import pickle
from typing import Any, Dict, List, Optional

import torch

__all__ = ["Progress"]

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_KEPT = 3  # Rewire restores the newest version that the survivors have in common, of the last two or three


def _copies(values: Dict[str, Any]) -> Dict[str, Any]:
    """A learning rate may be a tensor, which schedules fill in place."""
    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in values.items()}


def _hyperparameters(optimizer: torch.optim.Optimizer) -> List[Dict[str, Any]]:
    return [_copies({key: value for key, value in group.items() if key != "params"})
            for group in optimizer.param_groups]


def _numbers(options: Any) -> Any:
    """Returns options without the objects in them, whose texts may differ between processes."""
    if isinstance(options, dict):
        return {key: _numbers(value) for key, value in options.items()}
    if isinstance(options, (list, tuple)):
        return [_numbers(value) for value in options]
    if isinstance(options, torch.Tensor):
        return options.tolist()
    return options if isinstance(options, (bool, int, float, complex, str)) else None


def _between_loops(values: Dict[str, Any]) -> str:
    """Returns what a script may change between two loops, as a text to compare. Steps alone change a scale."""
    return repr(_numbers({name: value for name, value in values.items() if name not in ("taken", "scaler")}))


def _on_host(tensors: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """A joiner's device may have another number."""
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}


def _plain(state: Any) -> Any:
    """Returns a copy of a state_dict() without functions, such as OneCycleLR's. They are the same on each member, or a
    joiner finds the difference (joining.py)."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items() if not callable(value)}
    if isinstance(state, list):
        return [_plain(value) for value in state]
    return state


class Progress:
    """`version` is the number of updates so far. stateful: what the program changes between two updates, by name,
    each with state_dict() and load_state_dict(). position: of the data, with the same methods."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, stateful: Dict[str, Any],
                 position: Any) -> None:
        self._model, self._optimizer, self._stateful, self._position = model, optimizer, stateful, position
        self._after: Dict[str, Any] = {}  # what forward and backward change, of the last update's end
        self._past: Dict[int, Dict[str, Any]] = {}  # the same, by version
        # The values that the program changes between two updates, by the version before: at the begin of its step, and
        # of the first batch.
        self._program: Dict[int, Dict[str, Any]] = {}
        self._batches: Dict[int, Dict[str, Any]] = {}
        # The same where the script has changed them between two loops, by the number of the second one's first batch.
        self._loops: Dict[int, Dict[str, Any]] = {}
        self._loop_end: Optional[Dict[str, Any]] = None  # until the next loop's first batch

    @property
    def loops(self) -> int:
        """The number of loops over the data that the script has begun."""
        return 0 if self._position is None else int(self._position.loops)

    def after_update(self) -> None:
        """Keeps what forward and backward change. Call at the end of each update, and before the first step."""
        self._after = {
            "buffers": {name: buffer.clone() for name, buffer in self._model.named_buffers()},
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        }
        if self._position is not None:
            self._after["position"] = self._position.state_dict()

    def end_loop(self, lacks: bool) -> None:
        """Call where a loop over the data ends. lacks: this member will receive the program's values."""
        self._loop_end = None if lacks else self._program_values()

    def begin_batch(self, version: int, number: int) -> None:
        """Call where a batch begins after `version`. The first repeated batch gets the scale, the learning rate and so
        on that it had the first time. From there on the scale follows from the repeated batches, because a reduction
        that was lost may have overflowed here alone. The first batch of a loop gets what the script has changed before
        it: a member that had begun the loop does not change it again."""
        first = self._batches.get(version)
        if first is not None and first["taken"] == number:
            self._restore_program(first)
        elif number in self._loops:
            self._restore_program(self._loops[number], but="scaler")
        elif self._loop_end is not None:
            values = self._program_values()
            if _between_loops(values) != _between_loops(self._loop_end):
                self._loops[number] = values
        self._loop_end = None
        if first is None:
            self._batches[version] = self._program_values()

    def begin_step(self, version: int, lacks: bool) -> None:
        """Call at the begin of the step after `version`. A repeated step gets the learning rate and so on that it had
        the first time, where it is that of the same batch. lacks: this member will receive them."""
        kept = self._program.get(version)
        if kept is not None and kept["taken"] == self._taken():
            self._restore_program(kept)
        elif not lacks:
            self._program[version] = self._program_values()
        self._forget(self._program, version)
        self._forget(self._batches, version)
        oldest = min((past["position"]["taken"] for past in self._past.values() if "position" in past), default=0)
        for old in [number for number in self._loops if number < oldest]:
            del self._loops[old]

    @staticmethod
    def _forget(kept: Dict[int, Any], version: int) -> None:
        for old in [v for v in kept if v <= version - _KEPT]:
            del kept[old]

    def _taken(self) -> int:
        return 0 if self._position is None else int(self._position.taken)

    def _program_values(self) -> Dict[str, Any]:
        return {
            "taken": self._taken(),
            "hyperparameters": _hyperparameters(self._optimizer),
            **{name: _plain(thing.state_dict()) for name, thing in self._stateful.items()},
        }

    def keep(self, version: int) -> None:
        """Keeps the values of a version. Call at the begin of the update after it."""
        self._past[version] = self._after
        self._forget(self._past, version)

    def back_to(self, version: int, present: int) -> None:
        """Restores the values of a version; `present`: the version before this call. Raises KeyError for a version
        that is not kept."""
        if self._position is not None:  # else these say what the script has done since
            for later in [v for v in (*self._program, *self._batches) if v > version]:
                self._program.pop(later, None)
                self._batches.pop(later, None)
        if version == present + 1:
            # Others had finished the update of this step, and Rewire has restored their tensors. The forward pass
            # of the step has been here too.
            self.after_update()
            return
        if version != present:
            self._after = self._past[version]
        self._restore_forward(self._after)
        torch.set_rng_state(self._after["random"])
        if self._after["random_cuda"] is not None:
            torch.cuda.set_rng_state(self._after["random_cuda"])

    def _restore_forward(self, values: Dict[str, Any]) -> None:
        with torch.no_grad():
            for name, buffer in self._model.named_buffers():
                buffer.copy_(values["buffers"][name])
        if self._position is not None:
            self._position.load_state_dict(values["position"])

    def _restore_program(self, values: Dict[str, Any], but: str = "") -> None:
        for name, thing in self._stateful.items():
            if name != but:
                thing.load_state_dict(_plain(values[name]))
        for group, kept in zip(self._optimizer.param_groups, values["hyperparameters"]):
            group.update(_copies(kept))

    # ---- joiners -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises TypeError where the values could not be sent to a joiner. Call before a joiner needs them."""
        for values in (self._after, *self._program.values(), *self._batches.values()):
            for name, value in values.items():
                try:
                    pickle.dumps(value)
                except (pickle.PicklingError, TypeError, AttributeError) as error:
                    raise TypeError(f"{name}: cannot be sent to a member that joins: {error}") from error

    def pack(self, version: int, whole: bool) -> bytes:
        """Returns this member's values in the update after `version`. whole: also those that forward changes."""
        forward: List[Dict[str, Any]] = []
        if whole:
            past = self._past[version]
            # The forward pass of this step has changed these since the version.
            forward = [{"buffers": _on_host(past["buffers"])}, {"buffers": _on_host(dict(self._model.named_buffers()))}]
            if self._position is not None:
                forward[0]["position"], forward[1]["position"] = past["position"], self._position.state_dict()
        return pickle.dumps((version, self._program[version], self._batches.get(version), forward))

    def fingerprint(self, version: int) -> bytes:
        """Returns a hash of the numbers among the options of the optimizer, such as its learning rate."""
        return hashlib.sha256(repr(_numbers(self._program[version]["hyperparameters"])).encode()).digest()

    def parameters_fingerprint(self) -> int:
        """Returns a number that nearly always differs where one bit of the parameters does: a sum of their words."""
        total = 0
        for parameter in self._model.parameters():
            values = torch.view_as_real(parameter) if parameter.is_complex() else parameter
            words = values.detach().view(_WORDS[values.element_size()])
            total += int(words.sum(dtype=torch.int64))
        return (total + 2**63) % 2**64 - 2**63

    def unpack(self, packed: bytes) -> int:
        """Takes another member's values, except for random numbers. Returns the version."""
        version, program, batch, forward = pickle.loads(packed)
        self._program[version] = program
        if batch is not None:
            self._batches[version] = batch
        self._restore_program(program)
        if forward:
            self._restore_forward(forward[0])
            self.after_update()
            self.keep(version)
            self._restore_forward(forward[1])
        return int(version)
