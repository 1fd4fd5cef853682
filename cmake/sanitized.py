#!/usr/bin/env python3
"""Runs a test of a build with sanitizers: sanitized.py FOLDER COMMAND [ARGUMENT...]

Reports of the address and thread sanitizers go to files in FOLDER and not to stderr, so that no
report is lost: neither of a process whose exit status is not checked, nor of a process that was
killed later. A report fails the test, whatever the test's result. (The undefined-behaviour
sanitizer writes to stderr if another sanitizer is in the same process, and ends the process.)
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

SUPPRESSIONS = pathlib.Path(__file__).with_name("tsan.supp")

OPTIONS = {
    # intercept_tls_get_addr: up to gcc 13 the runtime mistakes some of glibc's blocks of
    # thread-local storage for older ones, and the leak check then ends the process
    # (google/sanitizers#1322). verify_asan_link_order: the preloaded library comes before its
    # runtime. This order is harmless if the program is also linked with the runtime: the runtime
    # still comes before libc.
    "ASAN_OPTIONS": "verify_asan_link_order=0:intercept_tls_get_addr=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "LSAN_OPTIONS": "",
    "TSAN_OPTIONS": f"second_deadlock_stack=1:suppressions={SUPPRESSIONS}",
}


# The leak check of a process says this, and nothing else, when the process is killed meanwhile.
KILLED = re.compile(r"(==\d+==Unable to get registers from thread \d+\.\s*)+")


def main():
    folder = pathlib.Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = dict(os.environ)
    for name, options in OPTIONS.items():
        parts = [f"log_path={folder}/report", options, environment.get(name, "")]
        environment[name] = ":".join(part for part in parts if part)
    status = subprocess.run(sys.argv[2:], env=environment, check=False).returncode
    reports = {path: path.read_text(errors="replace") for path in sorted(folder.glob("report.*"))}
    reports = {path: text for path, text in reports.items() if not KILLED.fullmatch(text)}
    for path, text in reports.items():
        print(f"=== {path}")
        print(text)
    if reports:
        print(f"{len(reports)} processes with reports of the sanitizers")
    return status if status > 0 else 1 if status < 0 or reports else 0


if __name__ == "__main__":
    sys.exit(main())
