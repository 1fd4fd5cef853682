#!/usr/bin/env python3
"""world_test.py BUILD: a cooperating Python program grows, is drained, loses a member and ends, under `rewire run`."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench" / "lib"))
from rewire_job import RewireJob  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "reconfig" / "python"), "REWIRE_SILENCE_MS": "30000"}
PATIENCE = 60


def run_python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False,
                          env=dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "lib"), **ENVIRONMENT, **environment))


class WorldTest(unittest.TestCase):
    def setUp(self):
        # pylint: disable=consider-using-with
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="rewire-python-")))
        self.stop = self.folder / "stop"

    def start(self, processes, *options, mode=()):
        job = RewireJob(BUILD, self.folder, processes, BUILD / "simgpu",
                        [sys.executable, str(HERE / "world_program.py"), str(self.stop), *mode], ENVIRONMENT, options)
        self.addCleanup(job.close)
        self.assertTrue(job.wait_for_world(PATIENCE), self.output())
        return job

    def output(self):
        return (self.folder / "output.txt").read_text(errors="replace")

    def wait_for(self, *texts):
        self.until(lambda: all(text in self.output() for text in texts), texts)

    def pid_after_copies(self, job, slot):
        """The process of a slot, some steps later: its neighbour has a copy one step after a change."""
        def updates():
            return min(m["updates"] for m in job.status()["world"]["members"])
        wanted = updates() + 20
        self.until(lambda: updates() >= wanted, "20 more steps")
        return next(m["pid"] for m in job.status()["world"]["members"] if m["slot"] == slot)

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"no {what} in:\n{self.output()}")
            time.sleep(0.05)

    def command(self, job, *words):
        status, text = job.command(*words)
        self.assertEqual(status, 0, text)

    def end(self, job):
        steps = [int(n) for n in re.findall(r"step (\d+)", self.output())]
        ahead = self.folder / "ahead"
        ahead.write_text(str(max(steps, default=0) + 200))
        ahead.rename(self.stop)
        self.assertTrue(job.wait(PATIENCE), self.output())
        self.assertEqual(job.process.returncode, 0, self.output())

    def test_grows_is_drained_and_loses_a_member(self):
        job = self.start(2, "--max", "3")
        self.command(job, "resize", "3")
        self.wait_for(*(f"WORLD_CHANGED, slot {i} of 3" for i in range(3)))
        self.command(job, "drain", "1")
        self.wait_for("LEAVE", "WORLD_CHANGED, slot 1 of 2")
        self.command(job, "resize", "3")
        self.wait_for("WORLD_CHANGED, slot 2 of 3")
        os.kill(self.pid_after_copies(job, 0), signal.SIGKILL)
        self.wait_for("REPEAT, slot 0 of 2", "REPEAT, slot 1 of 2")
        self.end(job)
        self.assertNotIn("Traceback", self.output())
        self.assertEqual(self.output().count("finished at step"), 2)

    def test_a_layout_says_which_part_a_slot_has(self):
        done = run_python("from rewire.layouts import Piece, layout_part\n"
                          "from rewire.library import RewireError\n"
                          "layout = {'parallel': {'tensor': 2}, 'tensors': [\n"
                          "    {'name': 'w', 'shape': [6, 3], 'split': {'dim': 0, 'sections': [4, 2]}}]}\n"
                          "part = layout_part(layout, 'w', 1)\n"
                          "assert part.shape == (3, 3) and part.elements == 9, part\n"
                          "assert part.pieces == [Piece((2, 0), (4, 3), (3, 1), 0), Piece((5, 0), (6, 3), (3, 1), 6)]\n"
                          "try:\n"
                          "    layout_part(layout, 'v', 0)\n"
                          "except RewireError as error:\n"
                          "    print(error)\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tensor v: is not in the layout", done.stdout)

    def test_a_layout_says_in_which_group_a_slot_is(self):
        done = run_python("from rewire.layouts import Group, layout_group\n"
                          "from rewire.library import RewireError\n"
                          "layout = {'parallel': {'tensor': 2, 'data': 3, 'spare': 1}, 'tensors': []}\n"
                          "group = layout_group(layout, 'dp', 3)\n"
                          "assert group == Group(1, (1, 3, 5)), group\n"
                          "assert layout_group(layout, 'dp', 6) == Group(0, (6,))\n"
                          "try:\n"
                          "    layout_group(layout, 'tp-xx', 0)\n"
                          "except RewireError as error:\n"
                          "    print(error)\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("axes=tp-xx: must be", done.stdout)

    def test_a_member_drains_itself(self):
        job = self.start(2)
        member = next(m["member"] for m in job.status()["world"]["members"] if m["slot"] == 1)
        (self.folder / f"reclaim.{member}").touch()
        self.wait_for("LEAVE", "WORLD_CHANGED, slot 0 of 1")
        self.end(job)

    def test_a_member_that_raises_is_lost_and_the_others_go_on(self):
        job = self.start(3)
        os.kill(self.pid_after_copies(job, 1), signal.SIGINT)  # KeyboardInterrupt
        self.wait_for("KeyboardInterrupt", "REPEAT, slot 0 of 2", "REPEAT, slot 1 of 2")
        self.end(job)


    def test_an_update_that_changed_nothing_needs_no_copy(self):
        job = self.start(3, mode=["replicated"])
        self.pid_after_copies(job, 0)
        (self.folder / "die").touch()
        self.wait_for("REPEAT, slot 0 of 2", "REPEAT, slot 1 of 2")
        self.end(job)
        self.assertNotIn("Traceback", self.output())


class WithoutAnAgentTest(unittest.TestCase):
    def test_the_world_comes_from_the_environment_and_never_changes(self):
        done = run_python(
            "from rewire.world import *\n"
            "with Member() as m:\n"
            "    print(m.world)\n"
            "    state = bytearray(8)\n"
            "    m.register('state', state)\n"
            "    out = m.update(lambda: state.__setitem__(0, 1))\n"
            "    print(out.kind.name, state[0])\n"
            "    try: m.unique_id('all')\n"
            "    except RewireError as e: print(e.lost, e)\n"
            "    for s in (1, 0, float('nan')):\n"
            "        try: m.reclaim(s)\n"
            "        except (RewireError, ValueError) as e: print(e)\n"
            "print(out.world.slots)\n",
            RANK="1", WORLD_SIZE="4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("slots=4, slot=1", done.stdout)
        self.assertIn("CONTINUE 1", done.stdout)
        self.assertIn("True ", done.stdout)
        self.assertIn("rewireReclaim: this process is not in a world", done.stdout)
        for wrong in ("0", "nan"):
            self.assertIn(f"within_s={wrong}: must be more than 0", done.stdout)
        self.assertTrue(done.stdout.endswith("\n4\n"), done.stdout)

    def test_an_exception_in_the_update_is_raised(self):
        done = run_python("from rewire.world import Member\n"
                          "def f(): raise KeyError('mine')\n"
                          "with Member() as m: m.update(f)\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("KeyError: 'mine'", done.stderr)

    def test_wrong_arrays_are_refused_with_the_reason(self):
        done = run_python(
            "import array\n"
            "from rewire.world import *\n"
            "with Member() as m:\n"
            "    for name, value, more in (\n"
            "            ('bytes', b'abc', {}), ('int', 3, {}), ('strided', memoryview(bytearray(8))[::2], {}),\n"
            "            ('few', bytearray(8), dict(elements=9)), ('empty', bytearray(0), {}),\n"
            "            ('short', bytearray(8), dict(elements=90, layout=Layout.SHARDED))):\n"
            "        try: m.register(name, value, **more)\n"
            "        except (TypeError, ValueError, RewireError) as e: print(name, '|', e)\n"
            "    a = array.array('d', [1, 2])\n"
            "    m.register('array', a)\n"
            "    try: a.append(3)\n"
            "    except BufferError as e: print('locked')\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, text in (("bytes", "read-only"), ("int", "must be a rewire.memory.Memory"), ("strided", "contiguous"),
                           ("few", "elements=9"), ("empty", "elements"), ("short", "this member's part has 90")):
            self.assertRegex(done.stdout, f"(?m)^{name} \\| .*{re.escape(text)}")
        self.assertIn("locked", done.stdout)

    def test_a_worker_is_no_member(self):
        code = ("import multiprocessing\n"
                "from rewire.world import Member\n"
                "def work():\n"
                "    try: Member()\n"
                "    except RuntimeError as e: print(e, flush=True)\n"
                "p = multiprocessing.Process(target=work)\n"
                "p.start(); p.join()\n")
        self.assertIn("is a worker", run_python(code).stdout)

    def test_the_library_is_missed_with_a_hint(self):
        done = run_python("from rewire.world import Member\nMember()", LD_PRELOAD="")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run([sys.executable, "-c", "from rewire.world import Member\nMember()"], check=False,
                              capture_output=True, text=True, timeout=PATIENCE, env={"PYTHONPATH": ENVIRONMENT["PYTHONPATH"]})
        self.assertIn("start the program by `rewire run`", done.stderr)


if __name__ == "__main__":
    unittest.main()
