#!/usr/bin/env python3
"""zero_script.py: a ZeroRedundancyOptimizer of one process against the optimizer without shards, and its checkpoints."""
import unittest
import unittest.mock

import rewire.torch
import torch
from rewire.torch import sharded as sharded_module
from rewire.torch import zero
from rewire.torch.collectives import collectives
from rewire.torch.process import process
from torch.distributed.optim import ZeroRedundancyOptimizer

zero.take_over()


def new_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))


def train(model, optimizer, schedule, steps):
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().sum().backward()
        optimizer.step()
        schedule.step()


class ZeroTest(unittest.TestCase):
    def setUp(self):
        self.plain_model, self.model = new_model(), new_model()
        self.plain = torch.optim.AdamW(self.plain_model.parameters(), lr=0.1)
        self.zero = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW, lr=0.1,
                                            parameters_as_bucket_view=True)
        self.of_plain, self.of_zero = (torch.optim.lr_scheduler.StepLR(each, 2, 0.5) for each in (self.plain, self.zero))

    def assert_equal(self, one, other):
        self.assertEqual(one["param_groups"], other["param_groups"])
        self.assertEqual(one["state"].keys(), other["state"].keys())
        for index, values in one["state"].items():
            for key, value in values.items():
                self.assertTrue(torch.equal(value, other["state"][index][key]), (index, key))

    def test_steps_and_checkpoints_are_those_of_the_optimizer_without_shards(self):
        self.assertIsInstance(self.zero, rewire.torch.ShardedOptimizer)
        self.assertIsInstance(self.zero, ZeroRedundancyOptimizer)
        rewire.torch.Job(self.model, self.zero, scheduler=self.of_zero)
        train(self.model, self.zero, self.of_zero, 5)
        train(self.plain_model, self.plain, self.of_plain, 5)
        for one, other in zip(self.model.parameters(), self.plain_model.parameters()):
            self.assertTrue(torch.equal(one, other))
        with self.assertRaisesRegex(RuntimeError, "consolidate_state_dict"):
            self.zero.state_dict()
        self.assertTrue(self.zero.consolidate_state_dict(to=0))
        whole = self.zero.state_dict()
        self.assert_equal(whole, self.plain.state_dict())
        # A copy: later steps do not change it, and it is not taken for a later step's.
        train(self.model, self.zero, self.of_zero, 1)
        self.assert_equal(whole, self.plain.state_dict())
        with self.assertRaisesRegex(RuntimeError, "after the last step"):
            self.zero.state_dict()
        with self.assertRaisesRegex(RuntimeError, "must come before Job"):
            self.zero.load_state_dict(whole)
        # The optimizer without shards goes on from it.
        model = new_model()
        model.load_state_dict(self.plain_model.state_dict())
        again = torch.optim.AdamW(model.parameters())
        again.load_state_dict(whole)
        for each, optimizer in ((model, again), (self.plain_model, self.plain)):
            for _ in range(3):
                self.step(each, optimizer)
        self.assert_equal(again.state_dict(), self.plain.state_dict())

    def step(self, model, optimizer):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    def test_nothing_is_collected_after_a_loss(self):
        train(self.model, self.zero, self.of_zero, 1)
        self.assertTrue(self.zero.consolidate_state_dict())
        with unittest.mock.patch.object(collectives(), "alone", True):
            self.assertFalse(self.zero.consolidate_state_dict())
        with self.assertRaisesRegex(RuntimeError, "return True"):
            self.zero.state_dict()
        self.assertTrue(self.zero.consolidate_state_dict(to=1))
        with self.assertRaises(RuntimeError):
            self.zero.state_dict()

    def test_frozen_parameters_have_a_place_in_a_checkpoint(self):
        for model in (self.model, self.plain_model):
            model[0].bias.requires_grad_(False)
        sharded = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW, lr=0.1)
        self.step(self.model, sharded)
        self.step(self.plain_model, self.plain)
        self.assertTrue(sharded.consolidate_state_dict())
        self.assertEqual(list(sharded.state_dict()["state"]), [0, 2, 3])
        self.plain.load_state_dict(sharded.state_dict())
        sharded.load_state_dict(self.plain.state_dict())
        self.step(self.model, sharded)
        self.step(self.plain_model, self.plain)
        for one, other in zip(self.model.parameters(), self.plain_model.parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_pieces_of_several_slots_are_put_in_their_places(self):
        slots, piece = 3, 2
        train(self.model, self.zero, self.of_zero, 2)
        self.zero.consolidate_state_dict()
        whole = self.zero.state_dict()
        flat = {key: torch.cat([values[key].reshape(-1) for values in whole["state"].values()])
                for key in ("exp_avg", "exp_avg_sq")}
        chunk = -(-self.zero.elements // slots)
        calls = iter([(key, first) for key in sorted(flat) for first in range(0, chunk, piece)])

        def all_gather(_, everything):
            key, first = next(calls)
            for slot, rows in enumerate(everything.view(slots, piece)):
                part = flat[key][slot * chunk: (slot + 1) * chunk][first: first + piece]
                rows[: len(part)] = part

        with unittest.mock.patch.multiple(sharded_module, _PIECE=slots * piece), \
                unittest.mock.patch.object(process(), "all_gather", all_gather), \
                unittest.mock.patch.object(self.zero, "_slots", slots):
            self.assertTrue(self.zero.consolidate_state_dict())
        self.assertEqual(list(calls), [])
        self.assert_equal(self.zero.state_dict(), whole)

    def test_a_checkpoint_is_taken_before_the_first_step(self):
        train(self.plain_model, self.plain, self.of_plain, 3)
        self.zero.load_state_dict(self.plain.state_dict())
        self.model.load_state_dict(self.plain_model.state_dict())
        for model, optimizer in ((self.model, self.zero), (self.plain_model, self.plain)):
            self.step(model, optimizer)
        for one, other in zip(self.model.parameters(), self.plain_model.parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_what_does_not_fit_is_refused(self):
        def checkpoint(parameters, state):
            return {"param_groups": [{"params": parameters}], "state": state}

        for wrong, text in ((checkpoint([0], {}), "must be one of 4"),
                            (checkpoint([0, 1, 2, 3], {i: {"exp_avg": torch.zeros(2)} for i in range(4)}),
                             r"exp_avg of parameter 0 has shape \(2,\)"),
                            (checkpoint([0, 1, 2, 3], {0: {"exp_avg": torch.zeros(3, 4)}}), r"parameter 1 has \[\]"),
                            (checkpoint([0, 1, 2, 3], {i: {"step": torch.tensor(float(i))} for i in range(4)}), "step: differs")):
            with self.assertRaisesRegex(ValueError, text):
                self.zero.load_state_dict(wrong)
        parameters = list(new_model().parameters())
        for options, text in (({"overlap_with_ddp": True}, "overlap_with_ddp"), ({"process_group": 3}, "process_group")):
            with self.assertRaisesRegex(ValueError, text):
                ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=1, **options)
        class Own(ZeroRedundancyOptimizer):
            pass

        with self.assertRaisesRegex(TypeError, "Own: subclasses"):
            Own(parameters, torch.optim.SGD, lr=1)
        with self.assertRaisesRegex(TypeError, "one group of options"):
            ZeroRedundancyOptimizer([{"params": parameters}], torch.optim.SGD, lr=1)


if __name__ == "__main__":
    unittest.main()
