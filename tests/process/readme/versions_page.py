"""The versions on docs/versions.md must equal the constants that the page names.

usage: versions_page.py SOURCE_FOLDER
"""

import pathlib
import re
import sys

ROW = re.compile(r"^\| [^|]+ \| (\d+) \| `(\w+)` in `([^`]+)` \|", re.MULTILINE)


def main():
    root = pathlib.Path(sys.argv[1])
    rows = ROW.findall((root / "docs/versions.md").read_text(encoding="utf-8"))
    faults = [] if rows else ["no table of versions"]
    for version, name, path in rows:
        found = re.search(rf"\b{name} = (\d+);", (root / path).read_text(encoding="utf-8"))
        if found is None:
            faults.append(f"{path} has no constant {name}")
        elif found.group(1) != version:
            faults.append(f"{name} in {path} is {found.group(1)}, not {version}")
    for fault in faults:
        print(f"docs/versions.md: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
