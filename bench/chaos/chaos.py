"""./dev bench chaos: small training jobs under `rewire run`, each disturbed a few times at random.

A job must continue after every fault that can be survived, end with status 0 when asked to, and
have computed the results of an undisturbed run: each loss and the final state, bit for bit. After
a fault that cannot be survived the job must end and report the reason. The fault predicts which of
the two applies. No process and no job folder may be left. The seed in a run's line repeats the run.
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

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "demo"))

from run import Run  # noqa: E402


def say(text=""):
    print(text, file=sys.stderr, flush=True)


def parse():
    p = argparse.ArgumentParser(prog="./dev bench chaos", description=__doc__.split("\n\n")[0])
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--json", action="store_true", help="one JSON object on standard output")
    p.add_argument("--runs", type=int, default=200, metavar="N", help="number of jobs (200)")
    p.add_argument("--parallel", type=int, default=3, metavar="N", help="concurrent jobs (3)")
    p.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the first run; each further run adds 1 (1)")
    p.add_argument("--keep", metavar="DIR", default="chaos-results", help="folder for the files of failed runs (chaos-results)")
    args = p.parse_args()
    if args.runs < 1 or args.parallel < 1:
        p.error("--runs and --parallel must be at least 1")
    return args


def one_run(build, seed):
    """Returns (run, its folder, seconds)."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rewire-chaos-"))
    began = time.monotonic()
    run = Run(build, folder / "run", seed)
    run.perform()
    return run, folder, time.monotonic() - began


def take(run, folder, seconds, result, faults, keep):
    """Adds a finished run to the result, prints its outcome, and keeps its files if it failed."""
    seed = run.seed
    mistaken = run.mistaken_losses()
    faults.update(name for name, _ in run.did)
    result["runs"] += 1
    result["faults"] += len(run.did)
    result["jobs_ended_wrongly"] += bool(run.wrong)
    result["losses_different"] += bool(run.different)
    result["orphans"] += len(run.left)
    result["members_lost_by_mistake"] += len(mistaken)
    result["jobs_at_known_limit"] += run.limit_reached
    result["jobs_ended_as_predicted"] += run.end is not None and not run.wrong
    result["changes_refused"] += run.refused
    result["steps"] += run.log.last_step() + 1
    bad = [text for text in (run.wrong, run.different, run.left and f"left: {', '.join(run.left)}",
                             mistaken and f"lost by mistake: member {mistaken}") if text]
    good = "known limit" if run.limit_reached else "ended as it must" if run.end else "ok"
    say(f"run {seed}: {run}: {'; '.join(what for _, what in run.did)}: {'; '.join(bad) or good} "
        f"({seconds:.1f} s, {run.log.last_step() + 1} steps)")
    if bad:
        result["failed_seeds"].append(seed)
        kept = pathlib.Path(keep) / f"seed-{seed}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("*.sock"))
        say(f"  repeat with: ./dev bench chaos --runs 1 --seed {seed}    its files: {kept}")
    shutil.rmtree(folder, ignore_errors=True)


def main():
    args = parse()
    began = time.monotonic()
    faults = collections.Counter()
    result = {"bench": "chaos", "simulated": True, "seed": args.seed, "runs": 0, "faults": 0, "jobs_ended_wrongly": 0,
              "losses_different": 0, "orphans": 0, "members_lost_by_mistake": 0, "jobs_at_known_limit": 0,
              "jobs_ended_as_predicted": 0, "changes_refused": 0, "steps": 0, "failed_seeds": []}
    # A job mostly waits for a silence, the end of a stall, or the start of its processes.
    pool = concurrent.futures.ThreadPoolExecutor(args.parallel)
    seeds = range(args.seed, args.seed + args.runs)
    runs = [pool.submit(one_run, args.build, seed) for seed in seeds]
    try:
        for done in concurrent.futures.as_completed(runs):
            take(*done.result(), result, faults, args.keep)
    finally:
        pool.shutdown(cancel_futures=True)
    result["by_fault"] = dict(sorted(faults.items()))
    result["seconds"] = round(time.monotonic() - began, 1)
    if args.json:
        print(json.dumps(result))
    else:
        print(", ".join(f"{k} {v}" for k, v in result.items() if k not in ("bench", "simulated")))
    return 0 if not result["failed_seeds"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
