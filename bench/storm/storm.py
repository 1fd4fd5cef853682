#!/usr/bin/env python3
"""`./dev bench storm`: rebuilds the communicators of busy NCCL programs at random moments.

Each seed is one job of 2 to 4 processes. Their threads split, group, register, destroy and abort
blocking and non-blocking communicators, and verify every result. Meanwhile Rewire rebuilds
communicators. Some builds have too short a deadline, and some jobs lose a process. A storm passes
with all requested rebuilds, and without a hang, crash, wrong result or refusal without a reason.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import shutil
import sys
import tempfile
import time

from job import DONE, HUNG, LOST, WRONG, Job, Scenario


def judge(job, ended, counts):
    """Adds the job's outcome to `counts`; returns the list of its faults."""
    wrong = []
    expected = LOST if job.killed is not None else DONE
    seen = job.statuses()
    output = (job.folder / "output.txt").read_text(errors="replace")
    for rank, result in seen.items():
        if result is not None:
            counts["operations"] += result["operations"]
        if rank == job.killed:
            continue
        status = None if result is None else result["status"]
        if status == expected:
            continue
        if status == WRONG:
            counts["wrong"] += 1
        elif not ended or f"rank {rank} thread" in output or status == HUNG:
            counts["hangs"] += 1
        else:
            counts["crashes"] += 1
        wrong.append(f"rank {rank}: status {status} instead of {expected}")
    if not ended and not wrong:
        counts["hangs"] += 1
        wrong.append("the job did not end")
    for text in job.unexplained:
        wrong.append(f"refused: {text or 'no reason'}")
    counts["refused_without_reason"] += len(job.unexplained)
    counts["refused_with_reason"] += len(job.explained)
    counts["rebuilds"] += job.rebuilds
    counts["kills"] += 1 if job.killed is not None else 0
    counts["short_deadlines"] += 1 if job.scenario.build_ms is not None else 0
    return wrong


def run(a, seed):
    """Runs one job: (seed, library, its line of the report, its faults, its counts)."""
    build = pathlib.Path(a.build).resolve()
    libraries = a.libraries.split(":") if a.libraries else [str(build / "simgpu")]
    library = libraries[seed % len(libraries)]
    scenario = Scenario(seed, [int(n) for n in a.ranks.split(",")], a.rebuilds)
    counts = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="rewire-storm-") as folder:
        job = Job(build, folder, scenario, library, a.without, a.patience)
        try:
            ended = job.run()
        finally:
            job.close()
        problems = judge(job, ended, counts)
        if problems:
            output = (pathlib.Path(folder) / "output.txt").read_text(errors="replace")
            print("\n".join(output.splitlines()[-60:]), file=sys.stderr)
        if problems and a.keep:
            shutil.copytree(folder, pathlib.Path(a.keep) / f"seed{seed}", dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("*.sock", "job-*"))
    line = f"{scenario.text()}, {pathlib.Path(library).name}: {job.rebuilds} rebuilds"
    if job.explained:
        line += f", {len(job.explained)} refused with a reason"
    return seed, library, line, problems, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--libraries", default="", help="folders of NCCL builds, used in turn: A:B")
    parser.add_argument("--seeds", type=int, default=30, help="number of jobs")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first job")
    parser.add_argument("--ranks", default="2,3,4", help="numbers of processes to draw from")
    parser.add_argument("--rebuilds", type=int, default=14, help="rebuilds requested per job")
    parser.add_argument("--patience", type=int, default=300,
                        help="seconds after which a job counts as hung; a build has half of them")
    parser.add_argument("--jobs", type=int, default=1, help="number of concurrent jobs")
    parser.add_argument("--without", default="", help="parts to skip; see storm_rank --help")
    parser.add_argument("--keep", help="folder for the output of jobs that failed")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    a = parser.parse_args()
    counts = collections.Counter(dict.fromkeys(
        ("rebuilds", "hangs", "crashes", "wrong", "refused_without_reason", "refused_with_reason",
         "kills", "short_deadlines", "operations"), 0))
    failed = []
    begun = time.monotonic()
    names = set()
    seeds = range(a.seed, a.seed + a.seeds)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for seed, library, line, problems, counted in pool.map(lambda s: run(a, s), seeds):
            print(line + "".join(f"\n  {p}" for p in problems), file=sys.stderr, flush=True)
            names.add(pathlib.Path(library).name)
            counts.update(counted)
            if problems:
                failed.append({"seed": seed, "libraries": library, "problems": problems})
    result = {"schema": 1, "benchmark": "storm", "simulated": not a.libraries, "seeds": a.seeds,
              "libraries": sorted(names),
              "seconds": round(time.monotonic() - begun, 1), **counts, "failed": failed}
    print(json.dumps(result) if a.json else json.dumps(result, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
