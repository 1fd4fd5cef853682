"""./dev bench chaos: small training jobs under `rewire run`, each disturbed a few times at random.

Every job must go on through all of it, end when it is told to with status 0, and have computed what
an undisturbed run computes: each loss and the final state, bit for bit. Nothing may be left behind.
A run is its seed's: a run that failed is repeated by the line that is printed for it.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "demo"))

import faults  # noqa: E402
from job import Job, JobError  # noqa: E402
from steps import StepLog, losses  # noqa: E402

TRAINING = ["--exact", "--width", "16", "--layers", "1", "--heads", "2", "--steps", "1000000", "--batch", "4",
            "--context", "16"]
MARK = "REWIRE_CHAOS_RUN"  # in the environment of every process of a run
SETTINGS = {"REWIRE_SILENCE_MS": str(int(faults.SILENCE_S * 1000)), "REWIRE_HEARTBEAT_MS": "200"}
LIMIT = "has no complete copy"  # a death before the first copy of a new world under ZeRO-1, see README
STEADY_S = 60
END_S = 60


def say(text=""):
    print(text, file=sys.stderr, flush=True)


class Run:
    """One job, its disturbances and its verdict."""

    def __init__(self, build, folder, seed):
        self.build, self.folder, self.seed = pathlib.Path(build), pathlib.Path(folder), seed
        self.random = random.Random(seed)
        self.members = self.random.randint(2, 4)
        self.most = 5
        self.zero = self.random.randint(0, 1)
        self.log = StepLog(self.folder / "steps")
        self.job = None
        self.lost = set()  # members that a fault has taken out of the world
        self.did = []

    # ---- for faults.py
    def world(self):
        return self.job.slots()

    def agent(self):
        return self.job.status()["agent"]["pid"]

    def expect_loss(self, members):
        self.lost |= set(members)

    def begin(self, *arguments):
        return subprocess.Popen([self.job.rewire, arguments[0], "--quiet", "--socket", self.job.socket,
                                 *map(str, arguments[1:])],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def end(self, command):
        """A change may be refused or fail; it may not hang."""
        try:
            command.wait(STEADY_S)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()
            raise JobError(f"`{' '.join(command.args)}` did not end within {STEADY_S} s") from None

    def change(self, *arguments):
        self.end(self.begin(*arguments))

    def wait_without(self, member):
        deadline = time.monotonic() + STEADY_S
        while any(m == member for _, m, _ in self.world()):
            if time.monotonic() > deadline:
                raise JobError(f"member {member} is not lost after {STEADY_S} s")
            time.sleep(0.1)

    # ---- the run
    def settle(self):
        """Nothing is under way, and every shard has its copy again."""
        self.job.cli("wait", "--timeout", str(STEADY_S), timeout=STEADY_S + 10)
        self.job.log.poll()
        self.job.wait_step(self.log.last_step() + 5)

    def perform(self):
        (self.folder / "steps").mkdir(parents=True)
        program = [str(self.build / "bin" / "gpt_train"), *TRAINING, "--zero", str(self.zero),
                   "--stop-file", str(self.folder / "stop"), "--log", str(self.folder / "steps" / "{member}.jsonl")]
        self.job = Job(self.build, self.folder, self.members, self.most, program, self.log)
        self.job.wait_step(1)
        self.settle()
        for _ in range(self.random.randint(2, 4)):
            fault = self.random.choice(faults.ALL)
            if fault in (faults.kill_some, faults.stop_one) and len(self.world()) < 2:
                fault = faults.resize
            self.did.append(f"({fault.__name__})")
            self.did[-1] = fault(self)
            self.settle()
        (self.folder / "stop").touch()
        self.job.finish(END_S)

    def output(self):
        return (self.folder / "output.txt").read_text(errors="replace")

    def mistaken_losses(self):
        """Members that were counted as lost although nothing had been done to them."""
        found = set()
        for line in self.output().splitlines():
            if " is lost: " in line and "member " in line:
                found.add(int(line.split(" is lost: ")[0].rsplit("member ", 1)[1]))
        return sorted(found - self.lost)

    def difference(self):
        """What differs from an undisturbed run of as many steps; empty: nothing."""
        lines = [line for line in self.output().splitlines() if "final step" in line]
        if not lines:
            return "there is no final line"
        final = lines[-1][lines[-1].index("final step"):]
        folder = self.folder / "undisturbed"
        folder.mkdir()
        command = [str(self.build / "bin" / "gpt_train"), *TRAINING, "--zero", str(self.zero), "--no-rewire",
                   "--stop-after", final.split()[2].rstrip(":,"), "--log", str(folder / "0.jsonl")]
        done = subprocess.run(command, env=dict(os.environ, LD_LIBRARY_PATH=str(self.build / "simgpu")),
                              capture_output=True, text=True, timeout=300, check=False)
        if final not in done.stdout:
            return f"the end is '{final}', undisturbed '{done.stdout.strip()[-200:]}'"
        undisturbed = StepLog(folder)
        undisturbed.poll()
        expected = losses(undisturbed)
        wrong = [step for step, bits in losses(self.log).items() if bits != expected.get(step)]
        return f"{len(wrong)} losses differ, the first at step {min(wrong)}" if wrong else ""


def orphans(mark):
    """Processes of the run that are still there a moment after its end."""
    deadline = time.monotonic() + 5
    while True:
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"{MARK}={mark}\0".encode() in (entry / "environ").read_bytes() \
                        and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
            except OSError:
                pass
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def one_run(build, folder, seed):
    """(run, why it ended wrongly, what differs, orphans)."""
    os.environ[MARK] = mark = f"{os.getpid()}-{seed}"
    run = Run(build, folder, seed)
    wrong = different = ""
    try:
        run.perform()
    except (JobError, subprocess.TimeoutExpired, OSError, ValueError) as error:
        wrong = str(error)
    finally:
        if run.job is not None:
            run.job.close()
    if not wrong:
        run.log.poll()
        different = run.difference()
    left = orphans(mark)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return run, wrong, different, left


def main():
    p = argparse.ArgumentParser(prog="./dev bench chaos", description=__doc__.split("\n\n")[0])
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--json", action="store_true", help="one JSON object on standard output")
    p.add_argument("--runs", type=int, default=200, metavar="N", help="how many jobs (200)")
    p.add_argument("--seed", type=int, default=1, metavar="S", help="of the first run; the next has the next (1)")
    p.add_argument("--keep", metavar="DIR", default="chaos-results", help="for the files of failed runs (chaos-results)")
    args = p.parse_args()
    if args.runs < 1:
        p.error("--runs must be at least 1")
    os.environ.update(SETTINGS)
    result = {"bench": "chaos", "simulated": True, "seed": args.seed, "runs": 0, "faults": 0, "jobs_ended_wrongly": 0,
              "losses_different": 0, "orphans": 0, "members_lost_by_mistake": 0, "jobs_at_known_limit": 0, "failed_seeds": []}
    for seed in range(args.seed, args.seed + args.runs):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="rewire-chaos-"))
        began = time.monotonic()
        run, wrong, different, left = one_run(args.build, folder / "run", seed)
        limit = bool(wrong) and run.zero == 1 and LIMIT in run.output()
        wrong = "" if limit else wrong
        mistaken = run.mistaken_losses() if run.job is not None else []
        result["runs"] += 1
        result["faults"] += len(run.did)
        result["jobs_ended_wrongly"] += bool(wrong)
        result["jobs_at_known_limit"] += limit
        result["losses_different"] += bool(different)
        result["orphans"] += len(left)
        result["members_lost_by_mistake"] += len(mistaken)
        bad = [text for text in (wrong, different, left and f"left behind: {left}",
                                 mistaken and f"lost by mistake: member {mistaken}") if text]
        say(f"run {seed}: {run.members} members, ZeRO-{run.zero}: {'; '.join(run.did)}: "
            f"{'; '.join(bad) or ('known limit' if limit else 'ok')} ({time.monotonic() - began:.0f} s, {run.log.last_step() + 1} steps)")
        if bad:
            result["failed_seeds"].append(seed)
            kept = pathlib.Path(args.keep) / f"seed-{seed}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("*.sock"))
            say(f"  repeat with: ./dev bench chaos --runs 1 --seed {seed}    its files: {kept}")
        shutil.rmtree(folder, ignore_errors=True)
    good = result["jobs_ended_wrongly"] + result["losses_different"] + result["orphans"] == 0
    if args.json:
        print(json.dumps(result))
    else:
        print(", ".join(f"{k} {v}" for k, v in result.items() if k not in ("bench", "simulated")))
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
