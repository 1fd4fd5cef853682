"""The first operation of each kind on a new generation, against its time in a steady state."""

import collections
import statistics

from verdict import read

NEIGHBOURS = 8  # operations of the same kind on each side, which are the steady state


def generations(files):
    """{(communicator, rank): {index: generation}} of the spy's records."""
    used = collections.defaultdict(dict)
    for file in files:
        for communicator, rank, _, index, generation in read(file):
            used[communicator, rank][index] = generation
    return used


def ratios(times, used):
    """Yields (kind, whether the operation made the swap, its time by that of its neighbours)."""
    series = collections.defaultdict(list)  # kind -> (time, is it the first)
    swaps = {}  # (kind, position) -> whether the operation made the swap
    last_of_kind, last = {}, None
    for kind, index, ns in times:
        generation = used.get(index)
        first = last_of_kind.get(kind, generation) != generation
        if first:
            swaps[kind, len(series[kind])] = last != generation
        series[kind].append((ns, first))
        last_of_kind[kind] = last = generation
    for (kind, position), swapped in swaps.items():
        near = series[kind][max(0, position - NEIGHBOURS):position + NEIGHBOURS + 1]
        steady = [ns for ns, first in near if not first]
        if steady:
            yield kind, swapped, series[kind][position][0] / statistics.median(steady)


def figures(results, files):
    """The keys of a soak: first_op_ratio is the largest median of a kind of operation."""
    timed = [lane for result in results if result for lane in result["lanes"] if lane["times"]]
    used = generations(files) if timed else {}
    by_kind, at_swap = collections.defaultdict(list), []
    for lane in timed:
        for kind, swapped, ratio in ratios(lane["times"],
                                           used[lane["communicator"], lane["rank"]]):
            by_kind[kind].append(ratio)
            if swapped:
                at_swap.append(ratio)
    if not by_kind:
        return {}
    medians = {kind: round(statistics.median(r), 3) for kind, r in by_kind.items()}
    return {"first_op_ratio": max(medians.values()), "first_op_ratio_by_kind": medians,
            "first_op_ratio_quartiles": {kind: [round(q, 3) for q in statistics.quantiles(r)]
                                         for kind, r in by_kind.items() if len(r) > 1},
            "first_op_ratio_at_swap": round(statistics.median(at_swap), 3) if at_swap else None}
