"""Balances experts inside a node: the calls of rewireExperts* in rewire/rewire_moe.h.

    experts = Experts(name, rank, ranks, experts=16, weight_bytes=..., token_bytes=..., rows=8192)
    for segment in experts.begin(stream, layer, tokens, weights, part_bytes, x, out):
        gemm(segment)
    for segment in experts.rest():
        gemm(segment)
    experts.collect()
    moved = experts.moved()      # for begin(..., moved=moved, errors=...) of the backward round

Addresses are integers (torch: tensor.data_ptr(), stream.cuda_stream). Returned lists are valid until the
next begin() or next(). Owned by one thread, with a current CUDA context. Failures raise RewireError.
"""
import ctypes
from typing import Iterator, List, Optional, Sequence

from .library import Library, RewireError, moe_library, set_options

__all__ = ["Counts", "Experts", "Gradient", "Moved", "RewireError", "Segment"]


class Segment(ctypes.Structure):
    """Rows of one expert to compute: rewireSegment_t."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("expert", "first", "rows", "recompute")] + [
        (name, ctypes.c_void_p) for name in ("weights", "x", "errors", "out", "grad")
    ]


class Gradient(ctypes.Structure):
    """A helper's gradients of an own expert's weights: rewireGradient_t."""

    _fields_ = [
        ("expert", ctypes.c_uint32),
        ("helper", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
    ]


class Counts(ctypes.Structure):
    """rewireExpertsCounts_t; `copies` is the present limit of copies."""

    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64)
        for name in (
            "rounds", "given", "received", "given_rows", "copied_bytes", "late_rounds", "copies"
        )
    ]


class _Options(ctypes.Structure):
    _fields_ = (
        [("size", ctypes.c_size_t), ("name", ctypes.c_char_p)]
        + [(name, ctypes.c_uint32) for name in ("rank", "ranks", "experts", "rows")]
        + [(name, ctypes.c_uint64) for name in ("weight_bytes", "grad_bytes", "token_bytes")]
        + [
            (name, ctypes.c_uint32)
            for name in (
                "slots", "dynamic", "copies", "gate_percent", "least", "late_rounds",
                "late_percent", "patience_us", "meeting_ms",
            )
        ]
    )


class _Round(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("layer", ctypes.c_uint32),
        ("parts", ctypes.c_uint32),
        ("tokens", ctypes.POINTER(ctypes.c_uint32)),
        ("weights", ctypes.POINTER(ctypes.c_void_p)),
        ("part_bytes", ctypes.POINTER(ctypes.c_uint64)),
        ("x", ctypes.c_void_p),
        ("errors", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("version", ctypes.c_uint64),
    ]


class Moved:
    """The moves of a forward round. The object frees them at its end."""

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self._library = library
        self.handle = handle

    def __del__(self) -> None:
        self._library.call("rewireMovedFree", self.handle)


class Experts:
    def __init__(self, name: str, rank: int, ranks: int, *, library: Optional[str] = None, **options: int) -> None:
        """options: the members of rewireExpertsOptions_t. A missing option has its default."""
        self._library = moe_library(library)
        self._handle = None
        struct = _Options(ctypes.sizeof(_Options), name.encode(), rank, ranks)
        set_options("rewireExpertsOptions_t", struct, options)
        self.own = struct.experts
        handle = ctypes.c_void_p()
        self._library.call("rewireExpertsOpen", ctypes.byref(struct), ctypes.byref(handle))
        self._handle = handle

    def begin(
        self, stream: int, layer: int, tokens: Sequence[int], weights: Sequence[Sequence[int]],
        part_bytes: Sequence[int], x: int, out: int, *, errors: Optional[int] = None, moved: Optional[Moved] = None,
        version: int = 0
    ) -> List[Segment]:
        """tokens: number for each own expert. weights: for each of them the addresses of its parts. version: of
        the layer's weights; the same number as before means unchanged weights, and 0 means unknown."""
        parts = len(part_bytes)
        if len(tokens) != self.own or any(len(w) != parts for w in weights):
            raise ValueError(f"tokens and weights must be of {self.own} experts, of {parts} parts each")
        flat = [address for expert in weights for address in expert]
        round_ = _Round(
            ctypes.sizeof(_Round), stream, layer, parts, (ctypes.c_uint32 * len(tokens))(*tokens),
            (ctypes.c_void_p * len(flat))(*flat), (ctypes.c_uint64 * parts)(*part_bytes), x, errors,
            out, version,
        )
        segments, count = ctypes.POINTER(Segment)(), ctypes.c_uint32()
        self._library.call(
            "rewireExpertsBegin", self._handle, ctypes.byref(round_),
            moved.handle if moved is not None else None, ctypes.byref(segments), ctypes.byref(count),
        )
        return segments[: count.value]

    def next(self) -> List[Segment]:
        """Returns more segments to launch; empty: no more. Call after the GEMMs of all earlier segments."""
        segments, count = ctypes.POINTER(Segment)(), ctypes.c_uint32()
        self._library.call("rewireExpertsNext", self._handle, ctypes.byref(segments), ctypes.byref(count))
        return segments[: count.value]

    def rest(self) -> Iterator[Segment]:
        """Yields the segments of next(). Launch each segment's GEMM before the next segment is taken."""
        while segments := self.next():
            yield from segments

    def collect(self) -> List[Gradient]:
        """Ends the round. Returns, for a backward round, the gradients to add in this order."""
        gradients, count = ctypes.POINTER(Gradient)(), ctypes.c_uint32()
        self._library.call(
            "rewireExpertsCollect", self._handle, ctypes.byref(gradients), ctypes.byref(count)
        )
        return gradients[: count.value]

    def moved(self) -> Moved:
        handle = ctypes.c_void_p()
        self._library.call("rewireExpertsMoved", self._handle, ctypes.byref(handle))
        return Moved(self._library, handle)

    def check(self) -> None:
        """Raises unless all results that the device has computed so far are valid."""
        self._library.call("rewireExpertsCheck", self._handle)

    def counts(self) -> Counts:
        counts = Counts(ctypes.sizeof(Counts))
        self._library.call("rewireExpertsCounts", self._handle, ctypes.byref(counts))
        return counts

    def end(self) -> None:
        """Leaves together with the other processes."""
        handle, self._handle = self._handle, None
        self._library.call("rewireExpertsEnd", handle)
