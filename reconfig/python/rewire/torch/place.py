"""The memory and the streams of this process's device, for what NCCL and copy engines work on.

PyTorch with CUDA: the current device. PyTorch for CPUs: the driver's memory stands behind CPU tensors (device.py),
which is the simulated GPU's; without a driver, plain memory.
"""
import ctypes
import math
import weakref
from typing import Optional, Sequence

import torch

from ..device import Device

__all__ = ["Place"]


class _Bytes:
    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


class Place:
    """driver: of a device without PyTorch's CUDA. Any thread may call empty() and view()."""

    def __init__(self, driver: Optional[Device]) -> None:
        self.driver = driver
        self._device = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"

    @classmethod
    def of(cls, ordinal: int) -> "Place":
        """Takes the current device, or the driver's device with this number."""
        return cls(None if torch.cuda.is_available() else Device(ordinal))

    def __str__(self) -> str:
        return self._device

    def has(self, tensor: torch.Tensor) -> bool:
        """Returns whether PyTorch's kernels can combine the tensor with those of empty()."""
        return bool(tensor.device == torch.device(self._device))

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        count = math.prod(shape)
        if self.driver is None or count == 0:
            return torch.empty(tuple(shape), dtype=dtype, device=self._device)
        size = count * torch.empty(0, dtype=dtype).element_size()
        self.driver.make_current()
        address = self.driver.allocate(size)
        buffer = (ctypes.c_char * size).from_address(address)
        weakref.finalize(buffer, self.driver.free, address).atexit = False
        return torch.frombuffer(buffer, dtype=dtype, count=count).view(tuple(shape))

    def stream(self) -> int:
        """Returns the stream on which this thread's work for the device is enqueued."""
        return self.driver.stream if self.driver is not None else int(torch.cuda.current_stream().cuda_stream)

    def wait_for_cpu(self) -> None:
        """Call before a CPU reads what the stream has written. A GPU's kernels are in the stream's order."""
        if self.driver is not None:
            self.driver.synchronize()

    def view(self, address: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor over memory that somebody else owns."""
        count = math.prod(shape)
        if count == 0:
            return torch.empty(tuple(shape), dtype=dtype, device=self._device)
        size = count * torch.empty(0, dtype=dtype).element_size()
        if self.driver is None:
            return torch.as_tensor(_Bytes(address, size), device=self._device).view(dtype).view(tuple(shape))
        buffer = (ctypes.c_char * size).from_address(address)
        return torch.frombuffer(buffer, dtype=dtype, count=count).view(tuple(shape))
