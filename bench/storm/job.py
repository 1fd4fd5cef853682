"""One job of a storm: runs `rewire run` with ranks of storm_rank and records the outcome."""

import json
import os
import pathlib
import random
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from rewire_job import RewireJob  # noqa: E402

DONE, WRONG, LOST, UNEXPECTED, HUNG = 0, 40, 41, 42, 43  # RankStatus of board.h


class Scenario:
    """A seed's choices for the controller. The ranks draw their scripts from the same seed."""

    def __init__(self, seed, rank_counts, attempts):
        draw = random.Random(seed)
        self.seed = seed
        self.random = draw
        self.ranks = draw.choice(rank_counts)
        # More would need more than 24 GiB of host memory with NCCL.
        self.threads = min(draw.choice([1, 1, 2, 3]), 8 // self.ranks)
        self.attempts = attempts
        # Some builds do not end in time, so that their cancellation is tested. A build takes tens
        # of milliseconds on simgpu and seconds on NCCL, so the deadlines spread over both.
        self.build_ms = draw.choice([None, None, None, round(200 * 100 ** draw.random())])
        self.kill_after = draw.randrange(attempts) if draw.random() < 0.2 else None
        self.killed_rank = draw.randrange(self.ranks)
        # The kill follows a rebuild's request by this many seconds. None: no rebuild runs then.
        self.kill_in = draw.choice([None, draw.random()])

    def text(self):
        parts = [f"seed {self.seed}", f"{self.ranks} ranks", f"{self.threads} threads"]
        if self.build_ms is not None:
            parts.append(f"REWIRE_BUILD_MS={self.build_ms}")
        if self.kill_after is not None:
            beside = "" if self.kill_in is None else f" and {self.kill_in:.2f} s of the next"
            parts.append(f"rank {self.killed_rank} killed after {self.kill_after} rebuilds{beside}")
        return ", ".join(parts)


class Job(RewireJob):
    def __init__(self, build, folder, scenario, libraries, without, patience):
        self.scenario = scenario
        self.patience = patience
        self.rebuilds = 0
        self.explained = []    # refusals with a reason that the scenario gives
        self.unexplained = []  # all others
        self.killed = None
        # Only a short deadline of the scenario may pass, however busy the machine is. A creation
        # after a kill ends at its build deadline, before the creation counts as a hang.
        build_ms = scenario.build_ms or 500 * patience
        # NCCL gives a communicator of four ranks 400 MB of host memory with its default of 4 MiB, and
        # three generations of 18 communicators may exist at a time. With 1 MiB it is two thirds.
        environment = {"REWIRE_SILENCE_MS": "15000", "REWIRE_BUILD_MS": str(build_ms),
                       "SIMGPU_MEMORY_MB": "32768", "NCCL_BUFFSIZE": str(1 << 20)}
        program = [str(build / "bin" / "storm_rank"), "--folder", folder,
                   "--seed", str(scenario.seed), "--threads", str(scenario.threads),
                   "--patience", str(patience)]
        if without:
            program += ["--without", without]
        super().__init__(build, pathlib.Path(folder), scenario.ranks, libraries, program,
                         environment)

    def rebuild(self):
        status, text = self.command("rebuild", "--reason", "storm", "--timeout", f"{2 * self.patience}s")
        if status == 0:
            transition = json.loads(text)["transition"]
            if transition and transition["result"] == "committed":
                self.rebuilds += 1
                return
            text = transition["summary"] if transition else ""
        if not self.alive():
            return
        built_late = self.scenario.build_ms is not None and (
            "in time" in text or "REWIRE_BUILD_MS" in text)
        # Communicators were created and destroyed faster than they can be rebuilt.
        changed = "created communicator" in text or "destroyed communicator" in text
        # The ranks have joined, and create their first communicators only now.
        early = self.rebuilds == 0 and "no member has a communicator" in text
        lost = self.killed is not None and "lost" in text
        explained = built_late or changed or early or lost
        (self.explained if explained else self.unexplained).append(text)

    def kill_rank(self):
        """Kills the scenario's rank, during a rebuild if the scenario says so."""
        status = self.status()
        if status is None:
            return
        rank = self.scenario.killed_rank
        pid = next(m["pid"] for m in status["world"]["members"] if m["slot"] == rank)
        rebuild = threading.Thread(target=self.rebuild)
        if self.scenario.kill_in is not None:
            rebuild.start()
            time.sleep(self.scenario.kill_in)
        self.killed = rank  # before the refusal that the kill causes
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            self.killed = None  # the rank ended by itself
        if self.scenario.kill_in is not None:
            rebuild.join()

    def let_change(self, changes):
        """Sets whether ranks may create and destroy communicators from their next vote on."""
        keep = self.folder / "keep"
        if changes:
            keep.unlink(missing_ok=True)
        else:
            keep.touch()

    def run(self):
        if not self.wait_for_world(self.patience):
            self.unexplained.append("the job has no world")
        # Rewire refuses a rebuild that meets a change by the program: attempts outnumber rebuilds.
        for attempt in range(3 * self.scenario.attempts):
            if self.rebuilds == self.scenario.attempts:
                break
            if attempt == self.scenario.kill_after:
                self.kill_rank()
            if self.killed is not None or not self.alive():
                break
            self.let_change(self.scenario.random.random() < 0.2)
            time.sleep(self.scenario.random.random() * 0.3)
            self.rebuild()
        # After a kill the loss must end the job. The killed rank may have issued its part of the
        # next vote, so an "end" file could still let the other ranks agree on a normal end.
        if self.killed is None:
            (self.folder / "end").touch()
        return self.wait(2 * self.patience)

    def statuses(self):
        """{rank: its result with a RankStatus}; None: the rank ended without a result."""
        found = {}
        for rank in range(self.scenario.ranks):
            path = self.folder / f"result.{rank}"
            found[rank] = json.loads(path.read_text()) if path.exists() else None
        return found
