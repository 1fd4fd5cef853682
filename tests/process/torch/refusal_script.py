#!/usr/bin/env python3
"""refusal_script.py: objects of a script that Job refuses before training, as one process without an agent."""
import unittest
import unittest.mock

import rewire.torch
import torch
from rewire.torch import StateError
from rewire.torch.joining import Joining
from rewire.torch.progress import Progress
from rewire.torch.reduction_count import ReductionCount
from rewire.world import World
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
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


    def test_refuses_a_second_parallel_module(self):
        other = DistributedDataParallel(new_model())
        with self.assertRaisesRegex(StateError, "reduces module.0.weight, of another model: Job takes one model"):
            rewire.torch.Job(self.parallel, self.optimizer)
        del other

    def test_refuses_a_communication_hook(self):
        self.parallel.register_comm_hook(None, default_hooks.allreduce_hook)
        with self.assertRaisesRegex(StateError, "model: has the communication hook allreduce_hook"):
            rewire.torch.Job(self.parallel, self.optimizer)


class OwnSchedule(torch.optim.lr_scheduler.ExponentialLR):
    pass


class CompanionTest(unittest.TestCase):
    """Objects beside the model and the optimizer whose state a joiner would not get."""

    def setUp(self):
        self.model = new_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def test_refuses_several_optimizers(self):
        with self.assertRaisesRegex(TypeError, "optimizer: must be one torch.optim.Optimizer, not a list"):
            rewire.torch.Job(self.model, [self.optimizer])
        with self.assertRaisesRegex(TypeError, "model: must be a torch.nn.Module, not a list"):
            rewire.torch.Job([self.model], self.optimizer)

    def assert_refused(self, text, **options):
        with self.assertRaisesRegex(StateError, text):
            rewire.torch.Job(self.model, self.optimizer, **options)

    def test_refuses_a_second_optimizer_of_the_same_parameters(self):
        other = torch.optim.Adam([self.model[1].bias], lr=0.1)
        self.assert_refused("optimizer: 1.bias is trained by an Adam as well: Job takes one optimizer")
        del other

    def test_takes_an_optimizer_that_another_one_passes_its_calls_to(self):
        wrapper = torch.optim.SGD(self.model.parameters(), lr=0.1)
        wrapper.__dict__.update(state=self.optimizer.state, param_groups=self.optimizer.param_groups)
        rewire.torch.Job(self.model, self.optimizer)
        del wrapper

    def test_refuses_a_subclass_of_a_schedule(self):
        other = OwnSchedule(self.optimizer, 0.9)
        self.assert_refused("scheduler=: is missing: the optimizer has a OwnSchedule")
        del other

    def test_refuses_a_second_schedule(self):
        other = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.assert_refused("scheduler=: the optimizer also has a ExponentialLR", scheduler=OwnSchedule(self.optimizer, 0.9))
        del other

    def test_takes_a_schedule_of_several_schedules(self):
        parts = [OwnSchedule(self.optimizer, 0.9), torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10)]
        rewire.torch.Job(self.model, self.optimizer,
                         scheduler=torch.optim.lr_scheduler.SequentialLR(self.optimizer, parts, [3]))

    def test_refuses_an_averaged_model(self):
        averages = torch.optim.swa_utils.AveragedModel(self.model)
        self.assert_refused("AveragedModel: its averages change outside the step")
        del averages

    def test_refuses_a_fused_optimizer_with_a_scaler(self):
        self.optimizer._step_supports_amp_scaling = True  # pylint: disable=protected-access
        self.assert_refused("scaler=: a fused optimizer unscales gradients in its step", scaler=torch.nn.Identity())

    def test_refuses_objects_that_are_made_after_the_job(self):
        for make, text in ((lambda: OwnSchedule(self.optimizer, 0.9), "scheduler=: is missing"),
                           (lambda: torch.optim.Adam(self.model.parameters()), "optimizer: 0.weight"),
                           (lambda: torch.optim.swa_utils.AveragedModel(self.model), "AveragedModel")):
            with self.subTest(text=text):
                self.setUp()
                rewire.torch.Job(self.model, self.optimizer)
                late = make()
                with self.assertRaisesRegex(StateError, text):
                    step(self.model, self.optimizer)
                del late

    def test_frees_no_parameter_and_freezes_none_after_the_job(self):
        for frozen, text in ((False, "0.bias: is frozen now"), (True, "0.bias: was frozen when Job")):
            with self.subTest(frozen=frozen):
                self.setUp()
                bias = self.model[0].bias.requires_grad_(not frozen)
                rewire.torch.Job(self.model, self.optimizer)
                bias.requires_grad_(frozen)
                with self.assertRaisesRegex(StateError, text):
                    step(self.model, self.optimizer)

    def test_refuses_sparse_gradients(self):
        model = torch.nn.Sequential(torch.nn.Embedding(4, 2, sparse=True), torch.nn.Linear(2, 1))
        with self.assertRaisesRegex(StateError, "0: is an Embedding with sparse=True"):
            rewire.torch.Job(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def test_refuses_a_parallel_module_of_another_model_after_the_job(self):
        rewire.torch.Job(self.model, self.optimizer)
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        late = DistributedDataParallel(torch.nn.Linear(2, 1))
        with self.assertRaisesRegex(StateError, "a DistributedDataParallel reduces module.weight, of another model"):
            step(self.model, self.optimizer)
        del late

    def test_refuses_a_parameter_that_is_added_after_the_job(self):
        rewire.torch.Job(self.model, self.optimizer)
        self.model.append(torch.nn.Linear(1, 1))
        with self.assertRaisesRegex(StateError, "2.weight: is a parameter that the model did not have when Job"):
            step(self.model, self.optimizer)


class TwoJobsTest(unittest.TestCase):
    def test_refuses_the_step_of_a_second_job(self):
        jobs = []
        for _ in range(2):
            model = new_model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            jobs.append((rewire.torch.Job(model, optimizer), model, optimizer))
        step(*jobs[0][1:])
        with self.assertRaisesRegex(StateError, "Job: another Job of this process trains already"):
            step(*jobs[1][1:])


class OwnOrder(torch.utils.data.DistributedSampler):
    def __iter__(self):
        return iter(range(self.rank, 8, self.num_replicas))


class DataTest(unittest.TestCase):
    def assert_refused(self, error, text, **options):
        model, data = new_model(), list(range(8))
        options = {"sampler": torch.utils.data.DistributedSampler(data, 1, 0), **options}
        with self.assertRaisesRegex(error, text):
            rewire.torch.Job(model, torch.optim.SGD(model.parameters(), lr=0.1),
                             data=torch.utils.data.DataLoader(data, **options))

    def test_refuses_workers_that_outlive_an_epoch(self):
        self.assert_refused(TypeError, "data: persistent_workers=True: .* must be False", num_workers=1, persistent_workers=True)

    def test_refuses_single_samples(self):
        self.assert_refused(TypeError, "data: has no batch_size", batch_size=None)

    def test_refuses_batches_of_another_sampler(self):
        batches = torch.utils.data.BatchSampler(torch.utils.data.DistributedSampler(list(range(8)), 1, 0), 2, False)
        self.assert_refused(TypeError, "data: has no batch_size .batch_sampler=", sampler=None, batch_sampler=batches)

    def test_refuses_an_order_that_the_script_makes(self):
        self.assert_refused(TypeError, "data: its sampler is a OwnOrder with an order of its own",
                            sampler=OwnOrder(list(range(8)), 1, 0))


class JoiningTest(unittest.TestCase):
    """Each row has what a member lacks, its loops, and the hashes of its options and of its parameters."""

    def assert_refused(self, rows, text, joining=False):
        model = new_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        member = Joining(Progress(model, optimizer, {}, None), optimizer, joining, False)
        member.expect()
        with unittest.mock.patch.object(member, "_ask", lambda *_: rows), self.assertRaisesRegex(StateError, text):
            member.share(World(2, len(rows), 0, 0, False), 0)

    def test_refuses_a_world_of_joiners_alone(self):
        self.assert_refused([[3, 0, 0, 0], [3, 0, 0, 0]], "no member is left that has the job's state", joining=True)

    def test_refuses_other_parameters_than_those_of_most(self):
        self.assert_refused([[0, 0, 0, 7], [0, 0, 0, 5], [0, 0, 0, 5]], "this member's parameters are not those")

    def test_a_joiner_has_the_parameters_of_a_member_that_lacks_nothing(self):
        self.assert_refused([[2, 0, 0, 7], [2, 0, 0, 7], [0, 0, 0, 5]], "this member's parameters are not those")

    def test_one_bit_of_a_parameter_changes_its_fingerprint(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
            model = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(5, 3, dtype=dtype))])
            progress = Progress(model, torch.optim.SGD(model.parameters(), lr=0.1), {}, None)
            before = progress.parameters_fingerprint()
            with torch.no_grad():
                model[0][2, 1] *= 1 + 2.0 ** -7
            self.assertNotEqual(progress.parameters_fingerprint(), before)


class ReductionCountTest(unittest.TestCase):
    """Equal shares first; then this member's share is another than the others'."""

    def make_steps(self, reductions, batches=1, equal=True, steps=1):
        for _ in range(steps):
            for _ in range(batches):
                self.count.begin_batch(equal)
            for _ in range(reductions):
                self.count.add()
            self.count.end_step()

    def setUp(self):
        self.count = ReductionCount()

    def test_a_number_that_follows_the_share_is_refused(self):
        self.make_steps(4, steps=2)
        self.make_steps(3)  # equal shares in a larger world
        for reductions in (3, 5):
            with self.subTest(reductions=reductions):
                self.setUp()
                self.make_steps(4, steps=2)
                with self.assertRaisesRegex(StateError, "reductions of gradients for 1 batches of this step, where a step had 4"):
                    self.make_steps(reductions, equal=False)

    def test_a_number_that_follows_the_batches_is_not(self):
        self.make_steps(2, batches=2)
        self.make_steps(4, batches=4, equal=False)  # a step that the script has left out

    def test_a_number_that_varies_is_not_judged(self):
        self.make_steps(2)
        self.make_steps(1)
        self.make_steps(3, equal=False)

    def test_a_step_that_is_given_up_does_not_count(self):
        self.make_steps(2)
        self.count.begin_batch(False)
        self.count.drop()
        self.make_steps(2, equal=False)


if __name__ == "__main__":
    unittest.main()
