#!/usr/bin/env python3
"""member_test.py [--gpu] BUILD: PyTorch jobs in which something happens to one member."""
import pathlib
import tempfile

from scenario import HERE, PATIENCE, Scenario, main


class MemberTest(Scenario):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rewire-torch-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def begin(self, case, members=3):
        self.start(self.folder, str(self.folder / "last"), case, program=(HERE / "member_script.py",), members=members)

    def assert_lost(self, case, text, errors):
        """One of three members ends. The others repeat a step, and end with equal bits."""
        self.begin(case)
        self.until(self.folder, lambda: self.output(self.folder).count("in a world of 2") == 2, "repeated step")
        self.finish(self.folder, self.job, 2, errors)
        self.assertIn(text, self.output(self.folder))

    def test_an_exception_before_a_step_is_a_loss(self):
        self.assert_lost("raise", "ArithmeticError: before the step", 1)

    def test_a_member_with_another_learning_rate_after_a_loss_ends_with_an_error(self):
        self.begin("rate")
        self.wait_for(self.folder, "StateError: this member's learning rate, or another option of the optimizer, is not "
                                   "that of most members")
        self.finish(self.folder, self.job, 1, 2)

    def test_an_exception_in_a_step_is_a_loss(self):
        self.assert_lost("raise-in-step", "ArithmeticError: in the update", 1)

    def test_an_exit_with_an_error_is_a_loss(self):
        self.assert_lost("exit", "lost: member 1", 0)

    def test_a_joiner_with_another_schedule_ends_with_an_error(self):
        self.begin("length", members=2)
        self.job.command("resize", "3")
        self.wait_for(self.folder, "StateError: this member's learning rate, or another option of the optimizer")
        self.until(self.folder, lambda: len(self.job.status()["world"]["members"]) == 2, "world of 2")
        self.finish(self.folder, self.job, 2, 1)

    def assert_left(self, case):
        """One of three members leaves without a repeated step."""
        self.begin(case)
        self.until(self.folder, lambda: len(self.job.status()["world"]["members"]) == 2, "world of 2")
        self.finish(self.folder, self.job, 2)
        self.assertNotIn("repeats", self.output(self.folder))

    def test_a_member_leaves_after_sigterm(self):
        self.assert_left("sigterm")

    def test_a_member_leaves_when_its_script_says_so(self):
        self.assert_left("reclaim")

    def test_a_handler_of_the_script_gives_the_notice(self):
        self.assert_left("handler")

    def test_workers_that_are_spawned_give_batches(self):
        self.begin("spawn", members=2)
        self.job.command("resize", "3")
        self.finish(self.folder, self.job, 3, steps=24)

    def test_groups_that_follow_no_world_are_refused(self):
        self.begin("groups", members=2)
        self.finish(self.folder, self.job, 2)

    def test_parameters_of_different_seeds_are_made_equal(self):
        self.begin("seeds", members=2)
        self.job.command("resize", "3")
        self.finish(self.folder, self.job, 3)

    def test_parameters_of_different_shapes_are_refused_on_all_members(self):
        self.run_job(self.folder, (HERE / "member_script.py", self.folder / "last", "shapes"), ())
        self.assertTrue(self.job.wait(PATIENCE), self.output(self.folder))
        self.assertNotEqual(self.job.process.returncode, 0)
        for text in (r"\[member 0\] .*StateError: model: slot 1 has other parameters than slot 0",
                     r"\[member 1\] .*StateError: model: slot 1 has weight \(2, 4\) torch.float32, and slot 0 has weight "
                     r"\(1, 4\) torch.float32"):
            self.assertRegex(self.output(self.folder), text)


if __name__ == "__main__":
    main()
