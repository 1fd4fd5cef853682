#!/usr/bin/env python3
"""`./dev bench memory`: the device memory of a rebuild, against what was announced before it.

An ordinary NCCL program (mode "memory" of bench/swap) is rebuilt under `rewire run`. Its
communicators carry collectives, sends and receives, on several streams, blocking and not. Each
process asks its driver for the free memory every millisecond. extra_bytes_peak is the most that the
free memory fell below its value before the rebuild, until the old generations were destroyed.
Before a build begins, Rewire announces an estimate (rewire_shim_build_expected_bytes).
extra_bytes_peak_over_measured is the largest quotient of both, over the processes and all rebuilds
after the first. extra_bytes_peak_over_first_estimate is the quotient of the first: before it the
program's creations and first operations are measured, but not those of non-blocking communicators.
"""

import argparse
import json
import mmap
import pathlib
import statistics
import struct
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "swap"))
from mode_job import ModeJob, faults  # noqa: E402

PAGE = struct.Struct("=QQQQ")  # FreeMemoryPage of bench/swap/free_memory.h


class FreeMemory:
    """The page of one process."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), PAGE.size)

    def read(self):
        """(free bytes now, the least of this round)."""
        return PAGE.unpack(self.page)[2:]

    def begin(self, number, patience):
        """Begins a round. Returns the free bytes."""
        struct.pack_into("=Q", self.page, 0, number)
        until = time.monotonic() + patience
        while PAGE.unpack(self.page)[1] != number:
            if time.monotonic() > until:
                raise TimeoutError(f"free memory: the process did not answer in {patience} s")
            time.sleep(0.001)
        return self.read()[0]


class MemoryJob(ModeJob):
    """Makes `rebuilds` rebuilds; rows: one for each of them and each process."""

    def __init__(self, build, folder, library, a):
        super().__init__(build, folder, "memory", library, a.processes, 0, a.patience)
        self.wanted, self.rows = a.rebuilds, []

    def counters(self):
        """The counters of each process, in the order of slots."""
        return [m["counters"] for m in self.status()["members"]]

    def wait_for(self, condition, what):
        until = time.monotonic() + self.patience
        while not condition():
            if not self.alive() or time.monotonic() > until:
                raise TimeoutError(f"{what}: not within {self.patience} s, or the job ended")
            time.sleep(0.05)

    def builds(self):
        return [c.get("rewire_shim_builds_total", 0) for c in self.counters()]

    def all_retired(self, before):
        """Whether each process has reported new builds and the end of what they replace."""
        retired = [c.get("rewire_shim_retired_total", 0) for c in self.counters()]
        now = self.builds()
        return now == retired and all(a < b for a, b in zip(before, now))

    def rebuild_until_done(self):
        self.wait_for_world(self.patience)
        paths = [self.folder / f"memory.{process}" for process in range(self.processes)]
        self.wait_for(lambda: all(p.exists() and p.stat().st_size == PAGE.size for p in paths),
                      "free memory")
        pages = [FreeMemory(path) for path in paths]
        while self.rebuilds < self.wanted:
            # All kinds of operations have run, and NCCL has connected for each of them.
            time.sleep(1)
            before = [page.begin(self.rebuilds + 1, self.patience) for page in pages]
            done, built = self.rebuilds, self.builds()
            while self.rebuilds == done:
                if not self.rebuild():
                    return
            self.wait_for(lambda: self.all_retired(built),
                          "the destruction of the old generations")
            for process, counters in enumerate(self.counters()):
                now, least = pages[process].read()
                self.rows.append({"rebuild": done + 1, "process": process,
                                  "announced": counters["rewire_shim_build_expected_bytes"],
                                  "taken": counters["rewire_shim_build_taken_bytes"],
                                  "peak": before[process] - least,
                                  "kept": before[process] - now})


def measure(build, library, a):
    """The figures of one job."""
    with tempfile.TemporaryDirectory(prefix="rewire-memory-") as name:
        folder = pathlib.Path(name)
        job = MemoryJob(build, folder, pathlib.Path(library), a)
        try:
            verdict = job.run()
        except TimeoutError as error:
            print((folder / "output.txt").read_text(errors="replace")[-4000:], file=sys.stderr)
            sys.exit(f"memory: {error}")
    if job.rebuilds < 2:
        sys.exit(f"memory: {job.rebuilds} rebuilds: {'; '.join(job.refused)}")
    first, later = [], []
    for row in job.rows:
        ratio = row["peak"] / row["announced"] if row["announced"] else float("inf")
        (first if row["rebuild"] == 1 else later).append(ratio)
    return {"rebuilds": job.rebuilds, "faults": faults(verdict),
            "announced_bytes": statistics.median(row["announced"] for row in job.rows),
            "extra_bytes_peak": statistics.median(row["peak"] for row in job.rows),
            "extra_bytes_kept": max(row["kept"] for row in job.rows),
            "extra_bytes_peak_over_measured": max(later),
            "extra_bytes_peak_over_measured_median": statistics.median(later),
            "extra_bytes_peak_over_first_estimate": max(first),
            "rows": job.rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--libraries", default="", help="folders of NCCL builds: A:B")
    parser.add_argument("--rebuilds", type=int, default=20, help="rebuilds of a job")
    parser.add_argument("--processes", type=int, default=3, help="processes of a job")
    parser.add_argument("--patience", type=int, default=120,
                        help="seconds after which a process counts as hung")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    a = parser.parse_args()
    if a.rebuilds < 2:
        parser.error(f"--rebuilds {a.rebuilds}: must be at least 2")
    build = pathlib.Path(a.build).resolve()
    libraries = a.libraries.split(":") if a.libraries else [str(build / "simgpu")]
    result = {"schema": 1, "benchmark": "memory", "simulated": not a.libraries, "libraries": {}}
    for library in libraries:
        result["libraries"][pathlib.Path(library).name] = measure(build, library, a)
    figures = result["libraries"].values()
    result["extra_bytes_peak_over_measured"] = max(f["extra_bytes_peak_over_measured"]
                                                   for f in figures)
    passed = (result["extra_bytes_peak_over_measured"] <= 1.05
              and all(f["faults"] == 0 and f["rebuilds"] == a.rebuilds for f in figures))
    print(json.dumps(result) if a.json else json.dumps(result, indent=1))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
