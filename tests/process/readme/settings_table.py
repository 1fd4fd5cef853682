"""The settings table of docs/settings.md must equal `rewire knobs --markdown`. --fix writes it.

usage: settings_table.py REWIRE PAGE [--fix]
"""

import subprocess
import sys

BEGIN, END = "<!-- rewire knobs --markdown: begin -->\n", "<!-- rewire knobs --markdown: end -->\n"


def main():
    rewire, page = sys.argv[1:3]
    table = subprocess.run([rewire, "knobs", "--markdown"], capture_output=True, text=True, timeout=30,
                           check=True).stdout
    with open(page, encoding="utf-8") as f:
        text = f.read()
    head, rest = text.split(BEGIN)
    old, tail = rest.split(END)
    if old == table:
        return 0
    if sys.argv[3:] == ["--fix"]:
        with open(page, "w", encoding="utf-8") as f:
            f.write(head + BEGIN + table + END + tail)
        return 0
    print(f"the settings table in {page} is not that of {rewire}; run {sys.argv[0]} with --fix")
    return 1


if __name__ == "__main__":
    sys.exit(main())
