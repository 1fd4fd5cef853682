"""The demo's changes and the cost of each, from the members' step logs and the agent."""

import signal
import statistics

from steps import median_interval


class Change:
    """name: for the table; from/to: members; planned: announced beforehand."""

    def __init__(self, name, before, after, planned, act):
        self.name, self.before, self.after, self.planned, self.act = name, before, after, planned, act


def _reclaim(job):
    job.kill(max(s for s, _, _ in job.slots()), signal.SIGTERM)


def _replace(job):
    slots = job.slots()
    job.cli("replace", slots[1][1])


# One round brings the world from 2 members back to 2, so that rounds can follow one another.
ROUND = [
    Change("grow", 2, 4, True, lambda job: job.cli("resize", 4)),
    Change("reclaim notice", 4, 3, True, _reclaim),
    Change("replace", 3, 3, True, _replace),
    Change("SIGKILL slot 0", 3, 2, False, lambda job: job.kill(0, signal.SIGKILL)),
    Change("grow again", 2, 4, True, lambda job: job.cli("resize", 4)),
]
BACK = Change("shrink", 4, 2, True, lambda job: job.cli("resize", 2))


def plan(rounds):
    out = []
    for i in range(rounds):
        out += ROUND + ([BACK] if i + 1 < rounds else [])
    return out


def perform(job, log, change, step, settle):
    """Makes one change after `step`, waits until the world is steady and `settle` steps older."""
    job.wait_step(step)
    epoch = job.status()["epoch"]
    asked = log.last_step()
    change.act(job)
    # The logs are polled, because every process beside a change slows the change.
    job.wait_until(lambda: log.last_epoch() > epoch, f"epoch {epoch + 1}")
    done = log.last_step()
    job.wait_step(done + settle)
    status = job.wait_steady()
    record = status["transitions"][-1]
    return {"name": change.name, "from": change.before, "to": change.after, "planned": change.planned,
            "asked_at_step": asked, "done_at_step": done, "epoch": record["to_epoch"],
            "prepare_ms": record["prepare_ms"], "commit_ms": record["total_ms"] - record["prepare_ms"],
            "phases": {p["phase"]: p["ms"] for p in record["phases"]},
            "bytes": record["bytes"], "host_waits": record["host_waits"]}


def cost(log, row, undisturbed):
    """Adds the training loop's view to a row of perform(). undisturbed: slots -> median ms.

    pause: the longest interval between two step ends, over all members, in which the epoch changed,
    minus the median of undisturbed intervals (each also the longest over all members) of the world
    before. steps_lost: steps whose work was done and discarded.
    """
    worst, lost, at = 0.0, 0, None
    for member, rows in log.steps.items():
        for before, after in zip(rows, rows[1:]):
            if before["epoch"] < row["epoch"] <= after["epoch"]:
                ms = (after["wall_ns"] - before["wall_ns"]) / 1e6
                if ms > worst:
                    worst, at = ms, after["step"]
                rolled_back = max(0, before["step"] + 1 - after["step"])
                lost = max(lost, rolled_back + after["repeats"])
    row["pause_ms"] = max(0.0, worst - undisturbed[row["from"]])
    row["steps_lost"] = lost
    row["step"] = at
    return row


def undisturbed_medians(log, rows):
    """Returns slots -> median interval of step ends (slowest member), away from every change."""
    disturbed = set()
    for row in rows:
        disturbed.update(range(row["asked_at_step"], row["done_at_step"] + 3))
    out = {}
    for size in (2, 3, 4):
        slowest = {}
        for m in log.steps:
            for step, ms, r in log.intervals(m):
                if r["slots"] == size and step not in disturbed:
                    slowest[step] = max(ms, slowest.get(step, 0.0))
        if slowest:
            out[size] = statistics.median(slowest.values())
    whole = median_interval(log, 0, log.last_step(), 2)
    return {size: out.get(size, whole) for size in (2, 3, 4)}
