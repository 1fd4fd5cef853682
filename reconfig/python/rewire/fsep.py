"""Fully sharded experts: the calls of rewireFsep* in rewire/rewire_moe.h.

    fsep = Fsep(comm, rank, nodes, devices_of_node, weights, gradients, experts=64, slots=8, prefetch=1,
                elements=..., weight_bytes=2, gradient_bytes=4)
    for layer in range(layers): fsep.place(layer, slots)
    visits = [(layer, leaves_gradients), ...]
    fsep.begin(visits, stream)
    for _ in visits:
        fsep.begin_tokens(stream); all_to_all(); fsep.end_tokens(stream)
        slot_weights, slot_gradients = fsep.begin_experts(stream); gemms(); fsep.end_experts(stream)
        fsep.begin_tokens(stream); all_to_all(); fsep.end_tokens(stream)
    fsep.finish(stream)
    fsep.close()

Addresses are integers (torch: tensor.data_ptr(), stream.cuda_stream). An Fsep is owned by one thread,
whose CUDA context must be current. A failed call of the library raises RewireError. A list of the wrong
length raises ValueError, and an unknown option TypeError.
"""
import ctypes
from typing import Optional, Sequence, Tuple

from .library import RewireError, moe_library, set_options

__all__ = ["EMPTY", "Fsep", "RewireError"]

EMPTY = 0xFFFFFFFF  # a slot without an expert


class _Options(ctypes.Structure):
    _fields_ = (
        [("size", ctypes.c_size_t), ("comm", ctypes.c_void_p)]
        + [
            (name, ctypes.c_uint32)
            for name in (
                "rank", "nodes", "devices_of_node", "layers", "experts", "slots", "prefetch",
                "weight_bytes", "gradient_bytes",
            )
        ]
        + [
            ("elements", ctypes.c_uint64),
            ("weights", ctypes.POINTER(ctypes.c_void_p)),
            ("gradients", ctypes.POINTER(ctypes.c_void_p)),
        ]
    )


class Fsep:
    def __init__(
        self, comm: int, rank: int, nodes: int, devices_of_node: int, weights: Sequence[int], gradients: Sequence[int],
        *, library: Optional[str] = None, **options: int
    ) -> None:
        """comm: an ncclComm_t. weights, gradients: addresses of this rank's chunks, by layer.

        options: the other members of rewireFsepOptions_t.
        """
        self._library = moe_library(library)
        self._handle = None
        if len(weights) != len(gradients):
            raise ValueError(f"gradients: layers={len(gradients)}: must be {len(weights)}")
        addresses = ctypes.c_void_p * len(weights)
        struct = _Options(ctypes.sizeof(_Options), comm, rank, nodes, devices_of_node, len(weights))
        struct.weights, struct.gradients = addresses(*weights), addresses(*gradients)
        set_options("rewireFsepOptions_t", struct, options)
        self._slots = struct.slots * nodes * devices_of_node
        handle = ctypes.c_void_p()
        self._library.call("rewireFsepOpen", ctypes.byref(struct), ctypes.byref(handle))
        self._handle = handle

    def place(self, layer: int, slots: Sequence[int]) -> None:
        """slots: the experts of device 0's slots, then device 1's, ...; EMPTY for none."""
        if len(slots) != self._slots:
            raise ValueError(f"slots: length={len(slots)}: must be {self._slots} (all devices)")
        self._library.call(
            "rewireFsepPlace", self._handle, layer, (ctypes.c_uint32 * len(slots))(*slots)
        )

    def begin(self, visits: Sequence[Tuple[int, bool]], stream: int) -> None:
        """visits: pairs of a layer and whether its experts leave gradients."""
        numbers = ctypes.c_uint32 * len(visits)
        self._library.call(
            "rewireFsepBegin", self._handle, len(visits), numbers(*(layer for layer, _ in visits)),
            numbers(*(bool(leaves) for _, leaves in visits)), ctypes.c_void_p(stream),
        )

    def begin_tokens(self, stream: int) -> None:
        self._library.call("rewireFsepBeginTokens", self._handle, ctypes.c_void_p(stream))

    def end_tokens(self, stream: int) -> None:
        self._library.call("rewireFsepEndTokens", self._handle, ctypes.c_void_p(stream))

    def begin_experts(self, stream: int) -> Tuple[Optional[int], Optional[int]]:
        """Returns the addresses of the slots' weights and of their gradients (None without gradients)."""
        weights, gradients = ctypes.c_void_p(), ctypes.c_void_p()
        self._library.call(
            "rewireFsepBeginExperts", self._handle, ctypes.c_void_p(stream), ctypes.byref(weights),
            ctypes.byref(gradients),
        )
        return weights.value, gradients.value

    def end_experts(self, stream: int) -> None:
        self._library.call("rewireFsepEndExperts", self._handle, ctypes.c_void_p(stream))

    def finish(self, stream: int) -> None:
        self._library.call("rewireFsepFinish", self._handle, ctypes.c_void_p(stream))

    def close(self) -> None:
        handle, self._handle = self._handle, None
        self._library.call("rewireFsepClose", handle)
