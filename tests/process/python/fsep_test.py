#!/usr/bin/env python3
"""fsep_test.py LIBREWIRE_MOE LIBCUDA LIBNCCL: two processes restore and reduce sharded experts from Python."""
import ctypes
import multiprocessing
import os
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "reconfig" / "python"))
from rewire.fsep import EMPTY, Fsep, RewireError  # noqa: E402
from sim_device import Device  # noqa: E402

RANKS, EXPERTS, SLOTS, LAYERS = 2, 3, 2, 2
ELEMENTS = 10  # of a chunk; an expert has two
PLACEMENTS = [[0, 1, 1, 2], [2, 0, 1, EMPTY]]  # by layer
VISITS = [(0, False), (1, False), (1, True), (0, True)]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def weights_of(layer, expert):
    return bytes(layer * 100 + expert * 30 + i for i in range(ELEMENTS * RANKS))


def gradient_of(layer, rank, slot, element):
    return float(1000 * layer + 100 * rank + 10 * slot + element)


def join(nccl, rank, ids):
    """Sends the id's bytes unchanged to the other rank: they contain zeros."""
    unique = UniqueId()
    if rank == 0:
        assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
        ids.put(ctypes.string_at(ctypes.byref(unique), 128))
    else:
        ctypes.memmove(ctypes.byref(unique), ids.get(timeout=60), 128)
    comm = ctypes.c_void_p()
    assert nccl.ncclCommInitRank(ctypes.byref(comm), RANKS, unique, rank) == 0
    return comm


def step(fsep, device, rank):
    fsep.begin(VISITS, device.stream)
    for layer, leaves in VISITS:
        fsep.begin_tokens(device.stream)
        fsep.end_tokens(device.stream)
        weights, gradients = fsep.begin_experts(device.stream)
        device.wait()
        for slot in range(SLOTS):
            expert = PLACEMENTS[layer][rank * SLOTS + slot]
            if expert == EMPTY:
                continue
            size = ELEMENTS * RANKS
            assert ctypes.string_at(weights + slot * size, size) == weights_of(layer, expert)
            values = [gradient_of(layer, rank, slot, i) for i in range(size)]
            if leaves:
                ctypes.memmove(gradients + slot * size * 4, struct.pack(f"{size}f", *values), size * 4)
        assert leaves == (gradients is not None)
        fsep.end_experts(device.stream)
        fsep.begin_tokens(device.stream)
        fsep.end_tokens(device.stream)
    fsep.finish(device.stream)
    device.wait()


def reduced(layer, rank):
    """The chunks of rank's gradients after one step, from all slots; exact in floats."""
    placed = list(enumerate(PLACEMENTS[layer]))
    return [
        sum(
            gradient_of(layer, at // SLOTS, at % SLOTS, rank * ELEMENTS + i)
            for at, found in placed
            if found == expert
        )
        for expert in range(EXPERTS)
        for i in range(ELEMENTS)
    ]


def refused(call, why):
    try:
        call()
    except RewireError as error:
        assert why in str(error) and not error.lost, error
        return
    raise AssertionError(f"not refused: {why}")


def rank_main(rank, rewire, libcuda, libnccl, ids):
    device = Device(libcuda, rank)
    nccl = ctypes.CDLL(libnccl)
    comm = join(nccl, rank, ids)
    own = slice(rank * ELEMENTS, (rank + 1) * ELEMENTS)
    weights = [
        device.allocate(b"".join(weights_of(layer, e)[own] for e in range(EXPERTS)))
        for layer in range(LAYERS)
    ]
    gradients = [device.allocate(bytes(EXPERTS * ELEMENTS * 4)) for _ in range(LAYERS)]

    def open_fsep(prefetch):
        return Fsep(
            comm, rank, 1, RANKS, weights, gradients, library=rewire, experts=EXPERTS, slots=SLOTS,
            prefetch=prefetch, elements=ELEMENTS, weight_bytes=1, gradient_bytes=4,
        )

    refused(lambda: open_fsep(3), "prefetch=3: must be 0 to 2")
    for prefetch in range(LAYERS + 1):
        for address in gradients:
            ctypes.memset(address, 0, EXPERTS * ELEMENTS * 4)
        fsep = open_fsep(prefetch)
        refused(lambda: fsep.begin(VISITS, device.stream), "no placement")
        refused(lambda: fsep.place(0, [0, 1, 1, 3]), "expert=3: must be below experts=3")
        for layer, slots in enumerate(PLACEMENTS):
            fsep.place(layer, slots)
        refused(lambda: fsep.finish(device.stream), "Begin is due")
        step(fsep, device, rank)
        for layer, address in enumerate(gradients):
            found = struct.unpack(
                f"{EXPERTS * ELEMENTS}f", ctypes.string_at(address, EXPERTS * ELEMENTS * 4)
            )
            assert list(found) == reduced(layer, rank), (prefetch, layer, found)
        fsep.close()
    assert nccl.ncclCommDestroy(comm) == 0


def main():
    rewire, libcuda, libnccl = sys.argv[1:4]
    os.environ["REWIRE_CUDA_LIBRARY"] = libcuda
    ids = multiprocessing.Queue()
    processes = [
        multiprocessing.Process(target=rank_main, args=(rank, rewire, libcuda, libnccl, ids))
        for rank in range(RANKS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0, process.exitcode
    try:
        Fsep(1, 0, 1, 1, [1], [1], library=rewire, expertz=1)
        raise AssertionError("a wrong option was taken")
    except TypeError:
        pass


if __name__ == "__main__":
    main()
