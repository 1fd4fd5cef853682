#!/usr/bin/env python3
"""exit_test.py: the exit handler of rewire.torch belongs to the member alone. Needs no PyTorch, whose module is faked."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PATIENCE = 60

PROGRAM = f"""
import os, sys, types
from unittest import mock
package = types.ModuleType("rewire.torch")
package.__path__ = [{str(ROOT / 'reconfig' / 'python' / 'rewire' / 'torch')!r}]
sys.modules.update({{"torch": mock.MagicMock(), "rewire.torch": package}})
from rewire.torch import process
process.Member = mock.MagicMock()
process.Member.return_value.world.slots = 1
process.Member.return_value.detach = lambda: print("detached by", "member" if os.getpid() == member else "child")
process.Place = mock.MagicMock()
member = os.getpid()
process.Process()
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
"""


class ExitTest(unittest.TestCase):
    def test_a_forked_child_that_exits_does_not_detach_the_member(self):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE,
                              check=False, env={"PYTHONPATH": str(ROOT / "reconfig" / "python")})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "detached by member\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
