#!/usr/bin/env python3
"""The rooms of the product (rooms.txt): `./dev house` and the checks of `./dev lint`.

check      every #include of a room is allowed, no room includes a room above itself, no file is
           longer than MOST_LINES, no two rooms have files of one name, and the table of
           CONTRIBUTING.md is current
table      prints that table
house      prints one line per room: files, lines, the median file, and the rooms beside it
"""

import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLIC = "reconfig/include/rewire"  # included as "rewire/..."
BEGIN, END = "<!-- rooms: printed by cmake/rooms.py table -->", "<!-- end of rooms -->"
TOP = ("reconfig", "net_plugin", "shim", "tests", "bench", "examples")
MOST_LINES = 400
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)


class Room:
    def __init__(self, name, needs, purpose):
        self.name, self.needs, self.purpose = name, needs, purpose
        self.allowed = set()  # also through other rooms
        self.files = []


def read_rooms():
    """{name: Room} in the order of the table. Raises ValueError for a room below what it needs."""
    rooms = {}
    for line in (ROOT / "cmake/rooms.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, needs, purpose = (part.strip() for part in line.split("|"))
        room = rooms[name] = Room(name, needs.split(), purpose)
        for need in room.needs:
            if need not in rooms or need == name:
                raise ValueError(f"cmake/rooms.txt: {name} may include {need}, which is not below it")
            room.allowed |= {need} | rooms[need].allowed
    return rooms


def room_of(path, rooms):
    """The room of a file or of the path of an #include; None: it is in no room."""
    folder = path.rpartition("/")[0]
    return rooms.get(PUBLIC if folder == "rewire" else folder)


def sources(rooms):
    """Fills the rooms' files; returns the product's sources that are in no room."""
    listed = subprocess.run(["git", "ls-files", "--", "reconfig", "net_plugin", "shim"], cwd=ROOT,
                            check=True, capture_output=True, text=True).stdout.split()
    homeless = []
    for path in listed:
        if path.endswith((".cc", ".h", ".def")):
            room = room_of(path, rooms)
            (homeless if room is None else room.files).append(path)
    return homeless


def table(rooms):
    lines = ["| room | what | may include |", "|---|---|---|"]
    for room in rooms.values():
        needs = ", ".join(f"`{n}`" for n in room.needs) or "nothing"
        lines.append(f"| `{room.name}` | {room.purpose} | {needs} |")
    return "\n".join(lines)


def names(rooms):
    """{base name: the rooms with files of this name}, without the public headers."""
    found = {}
    for room in rooms.values():
        for path in map(pathlib.PurePath, room.files):
            if path.suffix in (".h", ".cc") and room.name != PUBLIC:
                found.setdefault(path.stem, set()).add(room.name)
    return found


def check(rooms):
    wrong = [f"{path} is in no room of cmake/rooms.txt" for path in sources(rooms)]
    for room in rooms.values():
        for path in room.files:
            text = (ROOT / path).read_text()
            if (lines := len(text.splitlines())) > MOST_LINES and not path.endswith(".def"):
                wrong.append(f"{path} has {lines} lines: at most {MOST_LINES} are allowed")
            for included in INCLUDE.findall(text):
                other = room_of(included, rooms)
                if other is not None and other is not room and other.name not in room.allowed:
                    wrong.append(f"{path} includes {included}: {room.name} may not include {other.name}")
                elif other is None and included.split("/")[0] in TOP:
                    wrong.append(f"{path} includes {included}, which is in no room")
    wrong += [f"{' and '.join(sorted(r))} have files of one name: {name}" for name, r in names(rooms).items() if len(r) > 1]
    text = (ROOT / "CONTRIBUTING.md").read_text()
    if f"{BEGIN}\n{table(rooms)}\n{END}" not in text:
        wrong.append("CONTRIBUTING.md: the table of rooms is not that of `cmake/rooms.py table`")
    return wrong


def house(rooms):
    sources(rooms)
    print(f"{'room':30} {'files':>5} {'lines':>6} {'median':>6} {'most':>5}  depends on <- depended on by")
    every = []
    for room in rooms.values():
        lengths = [len((ROOT / p).read_text().splitlines()) for p in room.files if not p.endswith(".def")]
        every += lengths
        above = [r.name for r in rooms.values() if room.name in r.needs]
        print(f"{room.name:30} {len(lengths):5} {sum(lengths):6} {statistics.median(lengths or [0]):6.0f} "
              f"{max(lengths or [0]):5}  {' '.join(room.needs) or '-'} <- {' '.join(above) or '-'}")
    print(f"{'all':30} {len(every):5} {sum(every):6} {statistics.median(every):6.0f} {max(every):5}")


def main(arguments):
    try:
        rooms = read_rooms()
    except ValueError as error:
        print(error)
        return 1
    command = arguments[0] if len(arguments) == 1 else ""
    if command == "check":
        wrong = check(rooms)
        print("".join(f"{w}\n" for w in wrong), end="")
        return 1 if wrong else 0
    if command == "table":
        print(table(rooms))
    elif command == "house":
        house(rooms)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
