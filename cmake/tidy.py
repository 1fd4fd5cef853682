#!/usr/bin/env python3
"""Runs clang-tidy over source files, several of one folder in one translation unit.

    tidy.py FILE...     files relative to the top of the tree; build/clang has their commands

Most of clang-tidy's time goes to the standard library's and Abseil's headers, so files share them.
Files whose names or macros collide go into different units. Prints the findings and exits with 1
on any.
"""

import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
BUILD = TREE / "build" / "clang"
LARGEST = 12  # files of a unit
ERROR = re.compile(r"^(/[^:]*):\d+:\d+: (?:fatal )?error: ", re.M)


def commands():
    """Returns {file: (folder, arguments without the file and the output)}."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        for option in ("-c", "-o"):
            if option in words:
                at = words.index(option)
                del words[at:at + 2]
        found[os.path.realpath(entry["file"])] = (entry["directory"], tuple(words))
    return found


def write_unit(files):
    text = "".join(f'#include "{file}"\n' for file in files)
    unit = BUILD / "tidy" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.cc"
    unit.write_text(text)
    return str(unit)


def colliding(files, folder, words):
    """Returns the files that do not compile after the files before them."""
    done = subprocess.run([*words, "-fsyntax-only", "-Wno-everything", "-Werror=macro-redefined",
                           "-ferror-limit=0", write_unit(files)],
                          cwd=folder, capture_output=True, text=True, check=False)
    named = {os.path.realpath(path) for path in ERROR.findall(done.stderr)}
    out = [file for file in files[1:] if file in named]
    # An error in a shared header does not say which file is to blame.
    return out if out or done.returncode == 0 else files[1:]


def check(files, folder, words):
    """Checks the files in as few units as their names allow; returns the findings."""
    findings = ""
    while files:
        unit = files[:LARGEST]
        while len(unit) > 1 and (apart := colliding(unit, folder, words)):
            unit = [file for file in unit if file not in apart]
        files = [file for file in files if file not in unit]
        # Alone, a file is the main file, where clang-tidy has further checks.
        name = unit[0] if len(unit) == 1 else write_unit(unit)
        done = subprocess.run(["clang-tidy", "--quiet", f"--config-file={TREE / '.clang-tidy'}",
                               "--checks=-bugprone-suspicious-include", name, "--", *words[1:]],
                              cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            findings += done.stdout + done.stderr
    return findings


def main(names):
    (BUILD / "tidy").mkdir(exist_ok=True)
    known = commands()
    groups = collections.defaultdict(list)
    for name in names:
        file = str(TREE / name)
        if file in known:
            groups[(os.path.dirname(file), known[file])].append(file)
        else:
            print(f"tidy: {name}: no command in {BUILD} (its target is not built here)")
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(check, files, *key[1]): files for key, files in groups.items()}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            folder = os.path.relpath(os.path.dirname(running[done][0]), TREE)
            print(f"tidy: {number} of {len(running)}: {folder}", flush=True)
            if done.result():
                failed = True
                print(done.result(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
