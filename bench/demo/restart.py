"""The baseline: the same change by checkpoint, exit, start, load. No Rewire, no sleep.

Downtime is the training loop's view: from the end of the last step before to the end of the first
step after, minus one undisturbed step. A checkpoint counts once it is on the disk, as in
torch.distributed.checkpoint (FileSystemWriter's sync_files is true by default); sync_ms is this
part of the downtime.
"""

import os
import pathlib
import socket
import statistics
import subprocess
import time

from job import libraries
from steps import StepLog


def free_port():
    """Returns a port for MASTER_PORT."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(build, folder, members, program):
    """Runs the program on `members` plain processes. Returns (log, spawned ns, reaped ns)."""
    build, folder = pathlib.Path(build), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    spawned = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    processes = []
    with open(folder / "output.txt", "ab") as output:
        for rank in range(members):
            env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(members),
                       LOCAL_WORLD_SIZE=str(members), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                       LD_LIBRARY_PATH=libraries(build))
            processes.append(subprocess.Popen(program + ["--log", str(folder / f"{rank}.jsonl")], env=env,
                                              stdout=output, stderr=output, stdin=subprocess.DEVNULL))
        try:
            for p in processes:
                if p.wait(120) != 0:
                    raise RuntimeError(f"baseline member failed with {p.returncode}: see {folder}/output.txt")
        finally:
            for p in processes:
                if p.poll() is None:
                    p.kill()
                    p.wait()
    reaped = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    log = StepLog(folder)
    log.poll()
    return log, spawned, reaped


def _step_ends(log, index):
    return max(rows[index]["wall_ns"] for rows in log.steps.values())


def _phase(log, name):
    return max(phases[name] for phases in log.phases.values())


def measure(build, folder, gpt_train, sizes, steps, arguments):
    """Restarts once between each pair of consecutive sizes; one row per restart, times in ms."""
    folder = pathlib.Path(folder)
    rows, before, reaped_before = [], None, None
    for i, members in enumerate(sizes):
        program = [gpt_train, *arguments, "--stop-after", str((i + 1) * steps)]
        if i > 0:
            program += ["--load", str(folder / f"checkpoint{i - 1}")]
        if i + 1 < len(sizes):
            program += ["--save", str(folder / f"checkpoint{i}")]
        log, spawned, reaped = run(build, folder / f"run{i}", members, program)
        if before is not None:
            undisturbed = statistics.median(ms for m in log.steps for _, ms, _ in log.intervals(m))
            end, first = _step_ends(before, -1), _step_ends(log, 0)
            written, saved, main = _phase(before, "written"), _phase(before, "saved"), _phase(log, "main")
            nccl, loaded = _phase(log, "nccl"), _phase(log, "loaded")
            rows.append({
                "from": sizes[i - 1], "to": members,
                # The downtime does not include the time that this script spends between two runs.
                "downtime_ms": (first - end - (spawned - reaped_before)) / 1e6 - undisturbed,
                "save_ms": (saved - end) / 1e6,
                "sync_ms": (saved - written) / 1e6,
                "exit_ms": (reaped_before - saved) / 1e6,
                "exec_ms": (main - spawned) / 1e6,
                "init_ms": (nccl - main) / 1e6,
                "load_ms": (loaded - nccl) / 1e6,
                "first_step_ms": (first - loaded) / 1e6,
            })
            for path in folder.glob(f"checkpoint{i - 1}*"):
                path.unlink()
        before, reaped_before = log, reaped
    return rows
