"""One job under `rewire run` and commands for it. For the tests of this folder.

A worker gets a folder. It writes losses.RANK there, a line for each step, and ends at the file "stop".
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

SKIPPED = 77
PATIENCE = 600  # seconds
# Before a command: the members of a job may share GPUs. NCCL refuses two ranks of one host on one GPU.
SHARING = ["sh", "-c", 'export NCCL_HOSTID=member-$REWIRE_MEMBER-$RANK; exec "$@"', "sh"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def need_gpu():
    if shutil.which("nvidia-smi") is None:
        skip("no GPU: nvidia-smi is not installed")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    if listed.returncode != 0 or "GPU 0" not in listed.stdout:
        skip(f"no GPU: nvidia-smi -L: {(listed.stdout + listed.stderr).strip()}")


def need_torch():
    """Skips in a process of its own, because this process must not initialise CUDA."""
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda, "
         "'.'.join(map(str, torch.cuda.nccl.version()))); assert torch.cuda.is_available()"],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        skip(f"no PyTorch with CUDA: {done.stderr.strip().splitlines()[-1]}")
    return dict(zip(("torch", "cuda", "nccl"), done.stdout.split()))


def need_jax():
    done = subprocess.run([sys.executable, "-c", "import jax; print(jax.__version__, jax.devices('gpu')[0].device_kind)"],
                          capture_output=True, text=True, check=False, env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
    if done.returncode != 0:
        skip(f"no JAX with CUDA: {done.stderr.strip()[-200:]}")
    return dict(zip(("jax", "device"), done.stdout.strip().split(" ", 1)))


class Job:
    def __init__(self, rewire, folder, command, ranks, options=()):
        self.rewire = rewire
        self.folder = pathlib.Path(folder)
        self.socket = str(self.folder / "agent.sock")
        self.log = self.folder / "output.txt"
        self.output = open(self.log, "wb")
        self.process = subprocess.Popen(
            [rewire, "run", "-n", str(ranks), "--dir", str(self.folder / "run"), "--socket", self.socket,
             *options, "--", *command],
            stdout=self.output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()

    def text(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, *names):
        """Waits until all these files exist in the folder."""
        until = time.monotonic() + PATIENCE
        while not all((self.folder / name).exists() for name in names):
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"no {names}: status {self.process.poll()}\n{self.text()}")
            time.sleep(0.05)

    def rebuild(self):
        """Returns "" when all communicators were rebuilt, or the reason of the refusal."""
        done = subprocess.run([self.rewire, "rebuild", "--json", "--socket", self.socket,
                               "--timeout", f"{PATIENCE}s"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}"
        transition = json.loads(done.stdout)["transition"]
        if transition and transition["result"] == "committed":
            return ""
        return transition["summary"] if transition else "no transition"

    def rebuild_times(self, times):
        """Rebuilds so often. A refusal because the program has just made a communicator is tried again."""
        done = 0
        until = time.monotonic() + PATIENCE
        while done < times:
            reason = self.rebuild()
            if not reason:
                done += 1
            elif time.monotonic() > until or not ("created" in reason or "destroyed" in reason):
                raise AssertionError(f"rebuild {done + 1}: {reason}\n{self.text()}")

    def end(self, stop=True):
        """Waits for the end and returns the exit status."""
        if stop:
            (self.folder / "stop").touch()
        return self.process.wait(PATIENCE)


def ranks_here():
    return int(os.environ.get("GPU_TEST_RANKS", "2"))
