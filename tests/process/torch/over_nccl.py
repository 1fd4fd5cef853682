#!/usr/bin/env python3
"""over_nccl.py SCRIPT ARGUMENT...: runs a script whose process groups "nccl" are NCCL's API, for PyTorch without CUDA.

The groups are what ProcessGroupNCCL is on a GPU, as far as these tests need it: collectives of tensors on one
communicator each, which is made by a unique id from the store. Rewire knows of them by NCCL's calls alone.
"""
import ctypes
import os
import runpy
import sys

import torch
import torch.distributed as dist
from rewire.device import Device
from rewire.nccl import Communicator, Operation, Type, new_unique_id
from torch._C._distributed_c10d import _create_work_from_future

TYPES = {torch.float32: Type.FLOAT32, torch.int64: Type.INT64, torch.int32: Type.INT32, torch.uint8: Type.UINT8}
device = Device(int(os.environ["LOCAL_RANK"]))


def done(result):
    future = torch.futures.Future()
    future.set_result(result)
    return _create_work_from_future(future)


class Group(dist.ProcessGroup):
    def __init__(self, store, rank, size, _):
        super().__init__(rank, size)
        if rank == 0:
            store.set("id", new_unique_id())
        device.make_current()
        self.communicator = Communicator(store.get("id"), size, rank)

    def getBackendName(self):
        return "over_nccl"

    def run(self, tensor, times, collective):
        """Calls collective(address, count, type) on a copy in device memory, with room for `times` as many elements."""
        device.make_current()  # autograd has threads of its own
        size = tensor.numel() * tensor.element_size()
        address = device.allocate(size * times)
        try:
            ctypes.memmove(address, tensor.contiguous().data_ptr(), size)
            collective(address, tensor.numel(), TYPES[tensor.dtype])
            device.synchronize()
            self.communicator.check()
            result = torch.empty((times * tensor.numel(),), dtype=tensor.dtype)
            ctypes.memmove(result.data_ptr(), address, size * times)
        finally:
            device.free(address)
        return result

    def allreduce(self, tensors, options=None):
        for tensor in tensors:
            result = self.run(tensor, 1, lambda address, count, kind: self.communicator.all_reduce(
                address, count, kind, device.stream, Operation.SUM))
            tensor.detach().copy_(result.view(tensor.shape))
        return done(tensors)

    def broadcast(self, tensors, options):
        for tensor in tensors:
            result = self.run(tensor, 1, lambda address, count, kind: self.communicator.broadcast(
                address, count, kind, options.rootRank, device.stream))
            tensor.detach().copy_(result.view(tensor.shape))
        return done(tensors)

    def allgather(self, outputs, tensors, _=None):
        for places, tensor in zip(outputs, tensors):
            result = self.run(tensor, len(places), lambda address, count, kind: self.communicator.all_gather(
                address, address, count, kind, device.stream))
            for place, row in zip(places, result.view(len(places), -1)):
                place.detach().copy_(row.view(place.shape))
        return done(tensors)

    def barrier(self, opts=None):
        return self.allreduce([torch.zeros(1)])


def main():
    theirs = dist.init_process_group
    dist.Backend.register_backend("over_nccl", Group)
    dist.init_process_group = lambda *_, **options: theirs("over_nccl", **options)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
