"""A job under `rewire run`, driven as an operator would: by the rewire commands and by signals."""

import json
import os
import pathlib
import signal
import subprocess
import time


class JobError(Exception):
    pass


def libraries(build):
    """The folder of the simulated GPU's libraries, or of a build of NCCL's host code."""
    return os.environ.get("NCCL_HOST_LIBRARIES") or str(pathlib.Path(build) / "simgpu")


class Job:
    """Starts `rewire run -n members`; close() ends it. Every wait has a deadline.

    options: more options of `rewire run`. environment: more variables of every process of the job.
    """

    def __init__(self, build, folder, members, most, program, log, options=(), environment=None):
        self.rewire = str(pathlib.Path(build) / "bin" / "rewire")
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.output = open(self.folder / "output.txt", "wb")
        self.socket = str(self.folder / "agent.sock")
        self.runtime = self.folder / "run"  # has the job's own folder, while the job runs
        command = [self.rewire, "run", "-n", str(members), "--max", str(most),
                   f"--sim={libraries(build)}",
                   "--dir", str(self.runtime), "--socket", self.socket,
                   "--trace-dir", str(self.folder / "traces"), *options, "--"] + program
        # The command has its own process group: close() ends the launcher, and the launcher ends
        # its members.
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, start_new_session=True,
                                        env=dict(os.environ, **(environment or {})))

    def cli(self, *arguments, timeout=60):
        """Runs one rewire command with --json and returns its object."""
        done = subprocess.run([self.rewire, arguments[0], "--json", "--socket", self.socket,
                               *map(str, arguments[1:])],
                              capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise JobError(f"rewire {' '.join(map(str, arguments))}: {done.stderr.strip() or done.stdout.strip()}")
        return json.loads(done.stdout)

    def status(self):
        return self.cli("status")

    def slots(self):
        """Returns [(slot, member, pid)] of the committed world."""
        return [(m["slot"], m["member"], m["pid"]) for m in self.status()["world"]["members"]]

    def wait_until(self, condition, what, timeout=90):
        """Polls the step logs until condition() is true."""
        deadline = time.monotonic() + timeout
        while True:
            self.log.poll()
            if condition():
                return
            if self.process.poll() is not None:
                raise JobError(f"the job ended (status {self.process.returncode}) before {what}; "
                               f"its output is in {self.folder}/output.txt")
            if time.monotonic() > deadline:
                raise JobError(f"{what} did not happen within {timeout} s")
            time.sleep(0.05)

    def wait_step(self, step):
        self.wait_until(lambda: self.log.last_step() >= step, f"step {step}")

    def wait_steady(self):
        return self.cli("wait", "--timeout", "60", timeout=70)

    def kill(self, slot, signum):
        pid = {s: p for s, _, p in self.slots()}[slot]
        os.kill(pid, signum)

    def finish(self, timeout=120):
        """Waits for the job's end, as long as it makes a step within `timeout` seconds."""
        step = -1
        status = None
        while status is None:
            try:
                status = self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.log.poll()
                if self.log.last_step() == step:
                    self.close()
                    raise JobError(f"the job made no step within {timeout} s and did not end") from None
                step = self.log.last_step()
        self.output.close()
        self.log.poll()
        if status != 0:
            raise JobError(f"the job ended with status {status}; its output is in {self.folder}/output.txt")

    def close(self):
        """Ends the launcher, and the launcher its members; a guard that is killed has the same effect."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.output.close()
