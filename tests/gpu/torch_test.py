#!/usr/bin/env python3
"""torch_test.py MODE REWIRE: a PyTorch or JAX job under Rewire and the same job without it (README.md)."""
import json
import os
import pathlib
import sys
import tempfile

from job import SHARING, Job, need_gpu, need_jax, need_torch, ranks_here

HERE = pathlib.Path(__file__).resolve().parent
MODE, REWIRE = sys.argv[1:3]
SWAPS = int(os.environ.get("GPU_TEST_SWAPS", "100"))


def worker(folder, steps):
    if MODE == "jax":
        return [*SHARING, sys.executable, str(HERE / "jax_worker.py"), str(folder), str(steps)]
    return [sys.executable, str(HERE / "torch_worker.py"), MODE, str(folder), str(steps)]


def losses(folder, ranks):
    return [(pathlib.Path(folder) / f"losses.{rank}").read_text().split() for rank in range(ranks)]


def trained(ranks):
    with tempfile.TemporaryDirectory() as folder, Job(REWIRE, folder, worker(folder, 0), ranks) as job:
        job.wait_for(*(f"ready.{rank}" for rank in range(ranks)))
        job.rebuild_times(SWAPS)
        assert job.end() == 0, job.text()
        live = losses(folder, ranks)
    steps = len(live[0])
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-agent", "--no-preload"]
        with Job(REWIRE, folder, worker(folder, steps), ranks, options) as job:
            assert job.end(stop=False) == 0, job.text()
            plain = losses(folder, ranks)
    different = sum(a != b for one, other in zip(live, plain, strict=True)
                    for a, b in zip(one, other, strict=True))
    assert different == 0, f"{different} of {steps * ranks} losses differ"
    return {"swaps": SWAPS, "steps": steps, "losses_different": different}


def captured(ranks):
    with tempfile.TemporaryDirectory() as folder, Job(REWIRE, folder, worker(folder, 0), ranks) as job:
        job.wait_for(*(f"captured.{rank}" for rank in range(ranks)))
        reason = job.rebuild()
        assert "CUDA graph" in reason, f"a rebuild with a live graph gave: {reason or 'done'}"
        (job.folder / "release").touch()
        job.wait_for(*(f"released.{rank}" for rank in range(ranks)))
        job.rebuild_times(1)
        (job.folder / "rebuilt").touch()
        assert job.end() == 0, job.text()
    return {"refused": reason}


need_gpu()
versions = need_jax() if MODE == "jax" else need_torch()
# The worker's `import rewire` finds the package of this tree.
os.environ["PYTHONPATH"] = str(HERE.parents[1] / "reconfig" / "python")
figures = captured(ranks_here()) if MODE == "graphs" else trained(ranks_here())
print(json.dumps({"test": MODE, "ranks": ranks_here(), **figures, **versions}))
