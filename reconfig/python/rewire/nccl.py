"""The part of NCCL's C API that a data-parallel job needs. Addresses and streams are integers.

Under `rewire run` the calls go through Rewire, so that the communicator is edited when the world changes: the
object stays. Owned by one thread at a time, as NCCL's communicators are.
"""
import ctypes
import enum
from typing import Optional

__all__ = ["Communicator", "NcclError", "Operation", "Type", "new_unique_id"]

_IN_PROGRESS = 7


class Type(enum.IntEnum):
    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9


class Operation(enum.IntEnum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVERAGE = 4


class NcclError(RuntimeError):
    """The error of a failed call, or of work that the communicator has begun. After the loss of a member:
    Member.recover()."""

    def __init__(self, function: str, result: int, text: str) -> None:
        super().__init__(f"{function}: {text}")
        self.result = result


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def _library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(None)  # has the names where Rewire is preloaded
    library = loaded if hasattr(loaded, "ncclCommInitRank") else ctypes.CDLL("libnccl.so.2")
    library.ncclGetErrorString.restype = ctypes.c_char_p
    return library


def new_unique_id() -> bytes:
    """Returns the id of a communicator, for one rank of it, which gives it to the others. In a job that cooperates:
    Member.unique_id()."""
    library = _library()
    identity = _UniqueId()
    result = library.ncclGetUniqueId(ctypes.byref(identity))
    if result != 0:
        raise NcclError("ncclGetUniqueId", result, library.ncclGetErrorString(result).decode())
    return ctypes.string_at(ctypes.addressof(identity), ctypes.sizeof(identity))


class Communicator:
    def __init__(self, unique_id: bytes, ranks: int, rank: int) -> None:
        """The context of the device must be current on the calling thread."""
        self._nccl = _library()
        self._comm = ctypes.c_void_p()
        identity = _UniqueId()
        ctypes.memmove(ctypes.addressof(identity), unique_id, ctypes.sizeof(identity))
        self._call("ncclCommInitRank", ctypes.byref(self._comm), ranks, identity, rank)

    @property
    def address(self) -> int:
        """The ncclComm_t, for other libraries."""
        return self._comm.value or 0

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self._nccl, function)(*arguments)
        if result != 0:
            raise NcclError(function, result, self._nccl.ncclGetErrorString(result).decode())

    def all_reduce(self, address: int, count: int, kind: Type, stream: int, operation: Operation = Operation.SUM,
                   out: Optional[int] = None) -> None:
        """out: where the result goes; by default in place."""
        self._call("ncclAllReduce", ctypes.c_void_p(address), ctypes.c_void_p(address if out is None else out),
                   ctypes.c_size_t(count), kind, operation, self._comm, ctypes.c_void_p(stream))

    def broadcast(self, address: int, count: int, kind: Type, root: int, stream: int) -> None:
        self._call("ncclBroadcast", ctypes.c_void_p(address), ctypes.c_void_p(address), ctypes.c_size_t(count), kind,
                   root, self._comm, ctypes.c_void_p(stream))

    def all_gather(self, mine: int, all_of_them: int, count: int, kind: Type, stream: int) -> None:
        """count: of one rank's elements."""
        self._call("ncclAllGather", ctypes.c_void_p(mine), ctypes.c_void_p(all_of_them), ctypes.c_size_t(count), kind,
                   self._comm, ctypes.c_void_p(stream))

    def reduce_scatter(self, all_of_them: int, mine: int, count: int, kind: Type, stream: int,
                       operation: Operation = Operation.SUM) -> None:
        """count: of one rank's elements."""
        self._call("ncclReduceScatter", ctypes.c_void_p(all_of_them), ctypes.c_void_p(mine), ctypes.c_size_t(count),
                   kind, operation, self._comm, ctypes.c_void_p(stream))

    def check(self) -> None:
        """Raises where the communicator has an error. Call after the stream was synchronised, before its results
        are used: the kernels of a communicator that was aborted end with success and garbage."""
        state = ctypes.c_int()
        self._call("ncclCommGetAsyncError", self._comm, ctypes.byref(state))
        if state.value not in (0, _IN_PROGRESS):
            raise NcclError("ncclCommGetAsyncError", state.value,
                            self._nccl.ncclGetErrorString(state.value).decode())

    def destroy(self) -> None:
        comm, self._comm = self._comm, ctypes.c_void_p()
        if comm:
            self._call("ncclCommDestroy", comm)
