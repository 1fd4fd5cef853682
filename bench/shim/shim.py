#!/usr/bin/env python3
"""`./dev bench shim`: what the shim adds to a call of NCCL, in a job whose agent could rebuild it.

NCCL does nothing here, so the difference of two calls is the shim's. In a process with a driver the shim asks for each
operation whether its stream is captured. The driver's own time for the answer is capture_query_ns, and no part of
added_ns. added_ns_median must be at most BAR_NS, on one thread and on several with a communicator each.
"""

import argparse
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from rewire_job import RewireJob  # noqa: E402

BAR_NS = 15.0


def main():
    parser = argparse.ArgumentParser(prog="shim", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("--check", action="store_true", help="judge allocations and locks, and no time")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, the text on stderr")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of shim_perf, after --")
    a = parser.parse_args()
    build = a.build.resolve()
    options = a.options[1:] if a.options[:1] == ["--"] else a.options
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        report = folder / "report.json"
        program = [str(build / "bin" / "shim_perf"), "--report", str(report), *options]
        job = RewireJob(build, folder, 1, build / "simgpu", program, {})
        try:
            ended = job.wait(1800)
        finally:
            job.close()
        print((folder / "output.txt").read_text().replace("[member 0] ", ""), end="", file=sys.stderr)
        if not ended or job.process.returncode != 0:
            print(f"shim: the job ended with status {job.process.returncode}", file=sys.stderr)
            return 1
        result = json.loads(report.read_text())
    if a.json:
        print(json.dumps(result))
    slow = {key: value for key, value in result.items() if key.startswith("added") and key.endswith("_median")
            and value > BAR_NS}
    if slow and not a.check:
        print(f"shim: must be at most {BAR_NS} ns: {slow}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
