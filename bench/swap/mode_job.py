"""One job of `./dev bench swap --mode`: starts the program, rebuilds, and judges the records."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from growth import growth, least_held
from verdict import judge

DONE = 0  # RankStatus of bench/storm/board.h
# Reasons that a busy program gives: the rebuild is asked for again.
EXPECTED = ("no member has a communicator", "no common cut", "in time")


class ModeJob:
    def __init__(self, build, mode, library, processes, swaps, patience, keep):
        self.build = build
        self.mode = mode
        self.library = pathlib.Path(library)
        self.processes = processes
        self.swaps = swaps
        self.patience = patience
        self.keep = keep
        self.refused = []
        self.soak_after = None  # measures growth from this number of rebuilds on
        self.before = self.grown = None

    def libraries_with_spy(self, folder):
        """A folder with the library's files, in which the spy has NCCL's place."""
        inside = folder / "libraries"
        inside.mkdir()
        for file in self.library.iterdir():
            if not file.name.startswith("libnccl.so"):
                (inside / file.name).symlink_to(file.resolve())
        (inside / "libnccl.so.2").symlink_to(self.build / "swap_spy" / "libswap_spy.so")
        return inside

    def start(self, folder):
        environment = dict(os.environ, SIMGPU_MEMORY_MB="32768", REWIRE_SILENCE_MS="15000",
                           SWAP_SPY_NCCL=str((self.library / "libnccl.so.2").resolve()),
                           SWAP_SPY_RECORDS=str(folder / "records"))
        command = [str(self.build / "bin" / "rewire"), "run", "-n", str(self.processes),
                   f"--sim={self.libraries_with_spy(folder)}", "--dir", str(folder),
                   "--socket", str(folder / "agent.sock"), "--",
                   str(self.build / "bin" / "swap_rank"), "--folder", str(folder),
                   "--mode", self.mode, "--patience", str(self.patience)]
        self.output = open(folder / "output.txt", "wb")
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, env=environment,
                                        start_new_session=True)
        self.folder = folder

    def command(self, *words):
        """(status, text) of a rewire command."""
        done = subprocess.run([str(self.build / "bin" / "rewire"), words[0], "--json", "--socket",
                               str(self.folder / "agent.sock"), *words[1:]],
                              capture_output=True, text=True, check=False)
        return done.returncode, (done.stdout if done.returncode == 0 else done.stderr).strip()

    def swaps_so_far(self):
        """The swaps of the member that has made the fewest, by Rewire's counters."""
        status, text = self.command("status")
        if status != 0:
            return 0
        members = json.loads(text)["members"]
        return min((m["counters"].get("rewire_shim_swaps_total", 0) for m in members), default=0)

    def pids(self):
        return [m["pid"] for m in json.loads(self.command("status")[1])["members"]]

    def wait_for_world(self):
        until = time.monotonic() + self.patience
        while self.process.poll() is None and time.monotonic() < until:
            status, text = self.command("status")
            if status == 0 and json.loads(text)["steady"]:
                return
            time.sleep(0.05)

    def rebuild_until_done(self):
        self.wait_for_world()
        until = time.monotonic() + 30 * self.patience
        rebuilt = 0
        while self.process.poll() is None and time.monotonic() < until:
            status, text = self.command("rebuild", "--reason", "bench",
                                        "--timeout", f"{self.patience}s")
            if status == 0 and json.loads(text)["transition"]["result"] == "committed":
                rebuilt += 1
            elif any(reason in text for reason in EXPECTED):
                time.sleep(0.1)
            else:
                self.refused.append(text)
                return rebuilt
            if rebuilt == self.soak_after:
                self.before = least_held(self.pids())
            if self.swaps_so_far() >= self.swaps:
                break
        if self.before is not None and self.process.poll() is None:
            self.grown = growth(self.before, least_held(self.pids()))
        return rebuilt

    def finish(self):
        """Ends the program; returns False if a process hung."""
        (self.folder / "end").touch()
        try:
            self.process.wait(2 * self.patience)
            return True
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            return False

    def results(self):
        found = []
        for process in range(self.processes):
            path = self.folder / f"result.{process}"
            found.append(json.loads(path.read_text()) if path.exists() else None)
        return found

    def run(self):
        with tempfile.TemporaryDirectory(prefix="rewire-swap-") as name:
            self.start(pathlib.Path(name))
            try:
                rebuilt = self.rebuild_until_done()
            finally:
                ended = self.finish()
                self.output.close()
            results = self.results()
            verdict = judge(results, sorted(self.folder.glob("records.*")))
            missing = sum(1 for r in results if r is None or r["status"] not in (DONE, 40))
            verdict["hangs"] = missing + (0 if ended or missing else 1) + len(self.refused)
            verdict["rebuilds"] = rebuilt
            verdict.update(self.grown or {})
            if self.refused:
                verdict["refused"] = self.refused
            faults = sum(verdict[k] for k in ("stale_ops", "lost_ops", "wrong_data", "hangs"))
            if faults:
                output = (self.folder / "output.txt").read_text(errors="replace")
                print("\n".join(output.splitlines()[-40:]), file=sys.stderr)
                if self.keep:
                    shutil.copytree(self.folder, pathlib.Path(self.keep) / self.mode,
                                    dirs_exist_ok=True, symlinks=True,
                                    ignore=shutil.ignore_patterns("*.sock", "job-*"))
        return verdict
