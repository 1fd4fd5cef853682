#!/usr/bin/env python3
"""progress_test.py: what rewire.torch restores where a member repeats the batches since the last step."""
import importlib.util
import pathlib
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is not installed")
    sys.exit(77)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "reconfig" / "python"))
import torch  # noqa: E402
from rewire.torch.data import follow  # noqa: E402
from rewire.torch.joining import Joining  # noqa: E402
from rewire.torch.progress import Progress  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

PER_LOOP = 4  # batches


class Scaler:
    def __init__(self):
        self.scale = 32.0

    def state_dict(self):
        return {"scale": self.scale}

    def load_state_dict(self, state):
        self.scale = state["scale"]


class ProgressTest(unittest.TestCase):
    """The calls that Job makes for a member, in the order of the program."""

    def setUp(self):
        model = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        self.scaler = Scaler()
        samples = torch.zeros(PER_LOOP, 1)
        loader = DataLoader(samples, sampler=DistributedSampler(samples, num_replicas=1, rank=0))
        self.position = follow(loader, 1, 0, lambda number: None, lambda: None)
        self.progress = Progress(model, self.optimizer, {"scheduler": self.schedule, "scaler": self.scaler}, self.position)
        self.optimizer.step()
        self.progress.after_update()

    def begin_batch(self, version):
        self.progress.begin_batch(version, self.position.taken)
        self.position.taken += 1
        return self.scaler.scale, self.optimizer.param_groups[0]["lr"]

    def begin_step(self, version):
        self.progress.begin_step(version, lacks=False)
        return self.scaler.scale, self.optimizer.param_groups[0]["lr"]

    def update(self, version):
        values = self.begin_step(version)
        self.progress.keep(version)
        self.progress.after_update()
        return values

    def test_a_skipped_batch_is_repeated_with_its_scale(self):
        self.assertEqual(self.begin_batch(1), (32, 1))
        self.scaler.scale = 16.0
        self.begin_batch(1)
        self.assertEqual(self.begin_step(1), (16, 1))
        self.progress.back_to(1, 1)
        self.scaler.scale = 8.0  # the script has gone on behind its step
        self.assertEqual(self.begin_batch(1), (32, 1))
        self.scaler.scale = 16.0
        self.assertEqual(self.begin_batch(1), (16, 1))
        self.assertEqual(self.begin_step(1), (16, 1))

    def test_a_scale_that_a_lost_reduction_has_halved_is_not_restored(self):
        self.begin_batch(1)
        self.scaler.scale = 16.0
        self.begin_batch(1)
        self.begin_step(1)
        self.progress.back_to(1, 1)
        self.assertEqual(self.begin_batch(1), (32, 1))
        self.assertEqual(self.begin_step(1), (32, 1))

    def test_a_schedule_has_stepped_once_where_a_member_repeats_the_end_of_a_loop(self):
        self.position.taken = PER_LOOP - 1
        self.progress.after_update()
        self.begin_batch(1)
        self.scaler.scale = 16.0
        self.progress.end_loop(lacks=False)
        self.schedule.step()
        self.assertEqual(self.begin_batch(1), (16, 0.5))
        self.begin_step(1)
        self.progress.back_to(1, 1)
        self.assertEqual(self.begin_batch(1), (32, 1))
        self.scaler.scale = 16.0
        self.assertEqual(self.begin_batch(1), (16, 0.5))
        self.assertEqual(self.begin_step(1), (16, 0.5))

    def test_a_schedule_has_stepped_once_where_the_state_goes_back_over_the_end_of_a_loop(self):
        self.position.taken = PER_LOOP - 1
        self.progress.after_update()
        for version in (1, 2):
            self.begin_batch(version)
            self.update(version)
            if version == 1:
                self.progress.end_loop(lacks=False)
                self.schedule.step()
        self.progress.back_to(1, 2)
        self.assertEqual(self.begin_batch(1), (32, 1))
        self.update(1)
        self.assertEqual(self.begin_batch(2), (32, 0.5))
        self.assertEqual(self.begin_step(2), (32, 0.5))

    def test_a_joiner_repeats_the_batch_with_the_scale_of_the_others(self):
        self.begin_batch(1)
        self.scaler.scale = 16.0
        self.begin_batch(1)
        self.begin_step(1)
        self.progress.keep(1)
        packed = self.progress.pack(1, whole=True)
        self.setUp()
        self.assertEqual(self.progress.unpack(packed), 1)
        self.scaler.scale = 8.0
        self.progress.after_update()
        self.progress.back_to(1, 2)
        self.assertEqual(self.begin_batch(1), (32, 1))

    def test_a_joiner_that_repeats_its_first_step_receives_values_in_the_next_one_too(self):
        joining = Joining(self.progress, self.optimizer, joining=True, batches=True)
        joining.applied()
        joining.repeat()
        joining.applied()
        self.assertTrue(joining.lacks_program)
        joining.applied()
        self.assertFalse(joining.lacks_program)

    def test_values_of_versions_that_were_taken_back_are_forgotten(self):
        self.begin_batch(1)
        self.update(1)
        self.scaler.scale = 16.0
        self.begin_batch(2)
        self.begin_step(2)
        self.progress.back_to(1, 2)
        self.assertEqual(self.begin_batch(1), (32, 1))
        self.update(1)
        self.assertEqual(self.begin_batch(2), (32, 1))


if __name__ == "__main__":
    unittest.main()
