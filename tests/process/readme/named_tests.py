"""Tests that pages name must exist. Each row of README.md's table of ways to load the shim must name one or "not
tested", and each row of SECURITY.md's table of findings must name one.

usage: named_tests.py SOURCE_FOLDER
"""

import pathlib
import re
import sys

# Suite.Test, Suite.*, or the test of a suite that the cell names before.
NAME = re.compile(r"`(?:(\w+)\.)?(\w+|\*)`")


def rows(text, header):
    """Yields the first and the last cells of the rows of the table whose header matches."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(header, line)]
    for line in lines[starts[0] + 2:] if starts else []:
        if not line.startswith("|"):
            return
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        yield cells[0], cells[-1]


def existing(root):
    """(suite, test) of every test."""
    found = set()
    folder = root / "tests"
    for path in [*folder.rglob("*_test.cc"), *folder.rglob("*_test.py")]:
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text, re.MULTILINE))
        for suite, body in re.findall(r"^class (\w+)\(unittest\.TestCase\):\n(.*?)(?=^\S|\Z)", text,
                                      re.MULTILINE | re.DOTALL):
            found |= {(suite, test) for test in re.findall(r"def (test_\w+)", body)}
    return found


def faults_of(cell, tests, may_lack):
    """Returns the faults of the tests that a cell names."""
    suite, wrong, count = "", [], 0
    for named, test in NAME.findall(cell):
        suite = named or suite
        count += 1
        if not any(suite == s and test in ("*", t) for s, t in tests):
            wrong.append(f"no such test: {suite}.{test}")
    return wrong if count or may_lack else ["names no test"]


def main():
    root = pathlib.Path(sys.argv[1])
    tests, faults = existing(root), []
    for page, header in (("README.md", r"\| program \|.*how to load"), ("SECURITY.md", r"\| finding \| test \|")):
        table = list(rows((root / page).read_text(encoding="utf-8"), header))
        faults += [] if table else [f"{page}: the table is missing"]
        for first, cell in table:
            faults += [f"{page}: {first}: {fault}" for fault in faults_of(cell, tests, "not tested" in cell)]
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
