#!/usr/bin/env python3
"""member_test.py [--gpu] BUILD: PyTorch jobs in which something happens to one member."""
import pathlib
import tempfile

from scenario import HERE, Scenario, main


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


if __name__ == "__main__":
    main()
