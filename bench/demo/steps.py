"""Step logs of the trainer: one JSON-lines file per process, read while they grow."""

import json
import pathlib
import statistics


class StepLog:
    """The logs of one job, by member. poll() reads new lines; an incomplete line is read later."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.steps = {}   # member -> rows of kind "step", in order
        self.phases = {}  # member -> {phase: wall ns}
        self._offsets = {}

    def poll(self):
        for path in sorted(self.folder.glob("*.jsonl")):
            offset = self._offsets.get(path, 0)
            with open(path, "rb") as f:
                f.seek(offset)
                data = f.read()
            end = data.rfind(b"\n") + 1
            self._offsets[path] = offset + end
            for line in data[:end].splitlines():
                self._take(json.loads(line))

    def _take(self, row):
        if row["kind"] == "step":
            self.steps.setdefault(row["member"], []).append(row)
        elif row["kind"] == "phase":
            self.phases.setdefault(row["member"], {})[row["phase"]] = row["wall_ns"]

    def last_step(self):
        return max((rows[-1]["step"] for rows in self.steps.values()), default=-1)

    def last_epoch(self):
        return max((rows[-1]["epoch"] for rows in self.steps.values()), default=0)

    def intervals(self, member):
        """Returns (step, ms) between consecutive step ends of one member."""
        rows = self.steps.get(member, [])
        return [(b["step"], (b["wall_ns"] - a["wall_ns"]) / 1e6, b) for a, b in zip(rows, rows[1:])]


def median_interval(log, first, last, slots):
    """Returns the median undisturbed interval of steps first..last (inclusive) of this world size."""
    values = [ms for member in log.steps for step, ms, row in log.intervals(member)
              if first <= step <= last and row["slots"] == slots]
    return statistics.median(values) if values else None


def losses(log):
    """Returns step -> loss bits of each step's last run; every member must agree."""
    out = {}
    for rows in log.steps.values():
        for row in rows:
            out.setdefault(row["step"], set()).add(row["bits"])
    return out
