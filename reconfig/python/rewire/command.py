"""The command `rewire` of a wheel: runs the program that the wheel carries."""
import os
import pathlib
import sys

__all__ = ["main"]


def main() -> None:
    program = pathlib.Path(__file__).resolve().parent / "bin" / "rewire"
    if not program.exists():
        sys.exit(f"rewire: {program}: does not exist: this package was installed without the programs "
                 "(`./dev wheel` makes one that has them)")
    os.execv(program, ["rewire", *sys.argv[1:]])
