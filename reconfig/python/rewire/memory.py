"""The memory of arrays: of NumPy, of what has __cuda_array_interface__ or DLPack, and of writable buffers.

No array library is imported here.
"""
import ctypes
from dataclasses import dataclass
from typing import Any, Optional, Sequence, Tuple

__all__ = ["Memory", "memory_of"]


@dataclass(frozen=True)
class Memory:
    """Contiguous memory. device: of a GPU. owner: keeps the memory alive."""

    address: int
    elements: int
    element_bytes: int
    device: bool = False
    owner: Any = None

    @property
    def bytes(self) -> int:
        return self.elements * self.element_bytes


class _DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, version 0.8."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _DLDevice), ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_ON_DEVICE = (2, 13)  # kDLCUDA, kDLCUDAManaged; all other devices count as host memory, or are refused
_ON_HOST = (1, 3)  # kDLCPU, kDLCUDAHost
_NUMBERS = "biufcmMV"  # kinds of __array_interface__; not objects, which are pointers, or text


def _contiguous(shape: Sequence[int], strides: Optional[Sequence[int]], step: int) -> bool:
    """Whether strides, in units of which one element has `step`, are those of C order."""
    if strides is None:
        return True
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _of_interface(array: Any, interface: Any, device: bool) -> Memory:
    shape: Tuple[int, ...] = tuple(interface["shape"])
    kind, size = interface["typestr"][1], interface["typestr"][2:]
    if kind not in _NUMBERS:
        raise TypeError(f"typestr={interface['typestr']}: must be of numbers, whose size is in bytes")
    element = int(size.split("[")[0])  # a time has its unit after its size
    address, read_only = interface["data"]
    if read_only:
        raise ValueError("the array is read-only: a tensor is written when the world changes")
    if not _contiguous(shape, interface.get("strides"), element):
        raise ValueError("the array is not contiguous in C order")
    return Memory(int(address or 0), _count(shape), element, device, array)


def _of_dlpack(array: Any) -> Memory:
    kind = int(array.__dlpack_device__()[0])
    if kind not in _ON_DEVICE and kind not in _ON_HOST:
        raise TypeError(f"DLPack device {kind}: must be a CUDA device or the host")
    capsule = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = ctypes.cast(pointer(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    shape = tensor.shape[: tensor.dimensions]
    if tensor.lanes != 1 or tensor.bits % 8 != 0:
        raise TypeError(f"DLPack elements of {tensor.bits} bits in {tensor.lanes} lanes: must be whole bytes")
    strides = tensor.strides[: tensor.dimensions] if bool(tensor.strides) else None
    if not _contiguous(shape, strides, 1):
        raise ValueError("the array is not contiguous in C order")
    # The capsule that nobody takes frees its tensor at its end, and `array` keeps the memory.
    return Memory((tensor.data or 0) + tensor.byte_offset, _count(shape), tensor.bits // 8,
                  kind in _ON_DEVICE, array)


def _of_buffer(array: Any) -> Memory:
    view = memoryview(array)
    if view.readonly:
        raise ValueError("the buffer is read-only: a tensor is written when the world changes")
    if not view.c_contiguous:
        raise ValueError("the buffer is not contiguous in C order")
    anchor = (ctypes.c_char * view.nbytes).from_buffer(view)
    # The anchor locks the size of a bytearray or array.array.
    return Memory(ctypes.addressof(anchor), view.nbytes // view.itemsize, view.itemsize, False, anchor)


def memory_of(array: Any) -> Memory:
    """Returns the memory of an array. Raises TypeError or ValueError for one that cannot be registered."""
    if isinstance(array, Memory):
        return array
    if hasattr(array, "__cuda_array_interface__"):
        return _of_interface(array, array.__cuda_array_interface__, True)
    if hasattr(array, "__array_interface__"):
        return _of_interface(array, array.__array_interface__, False)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array)
    try:
        return _of_buffer(array)
    except TypeError:
        raise TypeError(
            f"{type(array).__name__}: must be a rewire.memory.Memory, have __cuda_array_interface__, "
            "__array_interface__ or DLPack, or be a writable buffer"
        ) from None
