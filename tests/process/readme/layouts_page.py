#!/usr/bin/env python3
"""layouts_page.py REWIRE PAGE: the layout file of the page, and a change of it, pass `rewire plan`."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    rewire, page = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    block = re.search(r"^    \{\n(?:    .*\n)+", page, re.MULTILINE)
    layout = json.loads(block[0])
    assert '"unit"' in block[0] and f"{layout['parallel']['layers']}" in block[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "from.json").write_text(block[0], encoding="utf-8")
        layout["parallel"].update(tensor=4, data=1)
        (folder / "to.json").write_text(json.dumps(layout), encoding="utf-8")
        done = subprocess.run([rewire, "plan", "--from", folder / "from.json", "--to", folder / "to.json", "--plot",
                               folder / "plan.svg", "--json"], stdout=subprocess.PIPE, check=True, timeout=60)
        plan = json.loads(done.stdout)
        assert plan["bytes_between_nodes"] == 0 < plan["bytes_inside_nodes"], plan
        assert (folder / "plan.svg").read_text(encoding="utf-8").startswith("<svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
