"""A member of a job whose world changes: the calls of rewire/rewire.h. Needs no array library.

    with Member() as member:                      # attaches; detaches where the block ends well
        part = numpy.zeros(...)
        member.set_parallel(zero_stage=1, on_world=..., allocate=..., adopt=..., discard=...)
        member.register("moments", part, layout=SHARDED, elements=1000)
        while not done:
            gradients = forward_backward()        # raises where a member was lost: member.recover()
            outcome = member.update(apply)        # apply() changes the registered state
            if outcome.kind is Kind.LEAVE:
                break

A block that ends by an exception does not detach: the others notice a lost member and go on without it.
A Member is owned by the training thread. A failed call raises RewireError with the reason.
"""
import ctypes
import enum
import math
import multiprocessing
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, TypeVar, Union

from .layouts import GroupNumbers, layout_text
from .library import Library, RewireError
from .memory import Memory, memory_of

__all__ = ["Change", "Kind", "Layout", "Member", "Memory", "Outcome", "RewireError", "World", "check", "shard"]


class Layout(enum.IntEnum):
    REPLICATED = 0  # each slot has all elements
    SHARDED = 1  # slot s of n has the elements of shard(elements, n, s)
    BY_LAYOUT = 2  # the layout callback says what each slot has


class Change(enum.IntEnum):
    CONSTANT = 0  # changes only inside the update function
    VOLATILE = 1  # may change at any time; copied after each update, so keep it small
    TRANSIENT = 2  # made by forward and backward, used by the update (gradients); not restored after a loss


class Kind(enum.IntEnum):
    CONTINUE = 0  # the update was applied; the world has not changed
    WORLD_CHANGED = 1  # the update was applied in the new world
    REPEAT = 2  # a member was lost; the state is that of an earlier step, and the update was not applied
    LEAVE = 3  # this member is out of the world: exit with status 0


@dataclass(frozen=True)
class World:
    epoch: int  # only ever increases
    slots: int  # members in the world
    slot: int  # this member's rank in the world
    member: int  # this process's id; never changes
    joining: bool  # the others are training; this member enters at its first update()


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    world: World
    pause_ns: int  # the time that the change took inside the call, without the update function
    bytes_in: int  # state that this member received for the change
    bytes_out: int


_u32, _u64, _size, _void, _text = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p


class _World(ctypes.Structure):
    _fields_ = [
        ("size", _size), ("epoch", _u64), ("slots", _u32), ("slot", _u32), ("member", _u32), ("joining", _u32),
    ]

    def value(self) -> World:
        return World(self.epoch, self.slots, self.slot, self.member, self.joining != 0)


class _AttachOptions(ctypes.Structure):
    _fields_ = [("size", _size), ("sigterm_is_reclaim", _u32), ("reserved", _u32)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("size", _size), ("name", _text), ("elements", _u64), ("element_bytes", _u32), ("layout", _u32),
        ("change", _u32), ("memory", _u32), ("data", _void),
    ]


class _Parallel(ctypes.Structure):
    _fields_ = [("size", _size), ("data_parallel", _u32), ("zero_stage", _u32)]


class _Outcome(ctypes.Structure):
    _fields_ = [
        ("size", _size), ("kind", _u32), ("reserved", _u32), ("world", _World), ("pause_ns", _u64),
        ("bytes_in", _u64), ("bytes_out", _u64),
    ]


_ALLOCATE = ctypes.CFUNCTYPE(_void, _void, _text, _u64)
_ADOPT = ctypes.CFUNCTYPE(None, _void, _text, _void, _u64, _u64)
_DISCARD = ctypes.CFUNCTYPE(None, _void, _text, _void)
_ON_WORLD = ctypes.CFUNCTYPE(None, _void, ctypes.POINTER(_World))
_IN_PLACE = ctypes.CFUNCTYPE(ctypes.c_int, _void, _text, _u64, _u64)
_LAYOUT = ctypes.CFUNCTYPE(_void, _void, _u32)
_UPDATE = ctypes.CFUNCTYPE(ctypes.c_int, _void)


class _Callbacks(ctypes.Structure):
    _fields_ = [
        ("size", _size), ("arg", _void), ("allocate", _ALLOCATE), ("adopt", _ADOPT), ("discard", _DISCARD),
        ("on_world", _ON_WORLD), ("in_place", _IN_PLACE), ("layout", _LAYOUT),
    ]


_Struct = TypeVar("_Struct", bound=ctypes.Structure)


def _sized(kind: Type[_Struct], **members: Any) -> _Struct:
    """Returns a struct whose first member is its size."""
    struct: Any = kind(**members)
    struct.size = ctypes.sizeof(kind)
    return struct  # type: ignore[no-any-return]


def shard(elements: int, slots: int, slot: int) -> Tuple[int, int]:
    """Returns the elements [begin, end) that slot `slot` of `slots` has of a sharded tensor."""
    chunk = (elements + slots - 1) // slots
    begin = min(chunk * slot, elements)
    return begin, min(begin + chunk, elements)


def check(library: Optional[str] = None) -> None:
    """Raises where data that this process has synchronised on may be invalid: a loss has aborted its kernels."""
    Library("librewire", "rewireLastError", library).call("rewireCheck")


_UNCHANGED = 0x52570001  # rewireUnchanged


class Unchanged(Exception):
    """apply() may raise this: it failed and has not changed any constant state, so that recover() can keep the
    state. After another exception, a copy is needed. Useful where a reduction comes before the changes."""


# The library calls back into an attached Member and reads the memory that it has registered.
_attached: "List[Member]" = []


class Member:
    """This process in the job. library: the path of librewire.so."""

    def __init__(self, *, sigterm_is_reclaim: bool = True, library: Optional[str] = None) -> None:
        """sigterm_is_reclaim: SIGTERM is a reclaim notice, and update() then gives Kind.LEAVE."""
        self._context = _void()
        if multiprocessing.parent_process() is not None:
            raise RuntimeError(
                "Member: this process is a worker that multiprocessing has started, and not a member of the job "
                "(a worker that is spawned runs the script again: guard it by `if __name__ == '__main__'`)"
            )
        self._library = Library("librewire", "rewireLastError", library)
        self._callbacks = _sized(_Callbacks)
        # Made once, because a callback object per step costs time.
        self._run = _UPDATE(self._run_update)
        self._update: Callable[[], Any] = lambda: None
        self._raised: List[BaseException] = []
        self._registered: Dict[str, Memory] = {}  # keeps their owners
        self._layout: Any = None  # the text that the layout callback has returned
        options = _sized(_AttachOptions, sigterm_is_reclaim=1 if sigterm_is_reclaim else 0)
        self._library.call("rewireAttach", ctypes.byref(options), ctypes.byref(self._context))
        self._last_world = self.world
        _attached.append(self)

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 where: Optional[TracebackType]) -> None:
        well = kind is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        if well and self._context:
            self.detach()

    def detach(self) -> None:
        """Leaves the job: this member has finished. Later calls fail."""
        self._library.call("rewireDetach", self._context)
        self._context = _void()
        _attached.remove(self)

    @property
    def world(self) -> World:
        """The world that this member is in; of a joining member, the world that it will be in."""
        world = _sized(_World)
        self._library.call("rewireWorld", self._context, ctypes.byref(world))
        return world.value()

    def unique_id(self, name: str) -> bytes:
        """Returns 128 bytes for ncclCommInitRank: the same for each member that gives this name."""
        out = ctypes.create_string_buffer(128)
        self._library.call("rewireUniqueId", self._context, name.encode(), out)
        return out.raw

    def group_id(self, name: str, axes: str) -> Tuple[bytes, int, int]:
        """Returns what Communicator() takes for a communicator over this member's group along the axes of the layout
        (rewire.layouts.layout_group): 128 bytes, the number of ranks, the rank. All members call with the same name and
        axes, after set_parallel(), and make the communicator before the next update(). After a change of members it
        spans the group in the new world."""
        group, out = GroupNumbers(size=ctypes.sizeof(GroupNumbers)), ctypes.create_string_buffer(128)
        self._library.call("rewireGroupId", self._context, name.encode(), axes.encode(), ctypes.byref(group), out)
        return out.raw, int(group.ranks), int(group.rank)

    def reclaim(self, within_s: float) -> None:
        """Has this member drained within the time, as SIGTERM does; a later update() gives Kind.LEAVE. Thread-safe.
        Raises RewireError in a process that is in no world."""
        if not 0 < within_s <= 2**32 // 1000:
            raise ValueError(f"within_s={within_s}: must be more than 0 and at most {2**32 // 1000}")
        self._library.call("rewireReclaim", _u32(math.ceil(within_s * 1000)))

    def set_parallel(
        self,
        *,
        zero_stage: int = 0,
        on_world: Optional[Callable[[World], Any]] = None,
        allocate: Optional[Callable[[str, int], Optional[int]]] = None,
        adopt: Optional[Callable[[str, Optional[int], int, int], Any]] = None,
        discard: Optional[Callable[[str, int], Any]] = None,
        in_place: Optional[Callable[[str, int, int], bool]] = None,
        layout: Optional[Callable[[int], Union[None, str, Dict[str, Any]]]] = None,
    ) -> None:
        """zero_stage: 1 for sharded tensors. The callbacks are those of rewireCallbacks_t, with addresses as
        integers; layout returns JSON or what json.dumps() takes. A thread of Rewire's calls allocate, in_place and
        layout while training goes on; an exception in them refuses the change, and is printed. An exception in the
        others is raised by update() or recover()."""
        made = self._callbacks
        if on_world is not None:
            call_world = on_world
            made.on_world = _ON_WORLD(self._kept(lambda _, world: call_world(world.contents.value())))
        if adopt is not None:
            call_adopt = adopt

            def replace(_: Any, name: bytes, *part: Any) -> None:
                self._registered.pop(name.decode(), None)
                call_adopt(name.decode(), *part)

            made.adopt = _ADOPT(self._kept(replace))
        if discard is not None:
            call_discard = discard
            made.discard = _DISCARD(self._kept(lambda _, name, data: call_discard(name.decode(), data)))
        if allocate is not None:
            call_allocate = allocate
            made.allocate = _ALLOCATE(self._printed(lambda _, name, size: call_allocate(name.decode(), size), None))
        if in_place is not None:
            call_in_place = in_place
            made.in_place = _IN_PLACE(
                self._printed(lambda _, name, *part: 1 if call_in_place(name.decode(), *part) else 0, 0))
        if layout is not None:
            call_layout = layout

            def describe(_: Any, slots: int) -> Optional[int]:
                text = call_layout(slots)
                if text is None:
                    return None
                self._layout = ctypes.create_string_buffer(layout_text(text).encode())  # valid until the next call
                return ctypes.addressof(self._layout)

            made.layout = _LAYOUT(self._printed(describe, None))
        parallel = _sized(_Parallel, zero_stage=zero_stage)
        self._library.call("rewireSetParallel", self._context, ctypes.byref(parallel), ctypes.byref(made))

    def register(self, name: str, array: Any, change: Change = Change.CONSTANT,
                 layout: Layout = Layout.REPLICATED, elements: Optional[int] = None) -> None:
        """Registers one tensor: `array` is this member's part of it (memory.py says what it may be), and must
        keep its memory. It is empty where the slot has no part. elements: of the whole tensor, if it is sharded."""
        memory = memory_of(array)
        whole = memory.elements if elements is None else elements
        tensor = _sized(
            _Tensor, name=name.encode(), elements=whole, element_bytes=memory.element_bytes, layout=layout,
            change=change, memory=1 if memory.device else 0, data=memory.address or None,
        )
        if layout == Layout.SHARDED:
            world = self.world
            begin, end = shard(whole, world.slots, world.slot)
            if memory.elements < end - begin:
                raise ValueError(f"{name}: elements={memory.elements}: this member's part has {end - begin}")
        elif memory.elements != whole:
            raise ValueError(f"{name}: elements={whole}: the array has {memory.elements}")
        self._library.call("rewireRegisterTensor", self._context, ctypes.byref(tensor))
        self._registered[name] = memory

    def update(self, apply: Callable[[], Any]) -> Outcome:
        """Passes the update boundary and calls apply(), which changes the registered state; work that it gives
        to a device must be done when it returns. Raises what apply() raises."""
        self._update = apply
        outcome = _sized(_Outcome)
        return self._outcome("rewireUpdate", outcome, self._run, None)

    def recover(self) -> Outcome:
        """Waits until the world is whole again. Call where forward or backward failed by an NCCL call."""
        return self._outcome("rewireRecover", _sized(_Outcome))

    def _outcome(self, function: str, outcome: Any, *arguments: Any) -> Outcome:
        self._raised.clear()
        result = self._library.result(function, self._context, *arguments, ctypes.byref(outcome))
        error = self._library.error(result) if result != 0 else None
        # A failed call may leave the world out. The world may change before apply() raises.
        if outcome.world.size != 0:
            self._last_world = outcome.world.value()
        if self._raised:
            first = self._raised[0]
            self._raised.clear()
            raise first
        if error is not None:
            raise error
        return Outcome(Kind(outcome.kind), self._last_world, outcome.pause_ns, outcome.bytes_in, outcome.bytes_out)

    def _run_update(self, _: Any) -> int:
        try:
            self._update()
        except BaseException as error:  # pylint: disable=broad-except; raised by update()
            self._raised.append(error)
            return _UNCHANGED if isinstance(error, Unchanged) else 1
        return 0

    def _kept(self, function: Callable[..., Any]) -> Callable[..., None]:
        def kept(*arguments: Any) -> None:
            try:
                function(*arguments)
            except BaseException as error:  # pylint: disable=broad-except; raised after the call
                self._raised.append(error)

        return kept

    @staticmethod
    def _printed(function: Callable[..., Any], refusal: Any) -> Callable[..., Any]:
        def printed(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except BaseException:  # pylint: disable=broad-except; there is no caller to raise to
                sys.excepthook(*sys.exc_info())
                return refusal

        return printed
