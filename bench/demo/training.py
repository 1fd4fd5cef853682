"""One training job under `rewire run`, whose world changes round by round."""

import pathlib
import sys
import time

import changes
from job import Job, JobError
from steps import StepLog


def say(text=""):
    print(text, file=sys.stderr, flush=True)


class LiveView:
    """Shows the training's progress in one line on a terminal. Prints nothing elsewhere."""

    def __init__(self, log):
        self.log, self.shown = log, 0.0
        self.terminal = sys.stderr.isatty()
        # Every wait of a job polls the log, so that the line needs no thread.
        poll = log.poll
        log.poll = lambda: (poll(), self.show())[0]

    def show(self):
        now = time.monotonic()
        if not self.terminal or now - self.shown < 0.2 or not self.log.steps:
            return
        self.shown = now
        row = max((rows[-1] for rows in self.log.steps.values()), key=lambda r: (r["epoch"], r["step"]))
        members = "#" * row["slots"]
        sys.stderr.write(f"\r\x1b[K  step {row['step']:4d}  loss {row['loss']:.4f}  epoch {row['epoch']:2d}  "
                         f"members {members:<4}  {row['step_ns'] / 1e6:6.1f} ms/step")
        sys.stderr.flush()

    def end(self):
        if self.terminal:
            sys.stderr.write("\r\x1b[K")


def final_line(folder):
    lines = [line for line in (pathlib.Path(folder) / "output.txt").read_text(errors="replace").splitlines()
             if "final step" in line]
    if not lines:
        raise JobError(f"read {folder}/output.txt: no line contains 'final step'")
    return lines[-1][lines[-1].index("final step"):]


def train(build, folder, members, program, actions, environment=None):
    """Runs one job of `program` with actions(job, log). Returns (log, result of actions, final line)."""
    folder = pathlib.Path(folder)
    (folder / "steps").mkdir(parents=True)
    log = StepLog(folder / "steps")
    view = LiveView(log)
    job = Job(build, folder, members, 4, [*program, "--log", str(folder / "steps" / "{member}.jsonl")], log,
              environment=environment)
    try:
        result = actions(job, log)
        job.finish()
    finally:
        job.close()
        view.end()
    return log, result, final_line(folder)


def disturb(rounds, spacing):
    """Returns actions for train(). They make all changes and return one row per change. spacing: steps between the end
    of a change and the next change."""
    def actions(job, log):
        rows, step = [], spacing
        for change in changes.plan(rounds):
            row = changes.perform(job, log, change, step, settle=2)
            say(f"  {change.name:<15} {change.before} -> {change.after}  "
                f"at step {row['asked_at_step']}, in the new world by step {row['done_at_step']}")
            rows.append(row)
            step = log.last_step() + spacing
        return rows
    return actions
