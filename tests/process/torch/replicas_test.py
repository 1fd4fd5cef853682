#!/usr/bin/env python3
"""replicas_test.py: rewire.torch.rebalance_experts against EPLB's way of packing, on many loads."""
import importlib.util
import pathlib
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is not installed")
    sys.exit(77)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "reconfig" / "python"))
import torch  # noqa: E402
from rewire.torch import rebalance_experts  # noqa: E402


def lightest(loads, full):
    return min((number for number in range(len(loads)) if not full[number]), key=lambda number: loads[number])


def eplb_packing(loads, bins):
    """The heaviest first, each into the lightest bin with room."""
    packed, sums = [[] for _ in range(bins)], [0.0] * bins
    for item in sorted(range(len(loads)), key=lambda i: -loads[i]):
        number = lightest(sums, [len(each) * bins >= len(loads) for each in packed])
        packed[number].append(item)
        sums[number] += loads[item]
    return packed


def eplb_busiest(loads, replicas, groups, nodes, gpus):
    """The load of the busiest GPU by EPLB's published steps."""
    size, busiest = len(loads) // groups, 0.0
    for node in eplb_packing([sum(loads[g * size: (g + 1) * size]) for g in range(groups)], nodes):
        own = [loads[e] for g in node for e in range(g * size, (g + 1) * size)]
        count = [1] * len(own)
        for _ in range(replicas // nodes - len(own)):
            count[max(range(len(own)), key=lambda i: own[i] / count[i])] += 1
        shares = [own[i] / count[i] for i in range(len(own)) for _ in range(count[i])]
        busiest = max(busiest, *(sum(shares[i] for i in gpu) for gpu in eplb_packing(shares, gpus // nodes)))
    return busiest


class ReplicasTest(unittest.TestCase):
    def check(self, weight, replicas, groups, nodes, gpus):
        """Returns the load of the busiest GPU in each layer."""
        slots, places, count = rebalance_experts(weight, replicas, groups, nodes, gpus)
        layers, experts = weight.shape
        self.assertEqual((slots.shape, places.shape, count.shape),
                         ((layers, replicas), (layers, experts, replicas - experts + 1), (layers, experts)))
        self.assertTrue((count >= 1).all() and (count.sum(1) == replicas).all())
        for layer in range(layers):
            for expert in range(experts):
                here = [slot for slot in places[layer, expert].tolist() if slot >= 0]
                self.assertEqual(here, (slots[layer] == expert).nonzero().view(-1).tolist())
                self.assertEqual(len(here), count[layer, expert])
        if groups % nodes == 0:
            homes = slots.view(layers, nodes, -1) // (experts // groups)
            for layer in homes.tolist():
                together = [set(node) for node in layer]
                self.assertEqual(sum(map(len, together)), groups)  # no group is on two nodes
        shares = weight.double() / count
        return shares.gather(1, slots).view(layers, gpus, -1).sum(2).max(1).values.tolist()

    def test_the_busiest_gpu_has_at_most_the_load_of_eplb(self):
        torch.manual_seed(1)
        better = total = 0
        for experts, replicas, groups, nodes, gpus in (
                (64, 72, 8, 2, 8), (256, 288, 8, 4, 32), (16, 16, 4, 1, 4), (60, 64, 1, 1, 8), (12, 16, 3, 2, 4)):
            weight = torch.exp(1.5 * torch.randn(20, experts, dtype=torch.float64))
            hierarchical = (groups, nodes) if groups % nodes == 0 else (1, 1)
            for ours, loads in zip(self.check(weight, replicas, groups, nodes, gpus), weight.tolist()):
                theirs = eplb_busiest(loads, replicas, *hierarchical, gpus)
                self.assertLessEqual(ours, theirs * (1 + 1e-9))
                better += ours < theirs * (1 - 1e-9)
                total += 1
        self.assertGreater(better, total // 2)

    def test_unusual_loads(self):
        self.check(torch.zeros(2, 8), 8, 1, 1, 8)
        self.check(torch.full((1, 8), 3, dtype=torch.int64), 16, 2, 2, 4)
        self.check(torch.tensor([[1e9] + 7 * [0.0]]), 12, 1, 1, 4)
        self.check(torch.ones(1, 9), 9, 2, 4, 3)  # nodes do not count
        none = rebalance_experts(torch.ones(0, 4), 4, 1, 1, 2)[0]
        self.assertEqual((none.shape, none.dtype), ((0, 4), torch.int64))

    def test_numbers_that_do_not_fit_are_refused(self):
        for replicas, groups, nodes, gpus, text in ((9, 1, 1, 2, "num_replicas=9"), (4, 1, 1, 2, "num_replicas=4"),
                                                    (8, 3, 1, 2, "experts=8"), (9, 2, 2, 3, "num_gpus=3"),
                                                    (8, 1, 1, 0, "num_replicas=8")):
            with self.assertRaisesRegex(ValueError, text):
                rebalance_experts(torch.ones(1, 8), replicas, groups, nodes, gpus)
        for wrong in (float("nan"), float("inf"), -1.0):
            with self.assertRaisesRegex(ValueError, "weight"):
                rebalance_experts(torch.full((1, 8), wrong), 8, 1, 1, 2)


if __name__ == "__main__":
    unittest.main()
