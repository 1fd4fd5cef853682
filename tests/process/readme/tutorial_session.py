"""Runs the first session of docs/tutorial.md: its job, and its commands in their order.

Each command must end with 0, or print a refusal as on the page. The page's worlds ("members by slot") and
refusals must be those of this run; times, process ids and communicators differ.

usage: tutorial_session.py BIN_FOLDER PAGE
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PATIENCE = 60.0  # seconds


def session_of(page):
    """(the job's command, [(command, its lines of output on the page)])."""
    text = page.read_text(encoding="utf-8").split("\n## A cooperating program\n")[0]
    job = re.search(r"^    (rewire run (?:.*\\\n)*.*)$", text, re.MULTILINE).group(1)
    steps = []
    for line in re.findall(r"^    (.*)$", text[text.index(job) + len(job):], re.MULTILINE):
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif steps:
            steps[-1][1].append(line)
    return job.replace("\\\n", " "), steps


class Session:
    def __init__(self, folder, binaries):
        self.folder, self.binaries = folder, binaries
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=str(folder),
                                PATH=f"{binaries}:{os.environ['PATH']}")

    def command(self, text):
        text = re.sub(r"/tmp/(?=\w)", f"{self.folder}/", text)
        return text.replace("$PWD/build/release/bin", str(self.binaries))

    def run(self, text):
        return subprocess.run(["/bin/sh", "-c", self.command(text)], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)

    def status(self):
        answer = self.run("rewire status --json 2>/dev/null")
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def wait_for(self, what, condition):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None and condition(status):
                return status
            time.sleep(0.05)
        raise TimeoutError(f"{what}: not within {PATIENCE} s; the last status: {status}")

    def train(self):
        """Waits until every member has made a few steps, and so has copies of its state."""
        def updates(status):
            return {m["member"]: m["updates"] for m in status["members"] if m["slot"] is not None}
        begin = updates(self.wait_for("a world", lambda s: s["steady"] and s["epoch"] > 0))
        return self.wait_for("a few steps", lambda s: s["steady"] and all(
            updates(s).get(member, 0) > count + 5 for member, count in begin.items()))


def told(lines):
    """The lines that every run must repeat."""
    return [line for line in lines if line.startswith(("members by slot", "rewire: "))]


def play(session, steps):
    for command, expected in steps:
        if not command.startswith("rewire wait"):  # that follows the death at once
            status = session.train()
        if command.startswith("kill -9"):
            pid = next(m["pid"] for m in status["members"] if m["member"] == 0)
            session.run(f"kill -9 {pid}")
            continue
        answer = session.run(command)
        refused = any(line.startswith("rewire: ") for line in expected)
        if answer.returncode != (1 if refused else 0):
            raise AssertionError(f"{command}: status {answer.returncode}: {answer.stdout}")
        if told(expected) != told(answer.stdout.splitlines()):
            raise AssertionError(f"{command}: the page has {told(expected)}; the run had: {answer.stdout}")


def main():
    binaries, page = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    job, steps = session_of(page)
    with tempfile.TemporaryDirectory() as name:
        session = Session(pathlib.Path(name), binaries)
        with subprocess.Popen(["/bin/sh", "-c", "exec " + session.command(job)],
                              env=session.environment) as process:
            try:
                play(session, steps)
                status = process.wait(PATIENCE)
            finally:
                if process.poll() is None:
                    process.terminate()
    if status != 0:
        print(f"the job of {page} ended with status {status}")
    return 1 if status != 0 or len(steps) < 8 else 0


if __name__ == "__main__":
    sys.exit(main())
