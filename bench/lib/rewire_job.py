"""A program under `rewire run`, and the commands that a benchmark gives to its agent."""

import json
import os
import pathlib
import signal
import subprocess
import time


def library_options(folder):
    """(options of `rewire run`, environment) for a folder of libnccl.so.2. Without a libcuda.so.1 beside, the job uses
    the machine's GPUs."""
    if (pathlib.Path(folder) / "libcuda.so.1").exists():
        return [f"--sim={folder}"], {}
    paths = [str(folder), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    return [], {"LD_LIBRARY_PATH": ":".join(path for path in paths if path),
                "REWIRE_NCCL_LIBRARY": str(pathlib.Path(folder) / "libnccl.so.2")}


class RewireJob:
    """Starts the job at once. folder: of the job's files; libraries: their folder, None for the program's own;
    options: of `rewire run`."""

    def __init__(self, build, folder, processes, libraries, program, environment, options=()):
        self.rewire = str(build / "bin" / "rewire")
        self.folder = folder
        self.socket = str(folder / "agent.sock")
        self.output = open(folder / "output.txt", "wb")
        of_libraries, places = ([], {}) if libraries is None else library_options(libraries)
        # A benchmark that is killed leaves no job behind.
        command = ["setpriv", "--pdeathsig", "TERM", self.rewire, "run", "-n", str(processes), *of_libraries,
                   "--dir", str(folder), "--socket", self.socket, *options, "--", *program]
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL,
                                        env=dict(os.environ, **places, **environment),
                                        start_new_session=True)

    def alive(self):
        return self.process.poll() is None

    def command(self, *words):
        """(status, text) of a rewire command."""
        done = subprocess.run([self.rewire, words[0], "--json", "--socket", self.socket,
                               *words[1:]], capture_output=True, text=True, check=False)
        return done.returncode, (done.stdout if done.returncode == 0 else done.stderr).strip()

    def status(self):
        """The status, or None if no agent answers."""
        status, text = self.command("status")
        return json.loads(text) if status == 0 else None

    def wait_for_world(self, patience):
        deadline = time.monotonic() + patience
        while self.alive() and time.monotonic() < deadline:
            status = self.status()
            if status is not None and status["steady"]:
                return True
            time.sleep(0.05)
        return False

    def wait(self, patience):
        """Returns whether the job has ended by itself within the time."""
        try:
            self.process.wait(patience)
            return True
        except subprocess.TimeoutExpired:
            return False

    def close(self):
        """Ends the job if the job still runs."""
        if self.alive():
            os.killpg(self.process.pid, signal.SIGTERM)
            if not self.wait(40):
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.output.close()
