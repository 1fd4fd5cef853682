"""Finds the processes of a chaos run in /proc, and sends signals to them."""

import os
import pathlib
import time


def send(pid, number):
    """Sends a signal; ignores an ended process, because the verdict judges each end."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def parent(pid):
    # The format is "PID (NAME) STATE PARENT"; the name may contain parentheses.
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def has_ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


def with_variable(line):
    """Returns [(pid, name)] of processes whose environment contains `line`, a NAME=VALUE."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{line}\0".encode() in (entry / "environ").read_bytes():
                found.append((int(entry.name), (entry / "comm").read_text().strip()))
        except OSError:
            pass  # The process ended, or belongs to another user.
    return found


def await_none(line, seconds):
    """Waits until no process has `line` in its environment; returns those that still have it."""
    deadline = time.monotonic() + seconds
    while True:
        found = with_variable(line)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)
