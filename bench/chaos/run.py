"""One run of the chaos benchmark: a job, its faults, the permitted outcomes, and the verdict."""

import os
import pathlib
import random
import signal
import subprocess
import time

import faults
import processes
from job import Job, JobError
from steps import StepLog, losses

TRAINING = ["--exact", "--width", "16", "--layers", "1", "--heads", "2", "--steps", "1000000", "--batch", "4",
            "--context", "16"]
MARK = "CHAOS_RUN"  # in the environment of every process of a run
MOST = 5
PATIENCE_S = 180  # for a change, a recovery, and the end of a job, on a host with too much to do


class Run:
    """A job and its permitted outcomes.

    A fault predicts its outcome before it is injected: expect_loss() names members that the world
    may lose, must_end() says that the job cannot survive, and may_end that the job may or may not.
    The verdict compares the outcome with these predictions.
    """

    def __init__(self, build, folder, seed):
        self.build, self.folder, self.seed = pathlib.Path(build), pathlib.Path(folder), seed
        self.random = random.Random(seed)
        self.members = self.random.randint(2, MOST)
        self.most = MOST
        self.zero = self.random.randint(0, 1)
        # Without copies in the next slot, a ZeRO-1 job survives no death.
        self.buddy = self.zero == 0 or self.random.random() < 0.85
        self.mark = f"{os.getpid()}-{seed}"
        self.log = StepLog(self.folder / "steps")
        self.job = None
        self.did = []  # (name of the fault, description)
        self.lost = set()
        self.refused = 0  # changes
        self.may_end = False
        self.end = None  # (reason, exit statuses) of the end that must come
        self.folder_stays = False  # the job's folder remains until the next job removes it
        self.limit_reached = False
        self.wrong = self.different = ""
        self.left = []

    def __str__(self):
        buddy = "" if self.buddy else " without copies"
        return f"{self.members} members, ZeRO-{self.zero}{buddy}"

    # ---- used by faults.py
    def world(self):
        """Returns [(slot, member, pid)]."""
        return self.job.slots()

    def launcher(self):
        return processes.parent(self.agent())

    def agent(self):
        return self.job.status()["agent"]["pid"]

    def survives(self, slots, size):
        """Returns whether the state of a world of `size` slots survives the loss of these slots."""
        if len(slots) >= size:
            return False
        if self.zero == 0:
            return True
        # Under ZeRO-1 a slot's optimizer state exists once, and its copy is in the next slot.
        return self.buddy and not any((s + 1) % size in slots for s in slots)

    def expect_loss(self, members):
        self.lost |= set(members)

    def must_end(self, reason="", statuses=None):
        self.end = (reason, statuses)
        self.expect_loss(m for _, m, _ in self.world())

    def begin(self, *arguments):
        return subprocess.Popen([self.job.rewire, arguments[0], "--quiet", "--socket", self.job.socket,
                                 *map(str, arguments[1:])],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)

    def finish(self, command):
        """Returns (status, output) of a started change. The change may be refused or fail; a hang raises."""
        try:
            output, _ = command.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            command.kill()
            command.communicate()
            raise JobError(f"`{' '.join(command.args)}` did not end within {PATIENCE_S} s") from None
        return command.returncode, output

    def change(self, *arguments):
        """Returns whether a change was made. A refusal has a reason and changes nothing."""
        status, output = self.finish(self.begin(*arguments))
        if status != 0 and "rewire: " not in output:
            raise JobError(f"rewire {arguments[0]}: status {status} without a reason: {output.strip()}")
        self.refused += status != 0
        return status == 0

    def wait(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise JobError(f"{what} did not happen within {PATIENCE_S} s")
            time.sleep(0.1)

    # ---- the run
    def settle(self):
        """Waits until no change is pending and every shard has its copy again, 5 steps later."""
        self.job.cli("wait", "--timeout", str(PATIENCE_S), timeout=PATIENCE_S + 10)
        self.log.poll()
        self.job.wait_step(self.log.last_step() + 5)

    def perform(self):
        """Runs the job to its end and sets wrong, different and left; each is empty if good.

        The caller checks mistaken_losses() as well.
        """
        try:
            self._disturb()
            self._await_end()
        except (JobError, subprocess.SubprocessError, OSError, ValueError, LookupError) as error:
            self.wrong = f"{type(error).__name__}: {error}"
            if self._is_known_limit():
                self.limit_reached, self.wrong = True, ""
        finally:
            if self.job is not None:
                self.job.close()
        # _difference() may raise, and no process may remain then.
        self._look_for_leftovers()
        self.log.poll()
        self.different = self._difference()

    def _disturb(self):
        (self.folder / "steps").mkdir(parents=True)
        program = [str(self.build / "bin" / "gpt_train"), *TRAINING, "--zero", str(self.zero),
                   "--stop-file", str(self.folder / "stop"), "--log", str(self.folder / "steps" / "{member}.jsonl")]
        self.job = Job(self.build, self.folder, self.members, MOST, program, self.log, ["--job", "chaos"],
                       {MARK: self.mark, "REWIRE_BUDDY": "1" if self.buddy else "0"})
        self.job.wait_step(1)
        self.settle()
        for _ in range(self.random.randint(1, 3)):
            self._strike(self.random.choice(faults.possible(self)))
            self.settle()
        if self.random.random() < 0.25:
            self._strike(self.random.choice(faults.deadly(self)))

    def _strike(self, fault):
        # The name comes first, so that a fault that raises is reported too.
        self.did.append((fault.__name__, f"({fault.__name__})"))
        self.did[-1] = (fault.__name__, fault(self))

    def _await_end(self):
        if self.end is None:
            (self.folder / "stop").touch()
            return self.job.finish(PATIENCE_S)
        reason, statuses = self.end
        try:
            status = self.job.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise JobError(f"the job did not end within {PATIENCE_S} s after a fault that it cannot survive") from None
        if status == 0 or (statuses is not None and status not in statuses):
            raise JobError(f"the job ended with status {status} after a fault that it cannot survive")
        if reason not in self.output():
            raise JobError(f"the job ended without the reason '{reason}'")

    def _is_known_limit(self):
        """Returns whether the job was permitted to end, ended, and reported a reason."""
        if not self.may_end or faults.STATE_IS_LOST not in self.output():
            return False
        try:
            return self.job.process.wait(PATIENCE_S) != 0
        except subprocess.TimeoutExpired:
            return False

    def output(self):
        return (self.folder / "output.txt").read_text(errors="replace")

    def mistaken_losses(self):
        """Returns members that counted as lost although no fault had hit them."""
        found = set()
        for line in self.output().splitlines():
            if " is lost: " in line and "member " in line:
                found.add(int(line.split(" is lost: ")[0].rsplit("member ", 1)[1]))
        return sorted(found - self.lost)

    def _difference(self):
        """Describes the difference from an undisturbed run of as many steps; empty: none."""
        trained = losses(self.log)
        if not trained:
            return "" if self.wrong else "no step was logged"
        folder = self.folder / "undisturbed"
        folder.mkdir()
        command = [str(self.build / "bin" / "gpt_train"), *TRAINING, "--zero", str(self.zero), "--no-rewire",
                   "--stop-after", str(self.log.last_step() + 1), "--log", str(folder / "0.jsonl")]
        done = subprocess.run(command, env=dict(os.environ, LD_LIBRARY_PATH=str(self.build / "simgpu")),
                              capture_output=True, text=True, timeout=300, check=True)
        undisturbed = StepLog(folder)
        undisturbed.poll()
        expected = losses(undisturbed)
        differing = [step for step, bits in trained.items() if bits != expected.get(step)]
        if differing:
            return f"{len(differing)} losses differ, the first at step {min(differing)}"
        if self.end is not None or self.limit_reached or self.wrong:
            return ""
        finals = [line for line in self.output().splitlines() if "final step" in line]
        if len(finals) != 1:
            return f"{len(finals)} final lines"
        final = finals[0][finals[0].index("final step"):]
        return "" if final in done.stdout else f"the end is '{final}', undisturbed '{done.stdout.strip()[-200:]}'"

    def _look_for_leftovers(self):
        """Records processes and job folders left some seconds after the end; kills the former."""
        left = processes.await_none(f"{MARK}={self.mark}", 10)
        self.left = [f"process {pid}: {name}" for pid, name in left]
        for pid, _ in left:
            processes.send(pid, signal.SIGKILL)
        if self.folder_stays and not self.wrong:
            subprocess.run([self.job.rewire, "run", "--dir", str(self.job.runtime), "--job", "next", "--no-preload",
                            "--", "/bin/true"], capture_output=True, timeout=PATIENCE_S, check=True)
        if self.job is not None and self.job.runtime.is_dir():
            self.left += [f"folder {path.name}" for path in self.job.runtime.iterdir()]
