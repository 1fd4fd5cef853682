"""The resources of a process: descriptors, address space, threads and shared memory, from /proc."""

import pathlib
import time

KINDS = ("fd", "va", "thread", "shm")


def held(pid):
    """{kind: number} of a process; va in bytes, shm in mappings."""
    root = pathlib.Path(f"/proc/{pid}")
    return {"fd": len(list((root / "fd").iterdir())),
            "va": int((root / "statm").read_text().split()[0]) * 4096,
            "thread": len(list((root / "task").iterdir())),
            "shm": (root / "maps").read_text().count("/dev/shm/")}


def least_held(pids, within=5.0):
    """The least that each process holds in the next seconds: between builds, and retired."""
    least = {}
    until = time.monotonic() + within
    while time.monotonic() < until:
        for pid in pids:
            now = held(pid)
            before = least.setdefault(pid, now)
            least[pid] = {kind: min(before[kind], now[kind]) for kind in KINDS}
        time.sleep(0.1)
    return least


def growth(before, after):
    """{kind_growth: the most that one process has grown}."""
    return {f"{kind}_growth": max(after[pid][kind] - before[pid][kind] for pid in before)
            for kind in KINDS}
