"""Rewire for Python programs: thin calls of the C interface (reconfig/c_api.h), with ctypes only."""
