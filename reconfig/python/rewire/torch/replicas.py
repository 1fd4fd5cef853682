"""Places replicas of experts on GPUs by their load, with the signature of EPLB (deepseek-ai/EPLB).

    phy2log, log2phy, count = rewire.torch.rebalance_experts(weight, num_replicas, num_groups, num_nodes, num_gpus)

A serving engine that calls EPLB's rebalance_experts() can call this one. As EPLB, it gives replicas to the experts with
the most load for each replica, and packs the heaviest first. It then exchanges replicas between the busiest GPU and
others as long as that GPU's load falls, so its busiest GPU has at most the load of EPLB's. Pure; thread-safe.
"""
import heapq
from collections import Counter
from typing import List, Sequence, Tuple

import torch

__all__ = ["rebalance_experts"]


def rebalance_experts(weight: torch.Tensor, num_replicas: int, num_groups: int, num_nodes: int,
                      num_gpus: int) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """weight: [layers, experts], the load of each expert. num_replicas: slots of all GPUs together. num_groups: groups
    of experts, each of which stays on one node if num_nodes divides their number; otherwise nodes do not count.

    Returns the expert in each slot, GPU after GPU [layers, num_replicas]; the slots of each expert, filled up with -1
    [layers, experts, num_replicas - experts + 1]; and the number of each expert's replicas [layers, experts]. All are
    int64 on the CPU. Raises ValueError for numbers that do not divide each other."""
    layers, experts = weight.shape
    if num_nodes < 1 or num_groups % num_nodes != 0:
        num_groups, num_nodes = 1, 1
    for what, number, by in (("num_replicas", num_replicas, num_gpus), ("experts", experts, num_groups),
                             ("num_gpus", num_gpus, num_nodes)):
        if by < 1 or number % by != 0:
            raise ValueError(f"rebalance_experts: {what}={number}: must be a multiple of {by}")
    if num_replicas < experts:
        raise ValueError(f"rebalance_experts: num_replicas={num_replicas}: must be at least the {experts} experts")
    if not bool(torch.isfinite(weight).all()) or bool((weight < 0).any()):
        raise ValueError("rebalance_experts: weight: must be finite, and not negative")
    slots = torch.tensor([_place(row, num_replicas, num_groups, num_nodes, num_gpus)
                          for row in weight.detach().double().cpu().tolist()],
                         dtype=torch.int64).view(layers, num_replicas)
    places = torch.full((layers, experts, num_replicas - experts + 1), -1)
    count = torch.zeros(layers, experts, dtype=torch.int64)
    for layer, row in enumerate(slots.tolist()):
        for slot, expert in enumerate(row):
            places[layer, expert, count[layer, expert]] = slot
            count[layer, expert] += 1
    return slots, places, count


def _place(loads: List[float], replicas: int, groups: int, nodes: int, gpus: int) -> List[int]:
    """Returns the expert in each slot."""
    size = len(loads) // groups
    of_groups = [sum(loads[group * size: (group + 1) * size]) for group in range(groups)]
    heaviest_first = _pack(of_groups, nodes)
    # Nodes of more even load can have busier GPUs.
    found = []
    for packed in (heaviest_first, _level(of_groups, heaviest_first)) if nodes > 1 else (heaviest_first,):
        slots: List[int] = []
        busiest = 0.0
        for node in packed:
            experts = [expert for group in node for expert in range(group * size, (group + 1) * size)]
            copies = _replicate([loads[expert] for expert in experts], replicas // nodes)
            count = Counter(copies)
            shares = [loads[experts[i]] / count[i] for i in copies]
            for gpu in _level(shares, _pack(shares, gpus // nodes)):
                slots += sorted(experts[copies[replica]] for replica in gpu)
                busiest = max(busiest, sum(shares[replica] for replica in gpu))
        found.append((busiest, slots))
    return min(found)[1]


def _replicate(loads: Sequence[float], replicas: int) -> List[int]:
    """Returns the expert of each replica: each has one, and the next is of the one with the most load for each."""
    copies = list(range(len(loads)))
    heap = [(-load, i, 1) for i, load in enumerate(loads)]
    heapq.heapify(heap)
    while len(copies) < replicas:
        _, i, count = heap[0]
        copies.append(i)
        heapq.heapreplace(heap, (-loads[i] / (count + 1), i, count + 1))
    return copies


def _pack(loads: Sequence[float], bins: int) -> List[List[int]]:
    """Returns the items of each bin, the same number in all."""
    size = len(loads) // bins
    packed: List[List[int]] = [[] for _ in range(bins)]
    heap = [(0.0, number) for number in range(bins)]
    for item in sorted(range(len(loads)), key=lambda i: -loads[i]):
        load, number = heapq.heappop(heap)
        packed[number].append(item)
        if len(packed[number]) < size:
            heapq.heappush(heap, (load + loads[item], number))
    return packed


def _level(of_items: Sequence[float], items: List[List[int]]) -> List[List[int]]:
    """Exchanges items of the busiest bin for those of others while the busier of the two gets less than it had."""
    loads, packed = torch.tensor(of_items, dtype=torch.float64), torch.tensor(items)
    while True:
        here = loads[packed]
        of_bins = here.sum(1)
        busiest = int(of_bins.argmax())
        less = here[busiest].view(-1, 1, 1) - here  # [items of the busiest, bins, items]
        after = torch.maximum(of_bins[busiest] - less, of_bins.view(1, -1, 1) + less)
        after[:, busiest] = float("inf")
        best = int(after.argmin())
        # Sums in another order differ in their last bits, which is no progress.
        if not float(after.view(-1)[best]) < float(of_bins[busiest]) * (1 - 1e-12):
            return [[int(item) for item in row] for row in packed]
        mine, rest = divmod(best, packed.numel())
        number, theirs = divmod(rest, packed.shape[1])
        packed[busiest, mine], packed[number, theirs] = int(packed[number, theirs]), int(packed[busiest, mine])
