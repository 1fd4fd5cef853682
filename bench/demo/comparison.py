"""The demo's table: each kind of change beside the same change by checkpoint and restart.

A planned change is compared with save, exit, start and load. A death leaves no time to save. The
restart then loads the last checkpoint and repeats the steps since, on average half of the time
between two checkpoints. Rewire's pause includes its repeated step, so the restart's downtime
includes its repeated steps. The time between checkpoints is the shortest that CheckFreq (Mohan et
al., FAST 2021) allows: the part of a save that stops the training takes at most 3.5 % of it, and
the part that does not (to reach the disk) ends before the next save.
"""

import statistics

MOST_OVERHEAD = 0.035  # CheckFreq's bound
PHASES = ("downtime_ms", "save_ms", "sync_ms", "exit_ms", "exec_ms", "init_ms", "load_ms", "first_step_ms")


def between_checkpoints(save_ms, sync_ms):
    """Returns the milliseconds between two checkpoints. save_ms includes sync_ms."""
    return max((save_ms - sync_ms) / MOST_OVERHEAD, sync_ms)


def _median(rows, key):
    return statistics.median(row[key] for row in rows)


def _row(change, mine, restarts, undisturbed):
    pause = _median(mine, "pause_ms")
    row = {"name": change.name, "from": change.before, "to": change.after, "planned": change.planned,
           "repeats": len(mine), "prepare_ms": _median(mine, "prepare_ms"),
           "pause_ms": pause, "pause_ms_all": [round(r["pause_ms"], 3) for r in mine],
           "bytes": _median(mine, "bytes"), "steps_lost": max(r["steps_lost"] for r in mine)}
    if not change.planned:
        # The rest is the time until the loss was noticed, the aborts, and a part of the lost step.
        row["pause_parts_ms"] = {phase: round(statistics.median(r["phases"].get(phase, 0.0) for r in mine), 3)
                                 for phase in mine[0]["phases"]}
        row["pause_parts_ms"]["repeated step"] = round(undisturbed[change.after], 3)
    if not restarts:
        return row
    for key in PHASES:
        row[f"restart_{key}"] = _median(restarts, key)
    row["restart_repeated_ms"] = 0.0
    # A pause below 0.1 ms counts as 0.1 ms, so that the ratios stay finite.
    pause = max(pause, 0.1)
    if not change.planned:
        row["restart_downtime_ms"] -= row["restart_save_ms"] + row["restart_exit_ms"]
        row["ratio_without_repeats"] = row["restart_downtime_ms"] / pause
        row["restart_repeated_ms"] = between_checkpoints(row["restart_save_ms"], row["restart_sync_ms"]) / 2
        row["restart_downtime_ms"] += row["restart_repeated_ms"]
        row["restart_save_ms"] = row["restart_sync_ms"] = row["restart_exit_ms"] = 0.0
    row["ratio"] = row["restart_downtime_ms"] / pause
    row["ratio_unsynced"] = (row["restart_downtime_ms"] - row["restart_sync_ms"]) / pause
    return row


def table(plan, rows, baselines, undisturbed):
    """Returns one row per kind of change in `plan`: medians over the rounds, and the ratio to a restart.

    rows: of changes.cost(). baselines: of restart.measure(). undisturbed: slots -> ms of a step.
    """
    out = []
    for change in plan:
        mine = [r for r in rows if r["name"] == change.name]
        if mine:
            same = [b for b in baselines if (b["from"], b["to"]) == (change.before, change.after)]
            out.append(_row(change, mine, same, undisturbed))
    return out


def lines(rows):
    """Yields the table as text."""
    yield (f"{'change':<15} {'members':>8} {'prepare':>9} {'pause':>9} {'lost':>5} {'moved':>9}   "
           f"{'restart':>9} {'save+exit':>9} {'exec':>8} {'init':>8} {'load':>8} {'repeated':>8} {'ratio':>6}")
    for r in rows:
        line = (f"{r['name']:<15} {r['from']} -> {r['to']:<3} {r['prepare_ms']:>6.0f} ms {r['pause_ms']:>6.1f} ms "
                f"{r['steps_lost']:>5} {r['bytes'] / 1e6:>6.1f} MB   ")
        if "ratio" in r:
            line += (f"{r['restart_downtime_ms']:>6.0f} ms {r['restart_save_ms'] + r['restart_exit_ms']:>6.0f} ms "
                     f"{r['restart_exec_ms']:>5.0f} ms {r['restart_init_ms']:>5.0f} ms {r['restart_load_ms']:>5.0f} ms "
                     f"{r['restart_repeated_ms']:>5.0f} ms {r['ratio']:>5.0f}x")
        yield line
    for r in rows:
        if "pause_parts_ms" in r:
            parts = ", ".join(f"{name} {ms:.0f} ms" for name, ms in r["pause_parts_ms"].items())
            yield f"the pause of {r['name']}: {parts}"
        if "ratio_without_repeats" in r:
            yield f"without the steps that the restart repeats, its ratio is {r['ratio_without_repeats']:.1f}x"
