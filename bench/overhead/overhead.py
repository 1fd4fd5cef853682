"""./dev bench overhead: what a training step costs more under Rewire while nothing is pending.

The same training twice at the same time, once plain and once under `rewire run` (shim, agent, update
boundary), each pinned to a core of its own and changing cores every round, so that whatever else the
machine does meets both. Per round: median step of either side. The change is the median over rounds
of the paired differences, with a bootstrap interval.

  cpu_ns_per_step_change   training thread's CPU time per step, share of a step (0.003 = 0.3 %)
  wall_change_interval_95  wall-clock time per step, 95 % interval of the share
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile


def say(text):
    print(text, file=sys.stderr, flush=True)


def steps_of(path, skip):
    rows = [json.loads(line) for line in open(path)]
    rows = [r for r in rows if r["kind"] == "step"][skip:]
    walls = [(b["wall_ns"] - a["wall_ns"]) for a, b in zip(rows, rows[1:])]
    return {"cpu": [r["cpu_ns"] for r in rows[1:]], "wall": walls}


def start(build, folder, core, side, steps, arguments):
    build = pathlib.Path(build)
    log = folder / f"{side}.jsonl"
    program = [str(build / "bin" / "gpt_train"), "--steps", str(steps), "--log", str(log), *arguments]
    env = dict(os.environ)
    if side == "rewire":
        command = [str(build / "bin" / "rewire"), "run", "-n", "1", "--sim", "--dir", str(folder / "job"), "--",
                   *program]
    else:
        command = program
        env.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                   MASTER_PORT="1", LD_LIBRARY_PATH=str(build / "simgpu"))
    output = open(folder / f"{side}.txt", "wb")
    return log, subprocess.Popen(command, env=env, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                                 preexec_fn=lambda: os.sched_setaffinity(0, {core}))


def bootstrap(values, seed=1, draws=4000):
    """(median, low, high) of the median's 95 % interval."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(draws))
    return statistics.median(values), medians[int(draws * 0.025)], medians[int(draws * 0.975)]


def parse():
    p = argparse.ArgumentParser(prog="./dev bench overhead", description=__doc__.split("\n\n")[0])
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--json", action="store_true", help="one JSON object on standard output")
    p.add_argument("--rounds", type=int, default=12, help="paired runs (12)")
    p.add_argument("--steps", type=int, default=150, help="steps of each run (150)")
    args = p.parse_args()
    if args.rounds < 4 or args.steps < 20:
        p.error("--rounds must be at least 4 and --steps at least 20")
    return args


def main():
    args = parse()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        say("overhead: two cores are needed")
        return 1
    change = {"cpu": [], "wall": []}
    plain = {"cpu": [], "wall": []}
    for i in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="rewire-overhead-") as folder:
            folder = pathlib.Path(folder)
            sides = ("plain", "rewire") if i % 2 == 0 else ("rewire", "plain")
            running = [(side, *start(args.build, folder, core, side, args.steps, ["--zero", "0"]))
                       for side, core in zip(sides, cores)]
            for side, _, process in running:
                if process.wait(600) != 0:
                    say((folder / f"{side}.txt").read_text()[-2000:])
                    return 1
            measured = {side: steps_of(log, args.steps // 10) for side, log, _ in running}
        for key in change:
            a, b = (statistics.median(measured[side][key]) for side in ("plain", "rewire"))
            plain[key].append(a)
            change[key].append((b - a) / a)
        say(f"round {i + 1:2d}: step {plain['wall'][-1] / 1e6:.2f} ms, thread CPU {change['cpu'][-1] * 100:+.3f} %, "
            f"wall {change['wall'][-1] * 100:+.3f} %")
    cpu, cpu_low, cpu_high = bootstrap(change["cpu"])
    wall, wall_low, wall_high = bootstrap(change["wall"])
    say(f"thread CPU per step {cpu * 100:+.3f} % [{cpu_low * 100:+.3f}, {cpu_high * 100:+.3f}], "
        f"wall {wall * 100:+.3f} % [{wall_low * 100:+.3f}, {wall_high * 100:+.3f}] (95 % intervals of the median)")
    if args.json:
        print(json.dumps({
            "schema": "rewire-overhead", "version": 1, "simulated": True, "rounds": args.rounds, "steps": args.steps,
            "step_cpu_ns": statistics.median(plain["cpu"]), "step_wall_ns": statistics.median(plain["wall"]),
            "cpu_ns_per_step_change": cpu, "cpu_change_interval_95": [cpu_low, cpu_high],
            "wall_change": wall, "wall_change_interval_95": [wall_low, wall_high],
            "samples": change,
        }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
