#!/usr/bin/env python3
"""`./dev bench plan`: plans between parallel layouts, against brute force, solvers and bounds.

- cover: random small layouts of every pattern. Each element of each member is counted: it must have one source that
  has it, and must cross to a node that lacks it once.
- seats: transformers on up to 8 and up to 512 members. The bytes that stay in place are compared with the best of all
  assignments: by brute force up to 8 members, by SciPy's linear_sum_assignment beyond.
- links: the busiest node's bytes to or from other nodes, compared with the least that is possible if every element
  crosses once: a linear program (SciPy's linprog), in which a node may send any fraction of what it has.
- time: 1,024 slots with 10,244 tensors, and TP8 PP16 DP1024 to DP1000 with 1,028, each from the layouts to the last
  move. The moves of 1,000 members of the larger plan are checked.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys

BARS = {"assignment_gap_small": 0.0, "assignment_gap": 0.02, "internode_bytes_ratio": 1.0, "busiest_link_ratio": 1.05,
        "seconds_1024x10000": 1.0, "seconds_131072x1000": 60.0, "rss_gib": 8.0}


def say(text=""):
    print(text, file=sys.stderr, flush=True)


class Parts:
    def __init__(self, build):
        self.program = build / "bin" / "plan_perf"

    def run(self, *options):
        done = subprocess.run([self.program, *map(str, options)], stdout=subprocess.PIPE, check=True, timeout=1200)
        return json.loads(done.stdout)


def gap(best, kept):
    return 0.0 if best == 0 else 1 - kept / best


def best_by_force(rows):
    import numpy
    table = numpy.array(rows)
    size = len(rows)
    orders = numpy.array(list(itertools.permutations(range(size))))
    return int(table[numpy.arange(size), orders].sum(axis=1).max())


def best_by_solver(rows):
    import numpy
    from scipy.optimize import linear_sum_assignment
    table = numpy.array(rows)
    chosen = linear_sum_assignment(table, maximize=True)
    return int(table[chosen].sum())


def least_busiest(links):
    """The least possible bytes of the busiest node. Bytes are divided by the largest group's, for the solver."""
    import numpy
    from scipy.optimize import linprog
    from scipy.sparse import lil_matrix
    groups = links["groups"]
    if not groups:
        return 0
    unit = max(group["bytes"] for group in groups)
    nodes = sorted({node for group in groups for node in group["nodes"]})
    number = {node: i for i, node in enumerate(nodes)}
    shares = [(g, number[node]) for g, group in enumerate(groups) for node in group["nodes"]]
    # The variables are the bytes of each share, and the busiest node's.
    whole = lil_matrix((len(groups), len(shares) + 1))
    load = lil_matrix((len(nodes), len(shares) + 1))
    for column, (group, node) in enumerate(shares):
        whole[group, column] = 1
        load[node, column] = 1
    load[:, len(shares)] = -1
    goal = numpy.zeros(len(shares) + 1)
    goal[-1] = 1
    bounds = [(0, None)] * len(shares) + [(links["most_received"] / unit, None)]
    solved = linprog(goal, A_ub=load.tocsr(), b_ub=numpy.zeros(len(nodes)), A_eq=whole.tocsr(),
                     b_eq=[group["bytes"] / unit for group in groups], bounds=bounds, method="highs")
    if not solved.success:
        raise RuntimeError(f"linprog: {solved.message}")
    return solved.fun * unit


def summary(values):
    return {"count": len(values), "median": statistics.median(values), "max": max(values)}


def measure(parts, a, result):
    small = [gap(best_by_force(seats["kept"]), seats["kept_bytes"])
             for seats in (parts.run("seats", "--seed", s, "--slots", 8) for s in range(1, a.changes + 1))]
    say(f"seats, up to 8 members: {len(small)} changes, largest gap {max(small):.6f}")
    large = []
    for seed in range(1, a.changes + 1):
        seats = parts.run("seats", "--seed", seed, "--slots", 512)
        large.append(gap(best_by_solver(seats["kept"]), seats["kept_bytes"]))
    say(f"seats, up to 512 members: {len(large)} changes, largest gap {max(large):.6f}")
    ratios = []
    for seed in range(1, a.changes + 1):
        links = parts.run("links", "--seed", seed, "--slots", 512)
        if not links["crossed_as_needed"]:
            result["exact_cover"] = False
        least = least_busiest(links)
        if least > 0:
            ratios.append(links["busiest"] / least)
    say(f"links, up to 512 members: {len(ratios)} changes with bytes between nodes, "
        f"busiest node median {statistics.median(ratios):.4f}, largest {max(ratios):.4f} of the bound")
    result["assignment_gap_small"] = max(small)
    result["assignment_gap"] = max(large)
    result["busiest_link_ratio"] = max(ratios)
    result["measurements"] = {"gap_small": summary(small), "gap": summary(large), "busiest": summary(ratios)}
    medium, huge = [], []
    for _ in range(a.repeats):
        medium.append(parts.run("time", "--members", 100))
        say(f"time, 1,024 slots, {medium[-1]['tensors']} tensors: {medium[-1]['seconds']:.2f} s")
    for _ in range(a.repeats):
        huge.append(parts.run("time", "--large", "--members", a.members))
        say(f"time, {huge[-1]['old_slots']} to {huge[-1]['slots']} slots, {huge[-1]['tensors']} tensors: "
            f"{huge[-1]['seconds']:.1f} s, of which the slots {huge[-1]['seconds_seats']:.1f} s; "
            f"{huge[-1]['rss_gib']:.2f} GiB")
    errors = [run["error"] for run in medium + huge if run["error"]]
    if errors:
        say(errors[0])
        result["exact_cover"] = False
    result["members_checked"] = huge[0]["checked"]
    result["seconds_1024x10000"] = statistics.median(run["seconds"] for run in medium)
    result["seconds_131072x1000"] = statistics.median(run["seconds"] for run in huge)
    result["rss_gib"] = max(run["rss_gib"] for run in huge)
    result["measurements"]["seconds"] = {"1024x10000": [run["seconds"] for run in medium],
                                         "131072x1000": [run["seconds"] for run in huge]}


def main():
    parser = argparse.ArgumentParser(prog="plan", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("--pairs", type=int, default=10000, help="random pairs of layouts (default: %(default)s)")
    parser.add_argument("--changes", type=int, default=100, help="changes of transformers (default: %(default)s)")
    parser.add_argument("--members", type=int, default=1000,
                        help="members of the largest plan that are checked (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions of the times (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="a short run without solvers and times, for tests")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, the text on stderr")
    a = parser.parse_args()
    parts = Parts(a.build.resolve())
    cover = parts.run("cover", "--pairs", 300 if a.check else a.pairs)
    say(f"cover: {cover['pairs']} random pairs of layouts, {cover['wrong']} wrong {cover['error']}")
    result = {"pairs": cover["pairs"], "exact_cover": cover["wrong"] == 0,
              "internode_bytes_ratio": cover["crossings"] / max(1, cover["least_crossings"])}
    if a.check:
        seats = parts.run("seats", "--seed", 3, "--slots", 64)
        links = parts.run("links", "--seed", 3, "--slots", 64)
        time = parts.run("time", "--members", 10)
        good = seats["kept_bytes"] <= seats["bound_bytes"] and links["crossed_as_needed"] and not time["error"]
        return 0 if good and result["exact_cover"] and result["internode_bytes_ratio"] == 1 else 1
    measure(parts, a, result)
    if a.json:
        print(json.dumps(result))
    missed = {key: result[key] for key, bar in BARS.items() if result[key] > bar}
    if missed or not result["exact_cover"]:
        say(f"plan: missed: {missed}, exact_cover={result['exact_cover']}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
