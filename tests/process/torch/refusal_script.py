#!/usr/bin/env python3
"""refusal_script.py: objects of a script that Job refuses before training, as one process without an agent."""
import unittest

import rewire.torch
import torch
from rewire.torch import StateError
from torch.nn.parallel import DistributedDataParallel


def new_model():
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


class ParallelTest(unittest.TestCase):
    """The module that reduces is not the module that Job gets."""

    @classmethod
    def setUpClass(cls):
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)

    @classmethod
    def tearDownClass(cls):
        torch.distributed.destroy_process_group()

    def setUp(self):
        self.parallel = DistributedDataParallel(new_model())
        self.optimizer = torch.optim.SGD(self.parallel.parameters(), lr=0.1)

    def assert_taken_over(self):
        self.assertEqual(type(self.parallel).__name__, "_FollowingParallel")
        self.assertIsNone(self.parallel.reducer)

    def test_takes_over_the_parallel_module_around_the_model(self):
        rewire.torch.Job(self.parallel.module, self.optimizer)
        self.assert_taken_over()

    def test_takes_over_the_parallel_module_inside_the_model(self):
        rewire.torch.Job(torch.nn.Sequential(self.parallel, torch.nn.Tanh()), self.optimizer)
        self.assert_taken_over()

    def test_refuses_a_parallel_module_with_other_parameters(self):
        with self.assertRaisesRegex(StateError, "model: a DistributedDataParallel reduces weight and module.1.weight"):
            rewire.torch.Job(self.parallel.module[0], self.optimizer)

    def test_refuses_a_parallel_module_where_the_script_reduces(self):
        with self.assertRaisesRegex(StateError, "reduce=False: a DistributedDataParallel reduces 0.weight"):
            rewire.torch.Job(self.parallel.module, self.optimizer, reduce=False)


if __name__ == "__main__":
    unittest.main()
