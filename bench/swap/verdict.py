"""The verdict of a swap mode: compares what the program issued with what reached NCCL.

A record is a SeenOperation of spy/current_operation.h. A send and a receive of one operation are
two records, which must agree.
"""

import collections
import struct

MADE_BESIDE_DESTROY = 2**32 - 1  # spy/current_operation.h
RECORD = struct.Struct("=IHHQQ")  # communicator, rank, receives, index, generation


def read(path):
    """The records of one process, in the order of its calls."""
    return list(RECORD.iter_unpack(path.read_bytes()))


def judge(results, files):
    """{key: count} of the processes' results and records.

    swaps: of the rank that changed generations least, over all its communicators.
    made_again: communicators that a process destroyed and made again, at most.
    built_beside_destroy: generations made while the same process destroyed another.
    """
    stale = lost = wrong = operations = beside = 0
    swaps = collections.Counter()
    used = collections.defaultdict(dict)  # communicator -> index -> the first rank's generation
    seen = collections.defaultdict(lambda: collections.defaultdict(set))
    calls = collections.Counter()  # (communicator, rank, index): without receives
    for file in files:
        left = collections.defaultdict(list)  # (communicator, rank) -> generations in their order
        for communicator, rank, receives, index, generation in read(file):
            if communicator == MADE_BESIDE_DESTROY:
                beside += 1
                continue
            calls[communicator, rank, index] += 1 - receives
            seen[communicator, rank][index].add(generation)
            order = left[communicator, rank]
            if not order or order[-1] != generation:
                # A rank never goes back to a generation.
                stale += 1 if generation in order else 0
                order.append(generation)
        swaps[file] = sum(len(order) - 1 for order in left.values())
    for (communicator, _), indices in seen.items():
        for index, generations in indices.items():
            # One operation on two generations, or two ranks on two generations.
            first = used[communicator].setdefault(index, min(generations))
            stale += 1 if generations != {first} else 0
    for result in results:
        for lane in result["lanes"] if result else []:
            name = lane["communicator"], lane["rank"]
            operations += lane["issued"]
            lost += sum(1 for index in range(lane["issued"]) if calls[*name, index] != 1)
            lost += sum(1 for index in seen[name] if index >= lane["issued"])
            wrong += lane["wrong"] + lane["issued"] - lane["verified"]
    made_again = max((sum(lane["made"] - 1 for lane in result["lanes"]) for result in results
                      if result), default=0)
    return {"stale_ops": stale, "lost_ops": lost, "wrong_data": wrong,
            "swaps": min(swaps.values(), default=0) - made_again, "operations": operations,
            "made_again": made_again, "built_beside_destroy": beside}
