#!/usr/bin/env python3
"""graphs_test.py LIBREWIRE: the call reaches the library that is loaded, and does nothing without it."""
import ctypes
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "reconfig" / "python"))
from rewire import graphs  # noqa: E402

assert not graphs.released()
library = ctypes.CDLL(sys.argv[1])
assert graphs.released()
