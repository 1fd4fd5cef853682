#!/usr/bin/env python3
"""The PTX of the product's kernels, which nvcc makes from .cu files and the build embeds.

A .ptx stands beside its .cu, whose first comment has the two shell commands that make the .ptx in that
folder. nvcc is looked for in PATH, in $CUDA_HOME/bin and in /usr/local/cuda/bin.

check   fails if a .cu changed after its .ptx was made: the .ptx begins with the hash of the .cu. Then
        runs the commands and compares their results with the .ptx files, except for comments. Exits
        with 77, without this comparison, where there is no nvcc of the release that made the files
write   runs the commands and replaces the .ptx files
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = re.compile(r"^// +(nvcc -ptx .*)\n// +(sed -i .*)$", re.MULTILINE)
RELEASE = re.compile(r"Cuda compilation tools, release ([\d.]+), V([\d.]+)")
SKIPPED = 77


def make(source, folder):
    """Runs the commands of a .cu file in the folder; returns the text of the .ptx."""
    commands = COMMANDS.search(source.read_text())
    if commands is None:
        sys.exit(f"{source}: the first comment lacks the commands that make {source.stem}.ptx")
    shutil.copy(source, folder)
    for command in commands.groups():
        subprocess.run(command, shell=True, cwd=folder, check=True)
    return (folder / source.with_suffix(".ptx").name).read_text()


def first_line(source):
    return f"// SHA-256 of {source.name}: {hashlib.sha256(source.read_bytes()).hexdigest()}\n"


def release(text):
    found = RELEASE.search(text)
    return found[2] if found else "unknown"


def without_comments(text):
    lines = (re.sub(r"//.*", "", line).rstrip() for line in text.splitlines())
    return [line for line in lines if line]


def main(verb):
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    os.environ["PATH"] += f":{home}/bin:/usr/local/cuda/bin"
    sources = sorted(p for room in ("reconfig", "net_plugin", "shim") for p in (ROOT / room).rglob("*.cu"))
    if not sources:
        sys.exit("ptx: the product has no .cu file")
    for source in sources if verb == "check" else ():
        kept = source.with_suffix(".ptx")
        if not kept.read_text().startswith(first_line(source)):
            sys.exit(f"{kept}: made from another {source.name}; run cmake/ptx.py write")
    if shutil.which("nvcc") is None:
        print("skipped: nvcc is not installed (CUDA_HOME)")
        return SKIPPED
    version = subprocess.run(["nvcc", "--version"], check=True, capture_output=True, text=True).stdout
    wrong = 0
    for source in sources:
        kept = source.with_suffix(".ptx")
        if verb == "check" and release(version) != release(kept.read_text()):
            print(f"skipped: nvcc is {release(version)}, and {release(kept.read_text())} made {kept.name}")
            return SKIPPED
        with tempfile.TemporaryDirectory() as folder:
            made = make(source, pathlib.Path(folder))
        if verb == "write":
            kept.write_text(first_line(source) + made)
        elif without_comments(made) != without_comments(kept.read_text()):
            print(f"{kept}: differs from the result of nvcc; run cmake/ptx.py write", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    if sys.argv[1:] not in (["check"], ["write"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
