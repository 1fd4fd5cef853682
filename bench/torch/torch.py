#!/usr/bin/env python3
"""`./dev bench torch`: PyTorch scripts with rewire.torch, on the simulated GPU.

- lines_changed: the lines of examples/torch_ddp.py that name Rewire. Without them (plain_runs) two
  processes train by PyTorch alone, over gloo.
- state_equal, losses_equal: script/train.py with rounds of a grow, a reclaim notice, a replacement,
  a SIGKILL, another grow and a shrink ends with the same bits as undisturbed.
- pause_ratio_vs_restart: the same changes by torch.save, exit, start and torch.load, with PyTorch's
  DistributedDataParallel over gloo. The smallest ratio of medians, over the planned changes. A pause
  is that of bench/demo: the longest interval between two step ends, over all members, minus an
  undisturbed one. kill_pause_ratio_vs_restart: of the death, with the steps that the restart repeats.
- step_growth: thread CPU of a step with rewire.torch.Job against the same script with its gradient
  reduction alone, undisturbed, in alternating runs.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "demo"))
import changes  # noqa: E402
import comparison  # noqa: E402
import restart  # noqa: E402
from job import JobError  # noqa: E402
from steps import losses  # noqa: E402
from training import disturb, say, train  # noqa: E402

EXAMPLE = ROOT / "examples" / "torch_ddp.py"
SCRIPT = str(HERE / "script" / "train.py")
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "reconfig" / "python"), "REWIRE_SILENCE_MS": "60000",
               "REWIRE_BUILD_MS": "60000"}
MARGIN = 20  # steps between the last change and the end


def python_with_torch():
    for python in (sys.executable, "/usr/bin/python3"):
        program = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        # Not in this folder, which has another torch.py.
        if subprocess.run([python, "-c", program], cwd="/", check=False).returncode == 0:
            return python
    sys.exit("torch: no PyTorch (Debian: python3-torch)")


def changed_lines(python, folder):
    """Returns (the number of the example's lines that name Rewire, whether it trains without them)."""
    text = EXAMPLE.read_text()
    code = text.index('"""', text.index('"""') + 3) + 3
    lines = text[code:].splitlines()
    plain = [line for line in lines if "rewire" not in line]
    script = folder / "plain.py"
    script.write_text("\n".join(plain).replace('"nccl"', '"gloo"'))
    processes, port = [], str(restart.free_port())
    for rank in range(2):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        processes.append(subprocess.Popen([python, str(script), "--epochs", "2"], env=environment,
                                          stdout=subprocess.PIPE, text=True))
    output = "".join(process.communicate(timeout=120)[0] for process in processes)
    runs = all(process.returncode == 0 for process in processes) and "epoch 1: 2 members" in output
    return len(lines) - len(plain), runs


def scenario(build, folder, python, args):
    """Returns (equal losses, equal state, the demo's table)."""
    stop = folder / "stop"
    program = [python, SCRIPT, "--width", str(args.width), "--layers", str(args.layers)]

    def actions(job, log):
        rows = disturb(args.rounds, args.spacing)(job, log)
        ahead = folder / "ahead"
        ahead.write_text(str(log.last_step() + MARGIN))
        ahead.rename(stop)
        return rows

    log, rows, final = train(build, folder / "changing", 2, [*program, "--stop-file", str(stop)], actions, ENVIRONMENT)
    steps = re.match(r"final step (\d+)", final).group(1)
    say(f"the same {steps} steps undisturbed")
    reference, _, reference_final = train(build, folder / "reference", 2, [*program, "--steps", steps],
                                          lambda job, log: None, ENVIRONMENT)
    say("the same changes by torch.save, exit, start and torch.load")
    sizes = [2]
    for _ in range(args.restarts):
        sizes += [4, 3, 3, 2, 4, 2]
    baselines = restart.measure(build, folder / "restart", python, sizes, 12, program[1:])
    medians = changes.undisturbed_medians(log, rows)
    rows = [changes.cost(log, row, medians) for row in rows]
    ours, theirs = losses(log), losses(reference)
    equal = all(len(bits) == 1 for bits in ours.values()) and ours == theirs
    return equal, final == reference_final, comparison.table(changes.ROUND + [changes.BACK], rows, baselines, medians)


def step_cpu(build, folder, python, args, options):
    """Returns the median thread CPU of a step in ns, over all members."""
    steps = args.cpu_steps
    log, _, _ = train(build, folder, 2, [python, SCRIPT, "--no-exact", "--width", "128", "--layers", "4", "--batch", "8",
                                         "--steps", str(steps), *options], lambda job, log: None, ENVIRONMENT)
    return statistics.median(b["cpu_ns"] - a["cpu_ns"] for rows in log.steps.values()
                             for a, b in zip(rows[10:], rows[11:]))


def step_growth(build, folder, python, args):
    """Returns one growth for each pair of runs."""
    growths = []
    for pair in range(args.pairs):
        order = [("job", []), ("reduction", ["--reduction-only"])]
        cpu = {}
        for name, options in order if pair % 2 == 0 else reversed(order):
            cpu[name] = step_cpu(build, folder / f"{name}{pair}", python, args, options)
        growths.append(cpu["job"] / cpu["reduction"] - 1)
        say(f"  step: {cpu['job'] / 1e6:.2f} ms of CPU with Job, {cpu['reduction'] / 1e6:.2f} ms without")
    return growths


def main():
    parser = argparse.ArgumentParser(prog="./dev bench torch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=4, help="rounds of six changes (4)")
    parser.add_argument("--restarts", type=int, default=2, help="rounds of restarts (2)")
    parser.add_argument("--spacing", type=int, default=5, help="undisturbed steps between changes (5)")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs for step_growth (5)")
    parser.add_argument("--cpu-steps", type=int, default=80, help="steps of each of them (80)")
    parser.add_argument("--width", type=int, default=64, help="of the model (64)")
    parser.add_argument("--layers", type=int, default=2, help="of the model (2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    args = parser.parse_args()
    build, python = pathlib.Path(args.build).resolve(), python_with_torch()
    with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
        folder = pathlib.Path(name)
        try:
            changed, plain_runs = changed_lines(python, folder)
            losses_equal, state_equal, table = scenario(build, folder, python, args)
            growths = step_growth(build, folder, python, args)
        except (JobError, RuntimeError, OSError) as error:
            for output in sorted(folder.glob("*/output.txt")):
                say(output.read_text(errors="replace")[-4000:])
            sys.exit(f"torch: {error}")
    for line in comparison.lines(table):
        say("  " + line)
    result = {
        "schema": 1, "benchmark": "torch", "simulated": True, "lines_changed": changed, "plain_runs": plain_runs,
        "changes": len(changes.plan(args.rounds)), "losses_equal": losses_equal, "state_equal": state_equal,
        "pause_ratio_vs_restart": min(row["ratio"] for row in table if row["planned"] and "ratio" in row),
        "kill_pause_ratio_vs_restart": min(row["ratio"] for row in table if not row["planned"] and "ratio" in row),
        "step_growth": statistics.median(growths), "step_growth_all": growths, "table": table,
    }
    print(json.dumps(result) if args.json else json.dumps(result, indent=1))
    passed = (changed <= 2 and plain_runs and losses_equal and state_equal
              and result["pause_ratio_vs_restart"] >= 20 and result["step_growth"] < 0.01)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
