"""Each row of README.md's table of ways to load the shim must name an existing test or "not tested".

usage: loading_table.py SOURCE_FOLDER
"""

import pathlib
import re
import sys

HEADER = "| program | "
TEST = re.compile(r"`(\w+)\.(\w+)`")


def rows(text):
    """The last cells of the table's rows, with the first cells."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(HEADER) and "how to load" in line]
    for line in lines[starts[0] + 2:] if starts else []:
        if not line.startswith("|"):
            return
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        yield cells[0], cells[-1]


def existing(root):
    """(suite, test) of every test in the folder of process tests."""
    found = set()
    folder = root / "tests" / "process"
    for path in [*folder.rglob("*_test.cc"), *folder.rglob("*_test.py")]:
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"^TEST(?:_F)?\((\w+), (\w+)\)", text, re.MULTILINE))
        for suite, body in re.findall(r"^class (\w+)\(unittest\.TestCase\):\n(.*?)(?=^\S|\Z)", text,
                                      re.MULTILINE | re.DOTALL):
            found |= {(suite, test) for test in re.findall(r"def (test_\w+)", body)}
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    tests, faults, count = existing(root), [], 0
    for program, cell in rows((root / "README.md").read_text(encoding="utf-8")):
        count += 1
        named = TEST.findall(cell)
        faults += [f"{program}: no such test: {suite}.{test}"
                   for suite, test in named if (suite, test) not in tests]
        if not named and "not tested" not in cell:
            faults.append(f"{program}: names no test")
    for fault in faults or ([] if count else ["the table is missing"]):
        print(f"README.md: {fault}")
    return 1 if faults or not count else 0


if __name__ == "__main__":
    sys.exit(main())
