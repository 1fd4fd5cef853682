#!/usr/bin/env python3
"""programs_test.py REWIRE: the programs of nccl-tests and of NCCL's docs/examples, with and without Rewire.

NCCL_TESTS_DIR and NCCL_EXAMPLES_DIR are folders of built programs. A program runs as one process that drives
all GPUs which it takes by default. Rewire rebuilds its communicators while it runs.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from job import PATIENCE, Job, need_gpu, skip

REWIRE = sys.argv[1]
PERF = ["-b", "8", "-e", "64M", "-f", "4", "-n", "20"]  # sizes and iterations of nccl-tests
GOOD = "Out of bounds values : 0 OK"


def programs():
    for variable, arguments in (("NCCL_TESTS_DIR", PERF), ("NCCL_EXAMPLES_DIR", [])):
        if variable not in os.environ:
            continue
        for path in sorted(pathlib.Path(os.environ[variable]).rglob("*")):
            with open(path, "rb") if path.is_file() else open(os.devnull, "rb") as file:
                elf = file.read(4) == b"\x7fELF"
            if elf and os.access(path, os.X_OK) and ".so" not in path.name:
                yield path, arguments


def checked(path, arguments):
    """Returns the number of rebuilds during the run under Rewire."""
    command = [str(path), *arguments]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    with tempfile.TemporaryDirectory() as folder, Job(REWIRE, folder, command, 1) as job:
        rebuilds = 0
        while job.process.poll() is None:
            rebuilds += not job.rebuild()  # refused before the first communicator and after the last
            time.sleep(0.05)
        status = job.end(stop=False)
        assert status == plain.returncode, f"{path}: {status}, not {plain.returncode}\n{job.text()}"
        assert (GOOD in job.text()) == (GOOD in plain.stdout), f"{path}:\n{job.text()}"
    return rebuilds


need_gpu()
found = list(programs())
if not found:
    skip("neither NCCL_TESTS_DIR nor NCCL_EXAMPLES_DIR has programs")
print(json.dumps({"test": "programs", "rebuilds": {path.name: checked(path, a) for path, a in found}}))
