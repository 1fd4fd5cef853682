#!/usr/bin/env python3
"""torch_test.py [--gpu] BUILD: PyTorch scripts in a world that changes, unusual scripts, and scripts with mistakes.

--gpu: uses the machine's GPU, which the members share, instead of the simulated GPU.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock

from scenario import BUILD, ENVIRONMENT, GPU, HERE, LIBRARIES, PATIENCE, PYTHON, ROOT, SHARING, Scenario, main

# Loads two checkpoints into optimizers without shards, and compares these.
CHECKPOINTS = """
import sys, torch, small_gpt
states = []
for path in sys.argv[1:]:
    optimizer = torch.optim.AdamW(small_gpt.Gpt().parameters())
    optimizer.load_state_dict(torch.load(path)["optimizer"])
    states.append(optimizer.state_dict())
assert states[0]["param_groups"] == states[1]["param_groups"]
assert len(states[0]["state"]) == len(states[1]["state"]) > 0
for one, other in zip(states[0]["state"].values(), states[1]["state"].values()):
    for key in one:
        assert torch.equal(torch.as_tensor(one[key]), torch.as_tensor(other[key])), key
"""


class ScenarioTest(Scenario):
    """Scripts whose results must not depend on what happens to their world."""

    def test_changes_and_a_loss_change_no_bit(self):
        self.compare_with_undisturbed("torch_gpt.py", "--workers", "0")

    def test_changes_and_a_loss_change_no_bit_with_workers(self):
        self.compare_with_undisturbed("torch_gpt.py", "--workers", "1")

    def test_changes_and_a_loss_change_no_bit_of_a_sharded_optimizer(self):
        self.compare_with_undisturbed("torch_zero.py")

    def test_a_checkpoint_of_a_sharded_optimizer_goes_on_in_another_world(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            folder = pathlib.Path(name)
            zero, saved, kept = (ROOT / "examples" / "torch_zero.py",), folder / "saved", folder / "kept"
            job = self.start(folder, "--epochs", "1000", "--save", saved, program=zero)
            self.command(job, "resize", "3")
            self.kill_after_copies(folder, job, 0, signal.SIGKILL)
            self.wait_for(folder, "slot 0 of 2")
            self.command(job, "resize", "3")
            since = time.time()
            self.until(folder, lambda: saved.exists() and saved.stat().st_mtime > since, "checkpoint of three members")
            shutil.copy(saved, kept)
            job.close()
            epochs = self.run_python("import sys, torch; print(torch.load(sys.argv[1])['epochs'] + 2)", kept).strip()
            states = []
            for options in (("--resume", kept), ()):
                with tempfile.TemporaryDirectory(prefix="rewire-torch-") as other:
                    last = folder / f"last{len(states)}"
                    job = self.start(pathlib.Path(other), "--epochs", epochs, "--save", last, *options, program=zero)
                    states += re.findall("state .*", self.ended(pathlib.Path(other), job, 2))
            self.assertEqual(states[0], states[1])
            self.run_python(CHECKPOINTS, folder / "last0", folder / "last1")

    def run_python(self, program, *arguments):
        done = subprocess.run([PYTHON, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=False,
                              cwd=ROOT / "examples", env={**os.environ, **ENVIRONMENT})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def compare_with_undisturbed(self, name, *options):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as work:
            folder, program = pathlib.Path(work), (ROOT / "examples" / name,)
            job = self.start(folder, "--epochs", "1000", "--last", str(folder / "last"), *options, program=program)
            self.command(job, "resize", "3")
            self.wait_for(folder, "slot 0 of 3")
            self.kill_after_copies(folder, job, 0, signal.SIGKILL)
            self.wait_for(folder, "slot 0 of 2")
            self.command(job, "resize", "3")
            self.command(job, "drain", str(job.status()["world"]["members"][0]["member"]))
            end = self.finish(folder, job, 2)
            # The same number of steps, undisturbed.
            with tempfile.TemporaryDirectory(prefix="rewire-torch-") as other:
                undisturbed = self.start(pathlib.Path(other), "--epochs", "1000", "--last", str(folder / "last"),
                                         program=program)
                self.assertEqual(self.ended(pathlib.Path(other), undisturbed, 2), end)

    def test_a_tensor_parallel_layer_is_divided_anew(self):
        program = (ROOT / "examples" / "torch_tensor_parallel.py",)
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as work:
            folder = pathlib.Path(work)
            job = self.start(folder, "--steps", "1000000", "--last", str(folder / "last"), program=program)
            self.command(job, "resize", "3")
            self.wait_for(folder, "slot 0 of 3")
            self.kill_after_copies(folder, job, 0, signal.SIGKILL)
            self.wait_for(folder, "slot 0 of 2")
            self.command(job, "resize", "4")
            self.command(job, "drain", str(job.status()["world"]["members"][0]["member"]))
            steps, loss = re.search(r"after (\d+) steps, loss ([\d.]+)", self.finish(folder, job, 3)).groups()
            with tempfile.TemporaryDirectory(prefix="rewire-torch-") as other:
                undisturbed = self.start(pathlib.Path(other), "--steps", steps, program=program, members=1)
                end = self.ended(pathlib.Path(other), undisturbed, 1)
            # Other numbers of members add in other orders.
            self.assertAlmostEqual(float(end.split()[-1]), float(loss), delta=0.01)

    def test_an_ordinary_script_follows_its_world(self):
        self.follow_the_world((ROOT / "examples" / "torch_ddp.py",))

    def test_a_script_without_a_line_of_rewire_follows_its_world(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            script = pathlib.Path(name) / "script.py"
            lines = (ROOT / "examples" / "torch_ddp.py").read_text().splitlines()
            script.write_text("\n".join(line for line in lines if "rewire" not in line))
            self.follow_the_world((script,), ("--torch-auto",))

    def test_a_script_with_a_zero_redundancy_optimizer_follows_its_world(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            script = pathlib.Path(name) / "script.py"
            lines = (ROOT / "examples" / "torch_ddp.py").read_text().replace(
                "torch.optim.SGD(model.parameters(), ",
                "torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, ").splitlines()
            script.write_text("import torch.distributed.optim\n"
                              + "\n".join(line for line in lines if "rewire" not in line))
            self.assertIn("ZeroRedundancyOptimizer(", script.read_text())
            self.follow_the_world((script,), ("--torch-auto",))

    def follow_the_world(self, program, options=()):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            folder = pathlib.Path(name)
            job = self.start(folder, "--epochs", "100000", "--last", str(folder / "last"), program=program,
                             options=options)
            self.wait_for(folder, "epoch 1: 2 members")
            self.command(job, "resize", "3")
            self.wait_for(folder, ": 3 members")
            self.kill_after_copies(folder, job, 1, signal.SIGKILL)
            grown = len(self.output(folder))
            self.until(folder, lambda: ": 2 members" in self.output(folder)[grown:], "2 members")
            self.command(job, "resize", "3")
            self.command(job, "drain", str(job.status()["world"]["members"][0]["member"]))
            epochs = self.output(folder).count("] epoch ")
            ahead = folder / "ahead"
            ahead.write_text(str(epochs + 20))
            ahead.rename(folder / "last")
            self.assertTrue(job.wait(PATIENCE), self.output(folder))
            self.assertEqual(job.process.returncode, 0, self.output(folder))
            self.check_epochs(self.output(folder))

    def check_epochs(self, output):
        lines = re.findall(r"\] epoch (\d+): \d members, (\d+) samples, loss ([0-9.]+), next rate ([0-9.]+)$", output,
                           re.MULTILINE)
        self.assertEqual([int(epoch) for epoch, _, _, _ in lines], list(range(len(lines))), output)
        for epoch, _, _, rate in lines:
            self.assertAlmostEqual(float(rate), 0.1 * 0.5 ** ((int(epoch) + 1) // 5), places=3)
        # Two epochs may have other samples: that of a loss, and that in which a member leaves before its part. A loss
        # between two epochs changes both: the sum of the first, and the repeated first step of the second.
        other = [int(epoch) for epoch, samples, _, _ in lines if samples != "1024"]
        self.assertLessEqual(sum(epoch - 1 not in other for epoch in other), 2, output)
        self.assertLessEqual(len(other), 3, output)
        self.assertLess(float(lines[-1][2]), float(lines[0][2]) / 2)
        self.assertNotIn("Traceback", output)
        self.assertNotIn("had returned", output)  # no copy differed from its state

    def test_gradients_are_the_mean_over_the_global_batch_in_every_world(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            folder = pathlib.Path(name)
            job = self.start(folder, str(folder / "last"), program=(HERE / "mean_script.py",))
            self.command(job, "replace", str(job.status()["world"]["members"][0]["member"]))
            for _ in range(3):
                self.command(job, "resize", "3")
                # The kill comes at once, while the joiner still receives its state.
                self.kill(job, 1, signal.SIGKILL)
                self.until(folder, lambda: len(job.status()["world"]["members"]) == 2, "world of 2")
            self.finish(folder, job, 2)

    def test_exact_gradients_may_be_reduced_more_than_once(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            folder = pathlib.Path(name)
            job = self.start(folder, "twice", str(folder / "last"), program=(HERE / "exact_script.py",))
            self.command(job, "resize", "3")
            self.kill_after_copies(folder, job, 1, signal.SIGKILL)
            self.until(folder, lambda: len(job.status()["world"]["members"]) == 2, "world of 2")
            self.kill_after_copies(folder, job, 0, signal.SIGKILL)
            self.finish(folder, job, 1)

    def test_members_with_other_numbers_of_reductions_are_told_so(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            folder = pathlib.Path(name)
            job = self.start(folder, "each", str(folder / "last"), program=(HERE / "exact_script.py",))
            self.until(folder, lambda: self.updates(job) > 2, "2 steps")
            job.command("resize", "3")
            # The joiner may go on alone.
            self.wait_for(folder, "reductions of gradients for 1 batches of this step, where a step had 8 for 1")

    def unmodified(self, folder, steps, options=()):
        program = [*([] if GPU else [HERE / "over_nccl.py"]), ROOT / "examples" / "unmodified_ddp.py", "--steps", str(steps),
                   "--checkpoint", folder / "checkpoint"]
        return self.run_job(folder, program, options)

    def test_an_unmodified_script_is_rebuilt_while_it_trains(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name, tempfile.TemporaryDirectory() as other:
            folder, plain = pathlib.Path(name), pathlib.Path(other)
            job = self.unmodified(folder, 500)
            self.wait_for(folder, "step 5:")
            rebuilds = 0
            deadline = time.monotonic() + PATIENCE
            while job.alive() and time.monotonic() < deadline:
                rebuilds += job.command("rebuild")[0] == 0  # refused when the program ends
            self.assertTrue(job.wait(1), self.output(folder))
            self.assertEqual(job.process.returncode, 0, self.output(folder))
            self.assertGreater(rebuilds, 0)
            self.assertTrue(self.unmodified(plain, 500, ("--no-agent", "--no-preload")).wait(PATIENCE), self.output(plain))
            losses = [re.findall(r"step \d+: loss .*", self.output(each)) for each in (folder, plain)]
            self.assertEqual(len(losses[0]), 500)
            self.assertEqual(losses[0], losses[1])

    def test_a_job_follows_notices_of_a_watcher(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            folder = pathlib.Path(name)
            with open(folder / "output.txt", "wb") as output:
                spot = subprocess.Popen(
                    [ROOT / "examples" / "spot.sh", "-n", "2", "--max", "4", *([] if GPU else [f"--sim={BUILD}/simgpu"]), "--",
                     *SHARING, PYTHON, ROOT / "examples" / "torch_ddp.py", "--epochs", "100000", "--last",
                     folder / "last"], stdin=subprocess.PIPE, stdout=output, stderr=output, text=True, bufsize=1,
                    env={**os.environ, **ENVIRONMENT, "PATH": f"{BUILD}/bin:{os.environ['PATH']}"})
            self.job = unittest.mock.Mock(process=spot)
            self.addCleanup(spot.wait, 60)
            self.addCleanup(spot.terminate)
            self.wait_for(folder, "epoch 1: 2 members")
            spot.stdin.write("nonsense\noffer 3\n")
            self.wait_for(folder, ": 3 members")
            grown = len(self.output(folder))
            spot.stdin.write("reclaim 0 60\n")
            self.until(folder, lambda: ": 2 members" in self.output(folder)[grown:], "2 members")
            spot.stdin.close()
            # The members read the file in different epochs, and never an empty one.
            ahead = folder / "ahead"
            ahead.write_text(str(self.output(folder).count("] epoch ") + 20))
            ahead.rename(folder / "last")
            self.assertEqual(spot.wait(PATIENCE), 0, self.output(folder))
            self.assertIn("nonsense: must be reclaim or offer", self.output(folder))
            self.check_epochs(self.output(folder))

    def test_an_unmodified_script_ends_with_an_error_after_a_loss(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            folder = pathlib.Path(name)
            job = self.unmodified(folder, 100000)
            self.wait_for(folder, "step 55:")
            self.kill(job, 1, signal.SIGKILL)
            self.assertTrue(job.wait(PATIENCE), self.output(folder))
            self.assertNotEqual(job.process.returncode, 0)
            self.assertIn("lost: member 1", self.output(folder))
            self.assertRegex(self.output(folder), r"\[member 0\].*Error: ")
            self.assertTrue((folder / "checkpoint").exists())

    def test_a_loss_scale_follows_the_world(self):
        with tempfile.TemporaryDirectory(prefix="rewire-torch-") as name:
            folder = pathlib.Path(name)
            job = self.start(folder, str(folder / "last"), program=(HERE / "scaler_script.py",))
            self.command(job, "resize", "3")
            self.kill_after_copies(folder, job, 1, signal.SIGKILL)
            self.until(folder, lambda: len(job.status()["world"]["members"]) == 2, "world of 2")
            self.command(job, "replace", str(job.status()["world"]["members"][0]["member"]))
            self.finish(folder, job, 2)


class ScriptTest(unittest.TestCase):
    def run_case(self, case, program=(HERE / "script.py",)):
        return subprocess.run([PYTHON, *map(str, program), case], capture_output=True, text=True, timeout=PATIENCE,
                              check=False, env=dict(os.environ, **ENVIRONMENT, LD_LIBRARY_PATH=LIBRARIES))

    def test_unusual_scripts_work(self):
        for case, steps in (("plain", 4), ("sgd", 4), ("twice", 8), ("one-cycle", 4), ("ahead", 4), ("parallel", 4), ("sharded", 4),
                            ("foreach", 4), ("empty", 4)):
            with self.subTest(case=case):
                done = self.run_case(case)
                self.assertEqual((done.returncode, done.stdout), (0, f"steps {steps}\n"), done.stderr)

    def test_a_script_of_the_plain_shape_needs_no_line(self):
        for case, status, text in (("plain", 0, "taken over: _FollowingParallel"), ("no-loop", 0, "had no training loop"),
                                   ("no-optimizer", 1, "StateError: a training loop begins before"),
                                   ("two-optimizers", 1, "StateError: the script has 2 objects of the kind Optimizer"),
                                   ("own-loader", 1, "TypeError: data: is a OwnLoader")):
            with self.subTest(case=case):
                done = self.run_case(case, ("-m", "rewire.torch.auto", HERE / "auto_script.py"))
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(text, done.stdout + done.stderr)

    def test_a_zero_redundancy_optimizer_is_that_without_shards(self):
        done = self.run_case("-q", (HERE / "zero_script.py",))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_objects_that_a_job_does_not_understand_are_refused(self):
        done = self.run_case("-q", (HERE / "refusal_script.py",))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_balanced_experts_give_the_results_of_the_layer_alone(self):
        environment = dict(os.environ, **ENVIRONMENT, LD_LIBRARY_PATH=LIBRARIES)
        if not GPU:
            environment["REWIRE_CUDA_LIBRARY"] = str(BUILD / "simgpu" / "libcuda.so.1")
        processes = [subprocess.Popen([PYTHON, str(HERE / "experts_script.py"), f"torch-test-{os.getpid()}", str(rank)],
                                      env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                     for rank in range(2)]
        for process in processes:
            self.addCleanup(process.kill)
        for process in processes:
            output, errors = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, errors)
            self.assertRegex(output, "moved")

    def test_sharded_experts_give_the_gradients_of_whole_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, **ENVIRONMENT, LD_LIBRARY_PATH=LIBRARIES)
            if not GPU:
                environment["REWIRE_CUDA_LIBRARY"] = str(BUILD / "simgpu" / "libcuda.so.1")
            processes = [subprocess.Popen([PYTHON, str(HERE / "fsep_script.py"), folder, str(rank)],
                                          env={**environment, "NCCL_HOSTID": f"rank-{rank}"},
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
            for process in processes:
                self.addCleanup(process.kill)
            for process in processes:
                output, errors = process.communicate(timeout=PATIENCE)
                self.assertEqual(process.returncode, 0, errors)
                self.assertIn("sharded", output)

    def test_tests_of_one_process_pass(self):
        for program in (HERE / "replicas_test.py", HERE / "progress_test.py", HERE.parent / "python" / "memory_test.py"):
            with self.subTest(program=program.name):
                done = subprocess.run([PYTHON, program], capture_output=True, text=True, timeout=PATIENCE, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_experts_of_several_processes_are_trained(self):
        done = subprocess.run([BUILD / "bin" / "rewire", "run", "-n", "2", "--no-agent", *([] if GPU else ["--sim"]), "--",
                               *SHARING, PYTHON, ROOT / "examples" / "torch_moe.py"], capture_output=True,
                              text=True, timeout=PATIENCE, check=False, env={**os.environ, **ENVIRONMENT})
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = [float(loss) for loss in re.findall(r"step \d+: loss ([0-9.]+), \d+ rows moved", done.stdout)]
        self.assertEqual(len(losses), 3, done.stdout)
        self.assertLess(losses[-1], 0.6 * losses[0])

    def test_several_processes_without_an_agent_are_refused(self):
        with unittest.mock.patch.dict(os.environ, WORLD_SIZE="2", RANK="0"):
            self.assertIn("start the script by `rewire run`", self.run_case("plain").stderr)

    def test_wrong_scripts_are_told_what_is_wrong(self):
        for case, error in (("moved", "StateError: model/0.weight: is no longer in the memory"),
                            ("late-state", "StateError: optimizer/0.0/average: was made after the first step"),
                            ("late-parameter", "StateError: model/group 1 parameter 0: was made after the first step"),
                            ("no-gradient", r"StateError: optimizer parameter 0.6 .*had no gradient"),
                            ("value", "StateError: optimizer/0.0/count: is a int"),
                            ("failed-backward", "a backward pass has ended by an exception"),
                            ("no-schedule", "StateError: scheduler=: is missing"),
                            ("plateau", "StateError: scheduler=: is missing: the optimizer has a ReduceLROnPlateau"),
                            ("scaler", "StateError: scaler=: is missing"),
                            ("second-job", "StateError: optimizer: belongs to another Job"),
                            ("partial", "data: the last loop was left before its end"),
                            ("second-step", "StateError: step.*: the batch has had its step"),
                            ("short-step", "StateError: step.*: after 1 of 2 batches"),
                            ("strided", "StateError: model/weight: is not contiguous"),
                            ("moved-sharded", "StateError: a parameter is no longer in the flat tensor"),
                            ("closure", "TypeError: step\\(closure\\)"),
                            ("unsendable", "TypeError: scheduler: cannot be sent to a member that joins: not this one"),
                            ("other-device", "TypeError: 0.weight: is on cpu, and this process trains on cuda:1"),
                            ("data", "TypeError: data: its sampler is a RandomSampler")):
            with self.subTest(case=case):
                done = self.run_case(case)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, error)


if __name__ == "__main__":
    main()
