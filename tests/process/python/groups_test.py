#!/usr/bin/env python3
"""groups_test.py BUILD: the communicators of groups follow the layout when the world grows, shrinks and loses members."""
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench" / "lib"))
from rewire_job import RewireJob  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
LIBRARIES = os.environ.get("NCCL_HOST_LIBRARIES") or BUILD / "simgpu"
PROGRAM = pathlib.Path(__file__).resolve().parent / "groups_program.py"
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "reconfig" / "python"), "REWIRE_SILENCE_MS": "30000"}
PATIENCE = 60


class GroupsTest(unittest.TestCase):
    def setUp(self):
        # pylint: disable=consider-using-with
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="rewire-groups-")))
        self.stop = self.folder / "stop"

    def start(self, processes):
        self.job = RewireJob(BUILD, self.folder, processes, LIBRARIES,
                             [sys.executable, str(PROGRAM), str(self.stop)], ENVIRONMENT, ["--max", "6"])
        self.addCleanup(self.job.close)
        self.assertTrue(self.job.wait_for_world(PATIENCE), self.output())

    def output(self):
        return (self.folder / "output.txt").read_text(errors="replace")

    def step(self):
        return max(m["updates"] for m in self.job.status()["world"]["members"])

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"no {what} in:\n{self.output()}")
            time.sleep(0.05)

    def train(self, steps=5):
        wanted = self.step() + steps
        self.until(lambda: min(m["updates"] for m in self.job.status()["world"]["members"]) >= wanted, "more steps")

    def command(self, *words):
        status, text = self.job.command(*words)
        self.assertEqual(status, 0, text + self.output())
        self.train()

    def write(self, path, number):
        ahead = self.folder / "ahead"
        ahead.write_text(str(number))
        ahead.rename(path)

    def make_again(self):
        step = self.step() + 50
        self.write(self.folder / "again", step)
        members = len(self.job.status()["world"]["members"])
        self.until(lambda: self.output().count(f"step {step}: made again") == members, "communicators made again")
        (self.folder / "again").unlink()

    def kill(self, slot):
        world = self.job.status()["world"]["members"]
        os.kill(next(m["pid"] for m in world if m["slot"] == slot), signal.SIGKILL)
        self.until(lambda: len(self.job.status()["world"]["members"]) == len(world) - 1, "world without the member")
        self.train()

    def end(self):
        steps = [int(n) for n in re.findall(r"step (\d+)", self.output())]
        self.write(self.stop, max(steps + [self.step()]) + 200)
        self.assertTrue(self.job.wait(PATIENCE), self.output())
        self.assertEqual(self.job.process.returncode, 0, self.output())
        self.assertNotIn("Traceback", self.output())

    def test_groups_follow_every_kind_of_change(self):
        self.start(2)
        self.command("resize", "4")
        self.command("rebuild")
        self.command("resize", "5")  # a spare slot
        self.command("replace", "0")
        self.command("drain", "1")
        self.kill(3)
        self.kill(0)
        self.command("resize", "6")
        self.end()

    def test_communicators_are_made_again_between_changes(self):
        self.start(4)
        self.make_again()
        self.command("resize", "5")
        self.make_again()
        self.kill(1)
        self.command("resize", "2")
        self.end()


if __name__ == "__main__":
    unittest.main()
