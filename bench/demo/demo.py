"""./dev demo: a GPT trains in several processes over the NCCL API while its world changes.

The first run has rounds of a grow, a reclaim notice, a replacement, a SIGKILL of slot 0 and another
grow; a shrink to 2 members separates the rounds. The second run makes the same number of steps
undisturbed. Then the same changes are made by checkpoint, exit, start and load, as the baseline.
The losses and the final state of the first two runs must be bit-equal. The demo runs on the
simulated GPU, and its figures say so.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import changes
import chart
import comparison
import restart
from job import JobError
from steps import losses
from training import disturb, say, train


def parse():
    p = argparse.ArgumentParser(prog="./dev demo", description=__doc__.split("\n\n")[0])
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    p.add_argument("--rounds", type=int, default=5, metavar="N", help="repetitions of each change (5)")
    p.add_argument("--spacing", type=int, default=5, metavar="STEPS", help="undisturbed steps between changes (5)")
    p.add_argument("--state-mb", type=int, default=256, metavar="MB", help="additional state in MB besides the model's (256)")
    p.add_argument("--zero", type=int, choices=(0, 1), default=1, help="ZeRO stage (1)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-restart", action="store_true", help="skip the restart baseline")
    p.add_argument("--out", default="demo-results", metavar="DIR", help="folder for the chart and the traces (demo-results)")
    args = p.parse_args()
    if args.rounds < 1 or args.spacing < 1 or args.state_mb < 0:
        p.error(f"--rounds={args.rounds} --spacing={args.spacing} --state-mb={args.state_mb}: "
                "must be at least 1, 1 and 0")
    return args


def main():
    args = parse()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    trainer = str(pathlib.Path(args.build) / "bin" / "gpt_train")
    common = ["--exact", "--zero", str(args.zero), "--seed", str(args.seed), "--state-mb", str(args.state_mb)]
    count = len(changes.plan(args.rounds))
    with tempfile.TemporaryDirectory(prefix="rewire-demo-") as work:
        work = pathlib.Path(work)
        say(f"1. with {count} changes of the world, on the simulated GPU, {args.state_mb} MB of ballast state")
        # The job trains until the changes are done, so the number of steps is not fixed in advance.
        stop_file = work / "stop"
        steps_arguments = ["--steps", "100000", "--stop-file", str(stop_file)]

        def actions(job, log):
            rows = disturb(args.rounds, args.spacing)(job, log)
            stop_file.touch()
            return rows

        log, rows, final = train(args.build, work / "changing", 2, [trainer, *common, *steps_arguments], actions)
        shutil.copy(work / "changing" / "output.txt", out / "output.txt")
        steps = int(final.split()[2])
        say(f"2. the same {steps} steps undisturbed")
        reference, _, reference_final = train(args.build, work / "reference", 2,
                                              [trainer, *common, "--steps", str(steps)], lambda job, log: None)
        equal = losses(log) == losses(reference) and final == reference_final and all(
            len(bits) == 1 for bits in losses(log).values())
        medians = changes.undisturbed_medians(log, rows)
        rows = [changes.cost(log, row, medians) for row in rows]
        baselines = []
        if not args.no_restart:
            say("3. the same changes by checkpoint, exit, start, load")
            sizes = [2]
            for _ in range(args.rounds):
                sizes += [4, 3, 3, 2, 4, 2]
            baselines = restart.measure(args.build, work / "restart", trainer, sizes, 4,
                                        common + ["--steps", "100000"])
        table = comparison.table(changes.ROUND + [changes.BACK], rows, baselines, medians)
        members = sorted(log.steps.items())
        path = {}
        for _, member_rows in members:
            for a, b in zip(member_rows, member_rows[1:]):
                ms = (b["wall_ns"] - a["wall_ns"]) / 1e6
                if b["step"] not in path or ms > path[b["step"]]["ms"]:
                    path[b["step"]] = {"step": b["step"], "loss": b["loss"], "ms": ms, "slots": b["slots"]}
        steps_of_path = [path[s] for s in sorted(path)]
        marks = [{"step": r["step"] or r["done_at_step"], "name": r["name"]} for r in rows]
        (out / "demo.svg").write_text(
            chart.render("Rewire: one job, its world changing (simulated GPU)", steps_of_path, marks))
        if (work / "changing" / "traces").is_dir():
            shutil.copytree(work / "changing" / "traces", out / "traces", dirs_exist_ok=True)
    say()
    blocks = chart.BLOCKS if (sys.stderr.encoding or "").lower().startswith("utf") else chart.PLAIN
    for line in chart.text(steps_of_path, marks, marks=blocks):
        say("  " + line)
    say()
    for line in comparison.lines(table):
        say("  " + line)
    say(f"\n  losses and final state bit-equal to the undisturbed run: {'yes' if equal else 'NO'}")
    planned = [r for r in table if r["planned"]]
    result = {
        "schema": "rewire-demo", "version": 1, "simulated": True, "state_mb": args.state_mb,
        "zero": args.zero, "steps": steps, "rounds": args.rounds, "exact_equal": equal,
        "steps_lost_planned": max(r["steps_lost"] for r in planned),
        "steps_lost_kill": max(r["steps_lost"] for r in table if not r["planned"]),
        "host_waits": sum(r["host_waits"] for r in rows),
        "undisturbed_ms": medians, "changes": table,
        "final": final, "reference_final": reference_final,
    }
    ratios = [r["ratio"] for r in planned if "ratio" in r]
    if ratios:
        result["pause_ratio_vs_restart_min"] = min(ratios)
        result["pause_ratio_vs_unsynced_restart_min"] = min(r["ratio_unsynced"] for r in planned if "ratio" in r)
        say(f"  smallest ratio of a restart's downtime to Rewire's pause: {min(ratios):.0f}x")
    deaths = [r for r in table if not r["planned"] and "ratio" in r]
    if deaths:
        result["kill_pause_ratio_vs_restart"] = min(r["ratio"] for r in deaths)
        result["kill_pause_ratio_without_repeats"] = min(r["ratio_without_repeats"] for r in deaths)
    say(f"  chart: {out}/demo.svg   traces: {out}/traces")
    if args.json:
        print(json.dumps(result))
    return 0 if equal else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (JobError, RuntimeError, OSError) as error:
        say(f"demo: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
