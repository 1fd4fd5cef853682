#!/usr/bin/env python3
"""wheel_test.py BUILD: a wheel is installed alone into a folder, and a job runs from there."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SKIPPED = 77
MEMBER = """
import os
import rewire.nccl
import rewire.world
from rewire.device import Device
with rewire.world.Member() as member:
    device = Device(member.world.slot)
    comm = rewire.nccl.Communicator(member.unique_id("test"), member.world.slots, member.world.slot)
    comm.destroy()
    with open("/proc/self/maps") as maps:
        files = {os.path.basename(line.split()[-1]) for line in maps if "librewire" in line}
    print("slot", member.world.slot, "of", member.world.slots, "with", *sorted(files), flush=True)
"""


def python_that_packs():
    """The first interpreter that has pip, setuptools and wheel, or None."""
    look = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, ('pip', 'setuptools', 'wheel'))))"
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", look], check=False).returncode == 0:
            return python
    return None


PYTHON = python_that_packs()


class WheelTest(unittest.TestCase):
    def run_in(self, folder, *command):
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        environment.pop("LD_LIBRARY_PATH", None)
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_a_job_runs_from_a_wheel(self):
        with tempfile.TemporaryDirectory(prefix="rewire-wheel-test-") as name:
            folder = pathlib.Path(name)
            self.run_in(folder, PYTHON, str(ROOT / "reconfig" / "python" / "wheel.py"), str(BUILD), str(folder))
            wheels = list(folder.glob("rewire-*-py3-none-linux_*.whl"))
            self.assertEqual(len(wheels), 1, list(folder.iterdir()))
            self.run_in(folder, PYTHON, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(folder / "site"),
                        str(wheels[0]))
            site = folder / "site"
            self.assertIn("0.1", self.run_in(site, str(site / "bin" / "rewire"), "--version"))
            output = self.run_in(site, str(site / "bin" / "rewire"), "run", "-n", "2", "--sim", "--", PYTHON, "-c", MEMBER)
            for slot in (0, 1):
                self.assertIn(f"slot {slot} of 2 with librewire-preload.so librewire.so.0.1\n", output)

    def test_the_package_alone_says_what_is_missing(self):
        done = subprocess.run([PYTHON, "-c", "import rewire.command; rewire.command.main()"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "reconfig" / "python")}, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("this package was installed without the programs", done.stderr)


if __name__ == "__main__":
    if PYTHON is None:
        print("skipped: no Python with pip, setuptools and wheel (Debian: python3-pip python3-wheel)")
        sys.exit(SKIPPED)
    unittest.main()
