#!/usr/bin/env python3
"""experts_test.py LIBREWIRE_MOE LIBCUDA: two processes of the simulated GPU balance a layer from Python."""
import ctypes
import multiprocessing
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "reconfig" / "python"))
from rewire.experts import Experts, RewireError  # noqa: E402
from sim_device import Device  # noqa: E402

ROWS = [[90, 30], [10, 6]]
ROW, WEIGHTS = 64, 256


def compute(device, segment, own):
    """Replaces a GEMM: every byte plus the weights'."""
    device.wait()
    weights = segment.weights or own + segment.expert % 2 * WEIGHTS
    add = ctypes.string_at(weights, 1)[0]
    rows = ctypes.string_at(segment.x, segment.rows * ROW)
    ctypes.memmove(segment.out, bytes((b + add) % 256 for b in rows), len(rows))
    if segment.grad:
        ctypes.memset(segment.grad, segment.rows, WEIGHTS)


def run_round(device, experts, own, received_rows, **arguments):
    for segment in experts.begin(device.stream, 0, **arguments):
        compute(device, segment, own)
    for segment in experts.rest():
        compute(device, segment, own)
        if segment.weights:
            received_rows.append(segment.rows)
    gradients = experts.collect()
    device.wait()
    experts.check()
    return [(g.expert, g.helper, ctypes.string_at(g.data, 1)[0]) for g in gradients]


def rank_main(rank, name, rewire, libcuda, results):
    device = Device(libcuda, rank)
    tokens = ROWS[rank]
    data = bytes(i * 7 % 256 for i in range(sum(tokens) * ROW))
    own = device.allocate(bytes(1 + rank * 2 + e for e in range(2) for _ in range(WEIGHTS)))
    x, out = device.allocate(data), device.allocate(bytes(len(data)))
    experts = Experts(
        name, rank, 2, library=rewire, experts=2, rows=200, weight_bytes=WEIGHTS, grad_bytes=WEIGHTS,
        token_bytes=ROW, dynamic=2, patience_us=20_000_000,
    )
    half = WEIGHTS // 2
    arguments = {
        "tokens": tokens, "part_bytes": [half, half], "x": x, "out": out,
        "weights": [[own + e * WEIGHTS, own + e * WEIGHTS + half] for e in range(2)],
    }
    expected = bytes(
        (data[(row * ROW) + i] + 1 + rank * 2 + e) % 256
        for e in range(2) for row in range(sum(tokens[:e]), sum(tokens[: e + 1])) for i in range(ROW)
    )
    received = []
    assert not run_round(device, experts, own, received, **arguments)
    assert ctypes.string_at(out, len(data)) == expected
    moved = experts.moved()
    gradients = run_round(device, experts, own, received, errors=x, moved=moved, **arguments)
    assert ctypes.string_at(out, len(data)) == expected
    assert experts.counts().rounds == 2
    try:
        experts.next()
        raise AssertionError("a call out of turn was not refused")
    except RewireError as error:
        assert "Next" in str(error) and not error.lost, error
    experts.end()
    results.put((rank, sum(received), gradients))


def main():
    rewire, libcuda = sys.argv[1:3]
    os.environ["REWIRE_CUDA_LIBRARY"] = libcuda
    results = multiprocessing.Queue()
    name = f"python-{os.getpid()}"
    processes = [
        multiprocessing.Process(target=rank_main, args=(rank, name, rewire, libcuda, results))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    found = sorted(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0, process.exitcode
    # There are 136 rows, 120 of them on rank 0: 52 are moved, forward and backward.
    assert found[0][1] == 0 and found[1][1] == 104, found
    assert sum(g[2] for g in found[0][2]) == 52 and not found[1][2], found
    try:
        Experts(name, 0, 2, library=rewire, expertz=1)
        raise AssertionError("a wrong option was taken")
    except TypeError:
        pass


if __name__ == "__main__":
    main()
