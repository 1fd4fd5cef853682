"""docs/operations.md must name every metric of the agent, only existing metrics, and reasons that the code gives.

The counters of members are described by their rows in counters.def, which /metrics shows; the page may name them. A reason of the table is a text in backquotes; "…" separates its parts.

usage: operations_page.py SOURCE_FOLDER
"""

import pathlib
import re
import sys


def metrics(text):
    return set(re.findall(r"rewire_[a-z_]+[a-z]", text))


def sources(root):
    """The C++ files of reconfig and shim as one text, with adjacent string literals joined."""
    files = sorted((root / "reconfig").rglob("*.cc")) + sorted((root / "shim").rglob("*.cc"))
    text = "\n".join(f.read_text(encoding="utf-8") for f in files)
    return re.sub(r'"\s*\n\s*"', "", text)


def main():
    root = pathlib.Path(sys.argv[1])
    page = (root / "docs/operations.md").read_text(encoding="utf-8")
    faults = []

    source = (root / "reconfig/control/agent/metrics.cc").read_text(encoding="utf-8")
    existing = metrics("\n".join(re.findall(r'"(rewire_[a-z_]+)"', source)))
    named = metrics("\n".join(re.findall(r"`(rewire_[a-z_]+)`", page)))
    faults += [f"the metric {name} is not on the page" for name in sorted(existing - named)]
    rows = (root / "reconfig/base/counters.def").read_text(encoding="utf-8")
    counters = metrics("\n".join(re.findall(r'"(rewire_[a-z_]+)"', rows)))
    faults += [f"the metric {name} does not exist" for name in sorted(named - existing - counters)]

    code = sources(root)
    table = page.split("\n## When a change is refused or aborted\n")[1].split("\n## ")[0]
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        for reason in re.findall(r"`([^`]+)`", row):
            for part in filter(None, (part.strip() for part in reason.split("…"))):
                if part not in code:
                    faults.append(f"no error of the code contains '{part}' of the reason '{reason}'")

    for fault in faults:
        print(f"docs/operations.md: {fault}")
    return 1 if faults or not existing or "| `" not in table else 0


if __name__ == "__main__":
    sys.exit(main())
