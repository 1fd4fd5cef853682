#!/usr/bin/env python3
"""launched_test.py SHIM REDIRECT REWIRE LIBRARIES: workers that open NCCL by ctypes, under launchers.

The parent starts workers as torchrun does: a process each, with RANK, LOCAL_RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT. A worker opens NCCL as vLLM does: ctypes.CDLL of VLLM_NCCL_SO_PATH or of
libnccl.so.2, and one attribute for each function. The worker itself is launched_worker.py.
"""
import os
import pathlib
import socket
import subprocess
import sys
import unittest

WORKER = str(pathlib.Path(__file__).resolve().with_name("launched_worker.py"))
SHIM, REDIRECT, REWIRE, LIBRARIES = sys.argv[1:5]
LIBRARIES = os.environ.get("NCCL_HOST_LIBRARIES", LIBRARIES)
RANKS = 2
PATIENCE = 60


def environment(**more):
    """The variables of NCCL, and those given; None leaves one out."""
    own = {name: value for name, value in os.environ.items()
           if name.startswith("NCCL_") and not name.startswith("NCCL_HOST_")}
    own.update({"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": LIBRARIES})
    own.update(more)
    return {name: value for name, value in own.items() if value is not None}


def launch(variables):
    """Starts the workers and returns [(status, output, errors)] by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = []
    for rank in range(RANKS):
        own = dict(variables, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS),
                   LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        workers.append(subprocess.Popen([sys.executable, WORKER], env=own, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    results = []
    try:
        for worker in workers:
            out, errors = worker.communicate(timeout=PATIENCE)
            results.append((worker.returncode, out, errors))
    finally:
        for worker in workers:
            worker.kill()
    return results


def expected(rank, kind):
    return f"rank {rank} of {RANKS}: sums 3 4 5 6 {kind}\n"


class LaunchedTest(unittest.TestCase):
    def check(self, kind, **variables):
        for rank, (status, out, errors) in enumerate(launch(environment(**variables))):
            self.assertEqual((status, out), (0, expected(rank, kind)), errors)

    def test_without_the_shim(self):
        self.check("real")

    def test_preloaded_shim_by_name(self):
        self.check("virtual", LD_PRELOAD=SHIM)

    def test_shim_by_path(self):
        self.check("virtual", VLLM_NCCL_SO_PATH=SHIM)

    def test_nccl_by_path_through_the_redirect(self):
        nccl = os.path.join(LIBRARIES, "libnccl.so.2")
        self.check("real", LD_PRELOAD=SHIM, VLLM_NCCL_SO_PATH=nccl)
        self.check("virtual", LD_PRELOAD=f"{SHIM}:{REDIRECT}", VLLM_NCCL_SO_PATH=nccl)

    def test_drop_in(self):
        self.check("virtual", LD_LIBRARY_PATH=os.path.dirname(SHIM) + ":" + LIBRARIES)

    def test_workers_that_exec_another_program(self):
        # torchrun's workers may be shell scripts.
        self.check("virtual", LD_PRELOAD=SHIM, WORKER_EXECS="1")

    def test_rewire_run(self):
        done = subprocess.run(
            [REWIRE, "run", "-n", str(RANKS), f"--sim={LIBRARIES}", "--", sys.executable, WORKER],
            env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            sorted(done.stdout.splitlines(keepends=True)),
            [f"[member {rank}] {expected(rank, 'virtual')}" for rank in range(RANKS)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
