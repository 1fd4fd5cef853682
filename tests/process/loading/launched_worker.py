#!/usr/bin/env python3
"""A worker of torchrun's style that uses NCCL by ctypes, as vLLM does. Prints one line.

Rank 0 gives the unique id to the others by a socket at MASTER_ADDR and MASTER_PORT, as a framework's
store does.
"""
import ctypes
import os
import pathlib
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from sim_device import Device  # noqa: E402

MAGIC = 0x5245574952450001  # of Rewire's communicators
FLOAT, SUM = 7, 0
COUNT = 4
PATIENCE = 30


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


COMM = ctypes.c_void_p
FUNCTIONS = {
    "ncclGetVersion": [ctypes.POINTER(ctypes.c_int)],
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(COMM), ctypes.c_int, UniqueId, ctypes.c_int],
    "ncclAllReduce": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                      COMM, ctypes.c_void_p],
    "ncclCommDestroy": [COMM],
}


class Nccl:
    """NCCL's functions as attributes of a library that ctypes has opened."""

    def __init__(self):
        library = ctypes.CDLL(os.environ.get("VLLM_NCCL_SO_PATH") or "libnccl.so.2")
        for name, types in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = ctypes.c_int, types
        self.library = library

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        assert result == 0, f"{name}: ncclResult={result}"


def exchange(rank, ranks, data):
    """Returns the data of rank 0 on every rank."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(address) as server:
            server.settimeout(PATIENCE)
            for _ in range(ranks - 1):
                with server.accept()[0] as peer:
                    peer.sendall(data)
        return data
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with socket.create_connection(address, timeout=PATIENCE) as peer:
                received = b""
                while part := peer.recv(4096):
                    received += part
                return received
        except ConnectionError:
            if time.monotonic() > deadline:
                raise


def main():
    if os.environ.pop("WORKER_EXECS", None):
        os.execv("/bin/sh", ["sh", "-c", 'exec "$0" "$1"', sys.executable, __file__])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = Device("libcuda.so.1", int(os.environ["LOCAL_RANK"]))
    nccl = Nccl()
    version = ctypes.c_int()
    nccl.call("ncclGetVersion", ctypes.byref(version))
    unique = UniqueId()
    if rank == 0:
        nccl.call("ncclGetUniqueId", ctypes.byref(unique))
    unique = UniqueId.from_buffer_copy(exchange(rank, ranks, bytes(unique)))
    comm = COMM()
    nccl.call("ncclCommInitRank", ctypes.byref(comm), ranks, unique, rank)
    values = (ctypes.c_float * COUNT)(*[1.0 + rank + i / ranks for i in range(COUNT)])
    data = device.allocate(bytes(values))
    nccl.call("ncclAllReduce", data, data, COUNT, FLOAT, SUM, comm, device.stream)
    device.wait()
    sums = (ctypes.c_float * COUNT).from_buffer_copy(ctypes.string_at(data, 4 * COUNT))
    kind = "virtual" if ctypes.c_uint64.from_address(comm.value).value == MAGIC else "real"
    nccl.call("ncclCommDestroy", comm)
    print(f"rank {rank} of {ranks}: sums {' '.join(f'{value:g}' for value in sums)} {kind}")


if __name__ == "__main__":
    main()
