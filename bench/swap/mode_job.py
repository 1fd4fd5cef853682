"""One job of `./dev bench swap --mode`: starts the program, rebuilds, and judges the records."""

import json
import pathlib
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from first_operation import figures  # noqa: E402
from growth import growth, least_held  # noqa: E402
from rewire_job import RewireJob  # noqa: E402
from verdict import judge  # noqa: E402

DONE, WRONG = 0, 40  # RankStatus of bench/storm/board.h
# Reasons that a busy program gives: the rebuild is asked for again.
EXPECTED = ("no member has a communicator", "no common cut", "in time", "given up after")


def with_spy(build, library, folder):
    """A folder with the library's files, in which the spy has NCCL's place."""
    folder.mkdir()
    for file in library.iterdir():
        if not file.name.startswith("libnccl.so"):
            (folder / file.name).symlink_to(file.resolve())
    (folder / "libnccl.so.2").symlink_to(build / "swap_spy" / "libswap_spy.so")
    return folder


class ModeJob(RewireJob):
    """swaps: of each process, at least. soak_after: rebuilds after which growth is measured."""

    def __init__(self, build, folder, mode, library, processes, swaps, patience, soak_after=None):
        self.processes, self.swaps, self.patience = processes, swaps, patience
        self.soak_after = soak_after
        self.rebuilds, self.refused, self.growth = 0, [], {}
        environment = {"SIMGPU_MEMORY_MB": "32768", "REWIRE_SILENCE_MS": "15000",
                       "SWAP_SPY_NCCL": str((library / "libnccl.so.2").resolve()),
                       "SWAP_SPY_RECORDS": str(folder / "records")}
        program = [str(build / "bin" / "swap_rank"), "--folder", str(folder), "--mode", mode,
                   "--patience", str(patience)]
        super().__init__(build, folder, processes, with_spy(build, library, folder / "libraries"),
                         program, environment)

    def swaps_so_far(self):
        """The swaps of the process that has made the fewest, by Rewire's counters."""
        status = self.status()
        members = status["members"] if status is not None else []
        return min((m["counters"].get("rewire_shim_swaps_total", 0) for m in members), default=0)

    def held(self):
        """Returns the resources of each process, or None if the job is ending."""
        status = self.status()
        try:
            return least_held([m["pid"] for m in status["members"]]) if status else None
        except FileNotFoundError:
            return None

    def rebuild(self):
        """Returns whether the job can go on."""
        status, text = self.command("rebuild", "--reason", "bench", "--timeout",
                                    f"{self.patience}s")
        if status == 0 and json.loads(text)["transition"]["result"] == "committed":
            self.rebuilds += 1
            return True
        if any(reason in text for reason in EXPECTED):
            time.sleep(0.1)
            return True
        self.refused.append(text)
        return False

    def rebuild_until_done(self):
        self.wait_for_world(self.patience)
        until = time.monotonic() + 30 * self.patience
        before = half = None
        while self.alive() and time.monotonic() < until and self.rebuild():
            if self.rebuilds == self.soak_after and before is None:
                before = self.held()
            swaps = self.swaps_so_far()
            if before is not None and half is None and 2 * swaps >= self.swaps:
                half = self.held()
            if swaps >= self.swaps:
                break
        after = self.held() if half is not None and self.alive() else None
        if after is not None and after.keys() == before.keys() == half.keys():
            self.growth = growth(before, after)
            self.growth["va_growth_second_half"] = growth(half, after)["va_growth"]

    def results(self):
        """Returns each process's result, or None if the process left none."""
        paths = [self.folder / f"result.{process}" for process in range(self.processes)]
        return [json.loads(path.read_text()) if path.exists() else None for path in paths]

    def run(self):
        """Returns the verdict."""
        try:
            self.rebuild_until_done()
            (self.folder / "end").touch()
            ended = self.wait(2 * self.patience)
        finally:
            self.close()
        results = self.results()
        records = sorted(self.folder.glob("records.*"))
        verdict = judge(results, records)
        missing = sum(1 for r in results if r is None or r["status"] not in (DONE, WRONG))
        # A process may also fail at its end, after its result.
        failed = self.process.returncode != 0 and verdict["wrong_data"] == 0
        verdict["hangs"] = max(missing, int(not ended or failed)) + len(self.refused)
        verdict["rebuilds"] = self.rebuilds
        verdict.update(self.growth)
        verdict.update(figures(results, records))
        if self.refused:
            verdict["refused"] = self.refused
        return verdict


def faults(verdict):
    return sum(verdict[key] for key in ("stale_ops", "lost_ops", "wrong_data", "hangs"))


def run(build, mode, library, a, swaps, soak_after=None):
    """Runs one job with the arguments of swap.py; returns its verdict."""
    with tempfile.TemporaryDirectory(prefix="rewire-swap-") as name:
        folder = pathlib.Path(name)
        job = ModeJob(build, folder, mode, pathlib.Path(library), a.processes, swaps, a.patience,
                      soak_after)
        verdict = job.run()
        if faults(verdict):
            output = (folder / "output.txt").read_text(errors="replace")
            print("\n".join(output.splitlines()[-40:]), file=sys.stderr)
            if a.keep:
                shutil.copytree(folder, pathlib.Path(a.keep) / mode, dirs_exist_ok=True,
                                symlinks=True, ignore=shutil.ignore_patterns("*.sock", "job-*"))
    return verdict
