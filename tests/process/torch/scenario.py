"""PyTorch scripts under `rewire run`, for tests with the arguments [--gpu] BUILD."""
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench" / "lib"))
from rewire_job import RewireJob  # noqa: E402

SHARING = []
GPU = sys.argv[1] == "--gpu"
if GPU:
    sys.argv.pop(1)
    sys.path.insert(0, str(ROOT / "tests" / "gpu"))
    from job import SHARING, need_gpu, need_torch
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
# The reports of steps come with the heartbeats. A small model makes 100 steps in 300 ms.
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "reconfig" / "python"), "REWIRE_HEARTBEAT_MS": "100",
               "REWIRE_SILENCE_MS": "60000", "REWIRE_BUILD_MS": "60000"}
LIBRARIES = f"{BUILD}/lib" if GPU else f"{BUILD}/lib:{BUILD}/simgpu"
PATIENCE = 120  # seconds
SKIPPED = 77  # the exit status that CTest counts as skipped


def python_with_torch():
    """Returns the first interpreter that has PyTorch, or None. Debian's python3-torch is for /usr/bin/python3 only."""
    for python in (sys.executable, "/usr/bin/python3"):
        found = subprocess.run([python, "-c", "import sys, importlib.util\n"
                                "sys.exit(importlib.util.find_spec('torch') is None)"], check=False)
        if found.returncode == 0:
            return python
    return None


PYTHON = python_with_torch()


class Scenario(unittest.TestCase):
    """A test with a job whose world changes."""

    job = None  # the last one

    def start(self, folder, *arguments, program, options=(), members=2):
        job = self.run_job(folder, [*program, *arguments], ("--max", "4", *options), members)
        self.assertTrue(job.wait_for_world(PATIENCE), self.output(folder))
        return job

    def run_job(self, folder, program, options, members=2):
        command = [*SHARING, PYTHON, *map(str, program)]
        self.job = RewireJob(BUILD, folder, members, None if GPU else BUILD / "simgpu", command, ENVIRONMENT, options)
        self.addCleanup(self.job.close)
        return self.job

    @staticmethod
    def output(folder):
        return (folder / "output.txt").read_text(errors="replace")

    def until(self, folder, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertIsNone(self.job.process.poll(), f"the job has ended before {what}:\n{self.output(folder)}")
            self.assertLess(time.monotonic(), deadline, f"no {what} in:\n{self.output(folder)}")
            time.sleep(0.05)

    def wait_for(self, folder, text):
        self.until(folder, lambda: text in self.output(folder), text)

    def finish(self, folder, job, members, errors=0, steps=100):
        """Ends the job after more steps. Returns the last lines' text, which must be the same on all members. errors: the exceptions that
        other members have printed."""
        ahead = folder / "ahead"
        ahead.write_text(str(self.updates(job) + steps))
        ahead.rename(folder / "last")
        return self.ended(folder, job, members, errors)

    def ended(self, folder, job, members, errors=0):
        self.assertTrue(job.wait(PATIENCE), self.output(folder))
        self.assertEqual(job.process.returncode, 0, self.output(folder))
        ends = re.findall("finished after.*", self.output(folder))
        self.assertEqual(len(ends), members, self.output(folder))
        self.assertEqual(len(set(ends)), 1, ends)
        killed = set(re.findall(r"rewire: member (\d+) was killed", self.output(folder)))  # its workers may print one
        raised = [member for member in re.findall(r"\[member (\d+)\] Traceback", self.output(folder))
                  if member not in killed]
        self.assertEqual(len(raised), errors, self.output(folder))
        self.assertNotIn("had returned", self.output(folder))  # no copy differed from its state
        return ends[0]

    @staticmethod
    def updates(job):
        # A joiner has reported none at first.
        return max(m["updates"] for m in job.status()["world"]["members"])

    def kill_after_copies(self, folder, job, slot, signum):
        """Ends a member after 5 more steps. Its neighbour has a copy of its state one step after a change."""
        def reported():
            return [m["updates"] for m in job.status()["world"]["members"]]

        # The others' reports may be older than the change.
        self.until(folder, lambda: min(reported()) > 0, "report of the new member")
        wanted = max(reported()) + 5
        self.until(folder, lambda: min(reported()) >= wanted, "5 more steps")
        self.kill(job, slot, signum)

    @staticmethod
    def kill(job, slot, signum):
        os.kill(next(m["pid"] for m in job.status()["world"]["members"] if m["slot"] == slot), signum)

    def command(self, job, *words):
        status, text = job.command(*words)
        self.assertEqual(status, 0, text)


def main():
    if GPU:
        need_gpu()
        need_torch()
    if PYTHON is None:
        print("skipped: no PyTorch (Debian: python3-torch)")
        sys.exit(SKIPPED)
    unittest.main()
