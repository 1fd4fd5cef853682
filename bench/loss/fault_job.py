"""One job of the loss benchmark: runs ranks of loss_rank, and kills or stops one of them."""

import json
import mmap
import os
import pathlib
import random
import select
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from rewire_job import library_options  # noqa: E402

MOST_RANKS = 8
STARTED, CREATING, RUNNING, ENDED = range(4)  # Stage of fault_page.h
MOMENTS = ("creation", "use", "use", "rebuild", "teardown")


class Page:
    """The page of fault_page.h: the time of the fault, then the process id and stage of each rank."""

    def __init__(self, path):
        path.write_bytes(bytes(8 + 16 * MOST_RANKS))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def set_fault(self, nanoseconds):
        struct.pack_into("<q", self._map, 0, nanoseconds)

    def pid(self, rank):
        return struct.unpack_from("<q", self._map, 8 + 16 * rank)[0]

    def stage(self, rank):
        return struct.unpack_from("<q", self._map, 16 + 16 * rank)[0]

    def close(self):
        self._map.close()


class FaultJob:
    """The choices of a seed, and the outcome: problem, fault_ns, lanes, hung and crashed ranks."""

    def __init__(self, build, folder, seed, stops, libraries, patience, sizes):
        draw = self.random = random.Random(seed)
        self.seed, self.stops, self.patience = seed, stops, patience
        self.ranks = draw.choice(sizes)
        self.victim = draw.randrange(self.ranks)
        self.moment = draw.choice(MOMENTS)
        self.build, self.folder = pathlib.Path(build), pathlib.Path(folder)
        self.socket = str(self.folder / "agent.sock")
        self.rewire = str(self.build / "bin" / "rewire")
        self.page = Page(self.folder / "page")
        self.fault_ns = None   # None: the job or its victim ended before the fault
        self.exit_ms = None    # until the kernel reported the end of a killed process
        self.problem = ""      # of the job before the fault
        self.lanes = []        # of the survivors: the lines of their results, with "rank"
        self.hung, self.crashed = [], []
        self.load = os.getloadavg()[0]
        # A communicator of NCCL takes up to half a GiB, and a rebuild needs the memory twice.
        options, places = library_options(libraries)
        environment = dict(os.environ, SIMGPU_MEMORY_MB="32768", **places)
        self.output = open(self.folder / "output.txt", "wb")
        self.process = subprocess.Popen(
            [self.rewire, "run", "-n", str(self.ranks), *options,
             "--dir", str(self.folder / "run"), "--socket", self.socket, "--",
             str(self.build / "bin" / "loss_rank"), "--folder", str(self.folder),
             "--seed", str(seed), "--patience", str(patience)],
            stdout=self.output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
            start_new_session=True)

    def __str__(self):
        how = "stop" if self.stops else "kill"
        return f"seed {self.seed}: {self.ranks} members, {how} of rank {self.victim} in {self.moment}"

    def text(self):
        return (self.folder / "output.txt").read_text(errors="replace")

    def _survivors(self):
        return [rank for rank in range(self.ranks) if rank != self.victim]

    def _wait(self, condition):
        """Returns whether the condition became true before the patience and the job's end."""
        deadline = time.monotonic() + self.patience
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                return condition()
            time.sleep(0.002)
        return True

    def _knows_victim(self):
        """Returns whether the victim has connected to the agent."""
        done = subprocess.run([self.rewire, "status", "--json", "--socket", self.socket],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return False
        return any(m["member"] == self.victim and m["state"] in ("joining", "training")
                   for m in json.loads(done.stdout)["members"])

    def _await_moment(self):
        """Returns whether the job came to the moment, with a random delay."""
        page, delay = self.page, self.random.random()
        if self.moment == "creation":
            reached = self._wait(lambda: page.stage(self.victim) >= CREATING)
            # The silence of a process that the agent does not know is no loss (docs/limits.md).
            if reached and self.stops:
                reached = self._wait(self._knows_victim)
            time.sleep(0.3 * delay)
            return reached
        if not self._wait(lambda: all(page.stage(r) == RUNNING for r in range(self.ranks))):
            return False
        time.sleep(0.5 * self.random.random())
        if self.moment == "rebuild":
            with open(self.folder / "rebuild.txt", "wb") as output:
                self._rebuild = subprocess.Popen(
                    [self.rewire, "rebuild", "--socket", self.socket], stdout=output,
                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            time.sleep(0.4 * delay)
        if self.moment == "teardown":
            (self.folder / "end").touch()
            time.sleep(0.06 * delay)
        return True

    def _strike(self):
        pid = self.page.pid(self.victim)
        if self.page.stage(self.victim) == ENDED:
            return
        try:
            end = os.pidfd_open(pid)
        except ProcessLookupError:
            return  # the rank ended by itself
        try:
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            self.page.set_fault(now)
            signal.pidfd_send_signal(end, signal.SIGSTOP if self.stops else signal.SIGKILL)
            self.fault_ns = now
            if not self.stops and select.select([end], [], [], self.patience)[0]:
                self.exit_ms = (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - now) / 1e6
        except ProcessLookupError:
            pass
        finally:
            os.close(end)

    def perform(self):
        self._rebuild = None
        try:
            if not self._await_moment():
                self.problem = "the job did not come to the moment"
                return
            self._strike()
            if self.fault_ns is None:
                return
            paths = {r: self.folder / f"result.{r}" for r in self._survivors()}
            # A rank's watchdog ends the rank after the patience.
            deadline = time.monotonic() + self.patience + 20
            while time.monotonic() < deadline and self.process.poll() is None:
                if all(path.exists() for path in paths.values()):
                    break
                time.sleep(0.02)
            for rank, path in paths.items():
                if path.exists():
                    self.lanes += [dict(json.loads(line), rank=rank)
                                   for line in path.read_text().splitlines()]
                else:
                    self._judge(rank)
        finally:
            self._end()

    def _judge(self, rank):
        """A rank without a result hangs, unless it crashed before anyone ended it."""
        text = self.text()
        asked = "are asked to end" in text or f"rank {rank} thread" in text
        alive = pathlib.Path(f"/proc/{self.page.pid(rank)}").exists()
        (self.hung if asked or alive else self.crashed).append(rank)

    def _end(self):
        if self.stops and self.fault_ns is not None and self.process.poll() is None:
            try:
                os.kill(self.page.pid(self.victim), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.problem or self.hung or self.fault_ns is None:
            (self.folder / "end").touch()
        for number, seconds in ((None, 15), (signal.SIGTERM, 40), (signal.SIGKILL, 10)):
            if number is not None:
                os.killpg(self.process.pid, number)
            try:
                self.process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                pass
        if self._rebuild is not None:
            try:
                self._rebuild.wait(10)
            except subprocess.TimeoutExpired:
                self._rebuild.kill()
                self._rebuild.wait()
        self.output.close()
        self.page.close()

    def waits(self):
        """Returns [(ms from the fault to the lane's end, lane)] of lanes that ended after the fault.

        The end of a lane that had no error includes its normal calls after the fault.
        """
        found = []
        for lane in self.lanes:
            record = lane["record"]
            if record["ended_ns"] > self.fault_ns and not record["error"].startswith("rendezvous"):
                found.append(((record["ended_ns"] - self.fault_ns) / 1e6, lane))
        return found
