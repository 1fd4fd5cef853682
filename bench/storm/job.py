"""One job of a storm: runs `rewire run` with ranks of storm_rank and records the outcome."""

import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

DONE, WRONG, LOST, UNEXPECTED, HUNG = 0, 40, 41, 42, 43  # RankStatus of board.h


class Scenario:
    """A seed's choices for the controller. The ranks draw their scripts from the same seed."""

    def __init__(self, seed, rank_counts, attempts):
        draw = random.Random(seed)
        self.seed = seed
        self.random = draw
        self.ranks = draw.choice(rank_counts)
        self.threads = draw.choice([1, 1, 2, 3])
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


class Job:
    def __init__(self, build, folder, scenario, libraries, without, patience):
        self.rewire = str(build / "bin" / "rewire")
        self.folder = pathlib.Path(folder)
        self.scenario = scenario
        self.patience = patience
        self.socket = str(self.folder / "agent.sock")
        self.rebuilds = 0
        self.explained = []    # refusals with a reason that the scenario gives
        self.unexplained = []  # all others
        self.killed = None
        # Only a short deadline of the scenario may pass, however busy the machine is. A creation
        # after a kill ends at its build deadline, before the creation counts as a hang.
        build_ms = scenario.build_ms or 500 * patience
        # A communicator of NCCL takes up to half a GiB, and a swap needs the memory twice.
        environment = dict(os.environ, REWIRE_SILENCE_MS="15000", REWIRE_BUILD_MS=str(build_ms),
                           SIMGPU_MEMORY_MB="32768")
        command = [self.rewire, "run", "-n", str(scenario.ranks), f"--sim={libraries}",
                   "--dir", str(self.folder), "--socket", self.socket, "--",
                   str(build / "bin" / "storm_rank"), "--folder", str(self.folder),
                   "--seed", str(scenario.seed), "--threads", str(scenario.threads),
                   "--patience", str(patience)]
        if without:
            command += ["--without", without]
        self.output = open(self.folder / "output.txt", "wb")
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, env=environment,
                                        start_new_session=True)

    def command(self, *words):
        """(status, text) of a rewire command."""
        done = subprocess.run([self.rewire, words[0], "--json", "--socket", self.socket, *words[1:]],
                              capture_output=True, text=True, check=False)
        return done.returncode, (done.stdout if done.returncode == 0 else done.stderr).strip()

    def alive(self):
        return self.process.poll() is None

    def wait_for_world(self):
        deadline = time.monotonic() + self.patience
        while self.alive() and time.monotonic() < deadline:
            status, text = self.command("status")
            if status == 0 and json.loads(text)["steady"]:
                return True
            time.sleep(0.05)
        return False

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
        status, text = self.command("status")
        if status != 0:
            return
        rank = self.scenario.killed_rank
        pid = next(m["pid"] for m in json.loads(text)["world"]["members"] if m["slot"] == rank)
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
        if not self.wait_for_world():
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
        try:
            self.process.wait(2 * self.patience)
            return True
        except subprocess.TimeoutExpired:
            return False

    def close(self):
        """Ends the job if the job still runs."""
        if self.alive():
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.output.close()

    def statuses(self):
        """{rank: its result with a RankStatus}; None: the rank ended without a result."""
        found = {}
        for rank in range(self.scenario.ranks):
            path = self.folder / f"result.{rank}"
            found[rank] = json.loads(path.read_text()) if path.exists() else None
        return found
