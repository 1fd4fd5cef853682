#!/usr/bin/env python3
"""`./dev bench loss`: kills or stops one process of a job, and times the others' NCCL calls.

Each seed is one job of 2 to 8 ordinary NCCL programs under `rewire run`. Their threads use
communicators of all and of few members, blocking and non-blocking, busy and idle. At a random
moment of their creation, use, rebuild or teardown one process gets SIGKILL or SIGSTOP. The time
runs until the last call of every survivor has returned with an error, on CLOCK_MONOTONIC.
REWIRE_SILENCE_MS and all other settings have their defaults.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

from fault_job import FaultJob

BARS = {"unblock_ms_p99_death": 100, "unblock_ms_p99_silence": 3500, "hangs": 0}


def say(text=""):
    print(text, file=sys.stderr, flush=True)


def percentile(values, fraction):
    """Nearest rank: a value that was measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def summary(values):
    if not values:
        return {"count": 0}
    return {"count": len(values), "median": round(statistics.median(values), 3),
            "p99": round(percentile(values, 0.99), 3), "max": round(max(values), 3),
            "quartiles": [round(percentile(values, 0.25), 3), round(percentile(values, 0.75), 3)]}


class Samples:
    """The times of one fault (death or silence), in ms: of each event, and of each thread by call."""

    def __init__(self):
        self.events = []
        self.groups = collections.defaultdict(lambda: collections.defaultdict(list))
        self.late = []

    def take(self, job, bar):
        waits = job.waits()
        if job.exit_ms is not None:
            self.groups["part"]["the kernel ends the process"].append(job.exit_ms)
        for ms, lane in waits:
            self.groups["call"][lane["record"]["at_fault"]].append(ms)
            if lane["record"]["cleaned_ns"]:
                cleaned = (lane["record"]["cleaned_ns"] - lane["record"]["ended_ns"]) / 1e6
                self.groups["part"]["abort by the program after the error"].append(cleaned)
        if not waits:
            return None
        worst, lane = max(waits, key=lambda wait: wait[0])
        self.events.append(worst)
        self.groups["moment"][job.moment].append(worst)
        self.groups["members"][job.ranks].append(worst)
        if worst > bar:
            record = lane["record"]
            self.late.append({"seed": job.seed, "ms": round(worst, 1), "moment": job.moment,
                              "members": job.ranks, "rank": lane["rank"], "plan": lane["plan"],
                              "at_fault": record["at_fault"], "last": record["last"],
                              "last_since_ms": round((record["last_since_ns"] - job.fault_ns) / 1e6, 1),
                              "error": record["error"], "load": job.load,
                              "exit_ms": job.exit_ms and round(job.exit_ms, 1)})
        return worst

    def report(self):
        return {"events": summary(self.events),
                **{f"by_{name}": {str(key): summary(values) for key, values in sorted(group.items())}
                   for name, group in sorted(self.groups.items())},
                "late": self.late}


def parse():
    p = argparse.ArgumentParser(prog="./dev bench loss", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--libraries", default="", help="folders of NCCL builds, used in turn: A:B")
    p.add_argument("--kills", type=int, default=220, metavar="N", help="events with SIGKILL (220)")
    p.add_argument("--stops", type=int, default=100, metavar="N", help="events with SIGSTOP (100)")
    p.add_argument("--members", default="2,3,4,5,6,7,8", help="numbers of members to draw from")
    p.add_argument("--seed", type=int, default=1, help="seed of the first job")
    p.add_argument("--patience", type=int, default=100, metavar="S",
                   help="seconds after which a survivor's call counts as hung (100)")
    p.add_argument("--keep", metavar="DIR", help="folder for the files of jobs that hang, crash or are late")
    p.add_argument("--check", action="store_true", help="judge only hangs and crashes, not times")
    p.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return p.parse_args()


def main():
    args = parse()
    build = pathlib.Path(args.build).resolve()
    libraries = args.libraries.split(":") if args.libraries else [str(build / "simgpu")]
    sizes = [int(n) for n in args.members.split(",")]
    samples = {False: Samples(), True: Samples()}
    wanted = {False: args.kills, True: args.stops}
    counts = collections.Counter(dict.fromkeys(
        ("hangs", "crashes", "void", "without_blocked_calls", "broken_jobs"), 0))
    failed, loads, done = [], [], {False: 0, True: 0}
    begun, seed = time.monotonic(), args.seed
    # Each event without a fault is replaced by that of a further seed.
    limit = args.seed + 2 * (args.kills + args.stops) + 10
    while seed < limit and any(done[s] < wanted[s] for s in done):
        left = {s: wanted[s] - done[s] for s in done}
        # Interleaved, so that both see the same machine.
        stops = left[True] * wanted[False] > left[False] * wanted[True] if left[False] else True
        bar = BARS["unblock_ms_p99_silence" if stops else "unblock_ms_p99_death"]
        with tempfile.TemporaryDirectory(prefix="rewire-loss-") as folder:
            job = FaultJob(build, folder, seed, stops, libraries[seed % len(libraries)],
                           args.patience, sizes)
            job.perform()
            loads.append(job.load)
            worst, outcome = None, "ended before the fault"
            if job.problem:
                counts["broken_jobs"] += 1
                outcome = job.problem
            elif job.fault_ns is None:
                counts["void"] += 1
            else:
                done[stops] += 1
                worst = samples[stops].take(job, bar)
                counts["without_blocked_calls"] += worst is None
                counts["hangs"] += len(job.hung)
                counts["crashes"] += len(job.crashed)
                outcome = "no call was blocked" if worst is None else f"{worst:.1f} ms"
            bad = bool(job.problem or job.hung or job.crashed)
            if job.hung or job.crashed:
                outcome += f"; hung ranks {job.hung}, crashed ranks {job.crashed}"
            if job.exit_ms is not None:
                outcome += f" (the process ended after {job.exit_ms:.1f} ms)"
            say(f"{job}: {outcome}")
            if bad:
                failed.append({"seed": seed, "job": str(job), "problem": outcome})
                say("\n".join(job.text().splitlines()[-60:]))
            if args.keep and (bad or (worst or 0) > bar):
                shutil.copytree(folder, pathlib.Path(args.keep) / f"seed{seed}", dirs_exist_ok=True,
                                ignore=shutil.ignore_patterns("*.sock", "run"))
        seed += 1
    result = {"schema": 1, "benchmark": "loss", "simulated": not args.libraries,
              "libraries": [pathlib.Path(path).name for path in libraries],
              "seeds": [args.seed, seed - 1], "kills": done[False], "stops": done[True]}
    for name, stops in (("death", False), ("silence", True)):
        if samples[stops].events:
            result[f"unblock_ms_p99_{name}"] = round(percentile(samples[stops].events, 0.99), 3)
    result.update(counts)
    result.update({f"{name}_bar": bar for name, bar in BARS.items()})
    result["load"] = {"min": min(loads), "median": statistics.median(loads), "max": max(loads),
                      "processors": os.cpu_count()}
    result["seconds"] = round(time.monotonic() - begun, 1)
    result["death"], result["silence"] = samples[False].report(), samples[True].report()
    result["failed"] = failed
    print(json.dumps(result) if args.json else json.dumps(result, indent=1))
    missed = bool(failed) or any(done[s] < wanted[s] for s in done)
    if not args.check:
        missed = missed or any(result.get(name, 0) > bar for name, bar in BARS.items())
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
