"""One CUDA device through its driver: memory and a stream, for programs without an array library for CUDA.

PyTorch for CPUs trains on it where the driver is the simulated one (`rewire run --sim`): the device's memory
is then this process's. A Device is thread-safe, except that each thread must call make_current() first.
"""
import ctypes

__all__ = ["Device", "DriverError"]

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class DriverError(RuntimeError):
    """The error of a failed call of the driver."""

    def __init__(self, function: str, result: int) -> None:
        super().__init__(f"{function}: CUresult={result}")
        self.result = result


class Device:
    def __init__(self, ordinal: int, library: str = "libcuda.so.1") -> None:
        """ordinal: counted on from the first device again after the last."""
        self._cuda = ctypes.CDLL(library)
        self._call("cuInit", 0)
        count, device = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if count.value == 0:
            raise DriverError("cuDeviceGetCount", 100)  # CUDA_ERROR_NO_DEVICE
        self._call("cuDeviceGet", ctypes.byref(device), ordinal % count.value)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.make_current()
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        self.stream: int = stream.value or 0

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self._cuda, function)(*arguments)
        if result != 0:
            raise DriverError(function, result)

    def make_current(self) -> None:
        self._call("cuCtxSetCurrent", self._context)

    def allocate(self, size: int) -> int:
        """Returns the address of `size` bytes."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        return pointer.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def synchronize(self) -> None:
        """Waits for the stream."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(self.stream))
