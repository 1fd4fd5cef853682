"""CUDA graphs: the call rewireGraphsReleased() of rewire/rewire.h.

    del graph                       # torch.cuda.CUDAGraph, or what holds it
    torch.cuda.synchronize()
    graphs.released()               # `rewire rebuild` is possible now
    capture_again()                 # after the rebuild

Works in every process that Rewire is preloaded into; the program needs no other call of Rewire.
"""
import ctypes
import os

__all__ = ["released"]

_LIBRARY = "librewire.so.0.1"


def released() -> bool:
    """Says that all CUDA graphs with NCCL operations are destroyed and none of them runs. A graph that is
    launched afterwards may use freed memory. Returns whether Rewire is loaded; without it, nothing is done.
    Thread-safe."""
    try:
        library = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    library.rewireGraphsReleased()
    return True
