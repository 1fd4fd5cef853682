"""One simulated GPU of a test's process, through its driver: a context, a stream, memory."""
import ctypes


class Device:
    def __init__(self, library, ordinal):
        self.cuda = ctypes.CDLL(library)
        device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.cuda.cuInit(0))
        self.check(self.cuda.cuDeviceGet(ctypes.byref(device), ordinal))
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self.check(self.cuda.cuCtxSetCurrent(context))
        self.check(self.cuda.cuStreamCreate(ctypes.byref(stream), 1))
        self.stream = stream.value

    @staticmethod
    def check(result):
        assert result == 0, f"CUDA driver call: failed with CUresult {result}"

    def allocate(self, data):
        pointer = ctypes.c_uint64()
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(len(data))))
        ctypes.memmove(pointer.value, data, len(data))
        return pointer.value

    def wait(self):
        self.check(self.cuda.cuStreamSynchronize(ctypes.c_void_p(self.stream)))
