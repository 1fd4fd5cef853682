"""The part of a tensor, and the group of slots, that a slot has under a layout (docs/layouts.md). Needs no array
library."""
import ctypes
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Union

from .library import Library

__all__ = ["Group", "Part", "Piece", "layout_group", "layout_part", "layout_text"]

_DIMS = 8  # rewireMaxDims
_Numbers = ctypes.c_uint64 * _DIMS


@dataclass(frozen=True)
class Piece:
    """Elements of the whole tensor: those with begin[d] <= x[d] < end[d], where x are their indices. Each is at
    offset + sum of (x[d] - begin[d]) * strides[d] in the slot's memory, in elements."""

    begin: Tuple[int, ...]
    end: Tuple[int, ...]
    strides: Tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Part:
    """shape: of the slot's memory, row-major; one number where ZeRO divides the tensor, (0,) where it has no part."""

    shape: Tuple[int, ...]
    elements: int
    pieces: List[Piece]


@dataclass(frozen=True)
class Group:
    """slots: in ascending order. rank: the slot's index in them."""

    rank: int
    slots: Tuple[int, ...]


class _Part(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("elements", ctypes.c_uint64), ("shape", _Numbers), ("dims", ctypes.c_uint32),
        ("tensor_dims", ctypes.c_uint32), ("pieces", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
    ]


class GroupNumbers(ctypes.Structure):
    """rewireGroup_t."""

    _fields_ = [("size", ctypes.c_size_t), ("ranks", ctypes.c_uint32), ("rank", ctypes.c_uint32)]


class _Piece(ctypes.Structure):
    _fields_ = [("begin", _Numbers), ("end", _Numbers), ("strides", _Numbers), ("offset", ctypes.c_uint64)]


def layout_text(layout: Union[str, Dict[str, Any]]) -> str:
    """Returns the layout as the library takes it: JSON, or what json.dumps() takes."""
    return layout if isinstance(layout, str) else json.dumps(layout)


def layout_part(layout: Union[str, Dict[str, Any]], tensor: str, slot: int, library: Optional[str] = None) -> Part:
    """Raises RewireError for an error in the layout, an unknown tensor, and a slot that it does not have."""
    rewire = Library("librewire", "rewireLastError", library)
    text, name = layout_text(layout).encode(), tensor.encode()
    part = _Part(size=ctypes.sizeof(_Part))
    room = 0
    pieces = (_Piece * 0)()
    while True:  # once more where there was no room for all pieces
        rewire.call("rewireLayoutPart", text, name, ctypes.c_uint32(slot), ctypes.byref(part), pieces or None,
                    ctypes.c_uint32(room))
        if part.pieces <= room:
            break
        room = part.pieces
        pieces = (_Piece * room)()
    dims = part.tensor_dims
    return Part(tuple(part.shape[: part.dims]), part.elements, [
        Piece(tuple(p.begin[:dims]), tuple(p.end[:dims]), tuple(p.strides[:dims]), p.offset) for p in pieces])


def layout_group(layout: Union[str, Dict[str, Any]], axes: str, slot: int, library: Optional[str] = None) -> Group:
    """Returns the group of the slot along the axes, such as "tp", "dp-cp" or "ep". Raises RewireError for an error in
    the layout, axes that do not exist or do not go together, and a slot that the layout does not have."""
    rewire = Library("librewire", "rewireLastError", library)
    text, names = layout_text(layout).encode(), axes.encode()
    group = GroupNumbers(size=ctypes.sizeof(GroupNumbers))
    room = 0
    slots = (ctypes.c_uint32 * 0)()
    while True:  # once more where there was no room for all slots
        rewire.call("rewireLayoutGroup", text, names, ctypes.c_uint32(slot), ctypes.byref(group), slots or None,
                    ctypes.c_uint32(room))
        if group.ranks <= room:
            break
        room = group.ranks
        slots = (ctypes.c_uint32 * room)()
    return Group(group.rank, tuple(slots[: group.ranks]))
