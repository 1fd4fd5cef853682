#!/usr/bin/env python3
"""`./dev bench swap`: the cost of a live swap (swap_perf), or an ordinary program.

With --mode, each mode is one job: an NCCL program without Rewire calls under `rewire run`, whose
communicators are rebuilt again and again. A library between Rewire and NCCL records which
generation each of the program's operations reached. A mode has these keys. stale_ops counts
operations on a generation that the rank had left, or that another rank did not use. lost_ops counts
operations that reached NCCL never or more than once. wrong_data counts results that were wrong or
were not verified. hangs counts processes that did not end well, and refused rebuilds. swaps are
those of the process with the fewest. In the mode churn the program also destroys communicators and
makes others while the rest is rebuilt:
made_again counts them. built_beside_destroy counts generations that were made while the process
destroyed another.

With --soak one such job goes through many generations, with the device's hardware queues and with
one queue. Its further keys are generations (of each communicator), and the most that one process
grew after the first ten: fd_growth, va_growth (bytes), thread_growth and shm_growth (mappings).
va_growth_second_half tells a leak from an allocator that reaches its final size.

Without --mode and --soak the further options are those of swap_perf: bin/swap_perf --help.
"""

import argparse
import json
import os
import pathlib
import sys
import time

from growth import KINDS
from mode_job import faults, run

SOAK_COMMUNICATORS = 4  # mode_plan.cc
MODES = ("nonblocking", "p2p", "multi", "threads", "idle", "streams", "ranks", "churn")


def places(a):
    """(the build folder, the folders of NCCL builds)."""
    build = pathlib.Path(a.build).resolve()
    return build, a.libraries.split(":") if a.libraries else [str(build / "simgpu")]


def soak(a):
    build, libraries = places(a)
    result = {"schema": 1, "benchmark": "swap-soak", "simulated": not a.libraries, "runs": {}}
    passed = True
    for library in libraries:
        for queues in ("", "1"):
            if queues:
                os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = queues
            else:
                os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
            verdict = run(build, "soak", library, a, SOAK_COMMUNICATORS * a.generations, 10)
            verdict["generations"] = verdict["swaps"] // SOAK_COMMUNICATORS
            name = pathlib.Path(library).name + (", one queue" if queues else "")
            result["runs"][name] = verdict
            print(f"soak, {name}: {verdict}", file=sys.stderr, flush=True)
            grown = [verdict.get(f"{kind}_growth") for kind in KINDS]
            passed = (passed and faults(verdict) == 0 and grown == [0] * len(KINDS)
                      and verdict["generations"] >= a.generations)
    print(json.dumps(result) if a.json else json.dumps(result, indent=1))
    return 0 if passed else 1


def main():
    ours = ("--mode", "--soak", "--help", "-h")
    if "--build" in sys.argv and not any(word.split("=")[0] in ours for word in sys.argv[1:]):
        build = sys.argv[sys.argv.index("--build") + 1]
        words = [w for i, w in enumerate(sys.argv[1:], 1)
                 if w != "--build" and sys.argv[i - 1] != "--build"]
        program = str(pathlib.Path(build) / "bin" / "swap_perf")
        os.execv(program, [program] + words)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--libraries", default="", help="folders of NCCL builds: A:B")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--mode", help=f"a list of {','.join(MODES)}, or all")
    what.add_argument("--soak", action="store_true", help="many generations of one job")
    parser.add_argument("--generations", type=int, default=1000, help="of a soak")
    parser.add_argument("--swaps", type=int, default=500, help="least number of swaps of a mode")
    parser.add_argument("--processes", type=int, default=3, help="processes of a job")
    parser.add_argument("--patience", type=int, default=120,
                        help="seconds after which a process counts as hung")
    parser.add_argument("--keep", help="folder for the output of jobs that failed")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    a = parser.parse_args()
    if a.soak:
        return soak(a)
    modes = MODES if a.mode == "all" else a.mode.split(",")
    for mode in modes:
        if mode not in MODES:
            parser.error(f"--mode {mode}: must be of {','.join(MODES)}")
    build, libraries = places(a)
    result = {"schema": 1, "benchmark": "swap-modes", "simulated": not a.libraries, "modes": {}}
    passed = True
    for library in libraries:
        name = pathlib.Path(library).name
        for mode in modes:
            begun = time.monotonic()
            verdict = run(build, mode, library, a, a.swaps)
            verdict["seconds"] = round(time.monotonic() - begun, 1)
            result["modes"][mode if len(libraries) == 1 else f"{mode} {name}"] = verdict
            print(f"{mode}, {name}: {verdict}", file=sys.stderr, flush=True)
            passed = passed and faults(verdict) == 0 and verdict["swaps"] >= a.swaps
    print(json.dumps(result) if a.json else json.dumps(result, indent=1))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
