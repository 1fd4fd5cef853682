"""Rewire for Python programs: thin calls of the C interface (rewire/rewire.h), with ctypes only."""
