"""docs/man/rewire.1 must have every subcommand and option of `rewire --help`, and no other.

The SYNOPSIS names the options of each subcommand. Each option is described in the subcommand's section or
in "Common options".

usage: man_page.py REWIRE PAGE
"""

import re
import subprocess
import sys

OPTION = re.compile(r"^\s{2}((?:-\w,)?--?[\w-]+)", re.MULTILINE)


def help_of(rewire, words):
    return subprocess.run([rewire, *words, "--help"], capture_output=True, text=True, timeout=30,
                          check=True).stdout


def part(text, heading):
    """The lines below `heading:` up to the next empty line."""
    found = re.search(rf"^{heading}:\n(.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def commands(rewire, words=()):
    """{subcommand: [set of names of each option]}, of the commands that do something."""
    text = help_of(rewire, words)
    below = re.findall(r"^  (\w[\w-]*)", part(text, "Subcommands"), re.MULTILINE)
    if below:
        return {name: options for word in below
                for name, options in commands(rewire, (*words, word)).items()}
    options = [set(names.split(",")) for names in OPTION.findall(part(text, "Options"))]
    return {" ".join(words): options}


def flags(line):
    """The options that one line of mdoc names."""
    return {"-" + flag for flag in re.findall(r"\bFl (-?[\w-]*\w)", line)}


def of_page(text):
    """({subcommand: names in the SYNOPSIS}, {section: names that are described})."""
    synopsis, described = {}, {}
    section = command = ""
    for line in text.splitlines():
        if line.startswith((".Sh ", ".Ss ")):
            section = line[4:]
            described.setdefault(section, set())
        elif section == "SYNOPSIS" and line == ".Nm":
            command = ""  # `rewire --version` has none
        elif section == "SYNOPSIS" and line.startswith(".Cm "):
            command = line[4:]
            synopsis[command] = set()
        elif section == "SYNOPSIS" and command:
            synopsis[command] |= flags(line)
        elif line.startswith(".It "):
            described[section] |= flags(line)
    return synopsis, described


def main():
    rewire, page = sys.argv[1:3]
    with open(page, encoding="utf-8") as f:
        synopsis, described = of_page(f.read())
    existing = commands(rewire)
    faults = [f"'{name}' is not in the SYNOPSIS" for name in sorted(existing.keys() - synopsis.keys())]
    faults += [f"'{name}' is no command" for name in sorted(synopsis.keys() - existing.keys())]
    common = described.get("Common options", set())
    for name in sorted(existing.keys() & synopsis.keys()):
        known = set().union(*existing[name])
        own = described.get(name)
        if own is None:
            faults.append(f"'{name}' has no section")
            continue
        for names in existing[name]:
            text = ",".join(sorted(names))
            if "--help" not in names and not names & synopsis[name]:
                faults.append(f"the SYNOPSIS of '{name}' lacks {text}")
            if not names <= own and not names <= common:
                faults.append(f"'{name}': {text} is not described")
        faults += [f"'{name}' has no option {flag}" for flag in sorted((synopsis[name] | own) - known)]
    for fault in faults:
        print(f"{page}: {fault}")
    return 1 if faults or not existing else 0


if __name__ == "__main__":
    sys.exit(main())
