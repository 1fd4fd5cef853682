#!/usr/bin/env python3
"""The demo's table compares a planned change with a save, and a death with repeated steps.

comparison_test.py FOLDER-OF-COMPARISON
"""

import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
import changes  # noqa: E402
import comparison  # noqa: E402

SHRINK = changes.Change("shrink", 4, 2, True, None)
DEATH = changes.Change("death", 3, 2, False, None)


def cost(change, pause):
    return {"name": change.name, "pause_ms": pause, "prepare_ms": 1.0, "bytes": 0, "steps_lost": 0,
            "phases": {"PREPARE": 20.0}}


def restart(change):
    return {"from": change.before, "to": change.after, "downtime_ms": 100.0, "save_ms": 45.0,
            "sync_ms": 38.0, "exit_ms": 5.0, "exec_ms": 10.0, "init_ms": 10.0, "load_ms": 20.0,
            "first_step_ms": 10.0}


class ComparisonTest(unittest.TestCase):
    def row(self, change, pause=10.0):
        rows = comparison.table([SHRINK, DEATH], [cost(change, pause)],
                                [restart(SHRINK), restart(DEATH)], {2: 7.0, 3: 5.0, 4: 4.0})
        self.assertEqual(len(rows), 1)
        self.assertTrue(all(isinstance(line, str) for line in comparison.lines(rows)))
        return rows[0]

    def test_a_planned_change_pays_for_the_save_and_repeats_nothing(self):
        row = self.row(SHRINK)
        self.assertEqual(row["ratio"], 10.0)
        self.assertEqual(row["ratio_unsynced"], 6.2)
        self.assertEqual(row["restart_repeated_ms"], 0.0)
        self.assertNotIn("pause_parts_ms", row)

    def test_a_death_pays_for_half_of_the_time_between_checkpoints(self):
        row = self.row(DEATH)
        # (45 - 38) / 3.5 % = 200 ms between two checkpoints.
        self.assertAlmostEqual(row["restart_repeated_ms"], 100.0)
        self.assertAlmostEqual(row["restart_downtime_ms"], 150.0)
        self.assertAlmostEqual(row["ratio"], 15.0)
        self.assertAlmostEqual(row["ratio_without_repeats"], 5.0)
        self.assertEqual(row["pause_parts_ms"], {"PREPARE": 20.0, "repeated step": 7.0})

    def test_a_disk_that_is_slow_spaces_the_checkpoints(self):
        self.assertEqual(comparison.between_checkpoints(1010.0, 1000.0), 1000.0)

    def test_no_pause_counts_as_a_tenth_of_a_millisecond(self):
        self.assertEqual(self.row(SHRINK, pause=0.0)["ratio"], 1000.0)


if __name__ == "__main__":
    unittest.main()
