#!/usr/bin/env python3
"""The verdict of a swap mode finds operations that are stale, lost, doubled or wrong.

verdict_test.py FOLDER-OF-VERDICT
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1))
import verdict  # noqa: E402

FAULTS = ("stale_ops", "lost_ops", "wrong_data")


class VerdictTest(unittest.TestCase):
    def judge(self, ranks, wrong=0, verified=None, made=1):
        """ranks: for each rank the (index, generation) of its calls on one communicator."""
        results = []
        with tempfile.TemporaryDirectory() as name:
            files = []
            for rank, calls in enumerate(ranks):
                files.append(pathlib.Path(name) / f"records.{rank}")
                files[-1].write_bytes(b"".join(verdict.RECORD.pack(7, rank, 0, i, g)
                                               for i, g in calls))
                results.append({"lanes": [{"communicator": 7, "rank": rank, "made": made,
                                           "issued": 4,
                                           "verified": 4 if verified is None else verified,
                                           "wrong": wrong}]})
            return verdict.judge(results, files)

    GOOD = [(0, 10), (1, 10), (2, 11), (3, 12)]

    def test_a_clean_run_has_no_faults_and_counts_swaps(self):
        found = self.judge([self.GOOD, self.GOOD])
        self.assertEqual([found[key] for key in FAULTS], [0, 0, 0])
        self.assertEqual(found["swaps"], 2)
        self.assertEqual(found["operations"], 8)

    def test_the_rank_with_the_fewest_swaps_counts(self):
        self.assertEqual(self.judge([self.GOOD, self.GOOD[:2] + [(2, 10), (3, 10)]])["swaps"], 0)

    def test_a_new_communicator_is_no_swap(self):
        found = self.judge([self.GOOD, self.GOOD], made=2)
        self.assertEqual((found["swaps"], found["made_again"]), (1, 1))

    def test_an_operation_after_the_cut_on_the_old_generation_is_stale(self):
        late = self.GOOD[:2] + [(2, 10), (3, 12)]
        self.assertEqual(self.judge([self.GOOD, late])["stale_ops"], 1)

    def test_a_rank_that_goes_back_is_stale_even_if_all_ranks_do(self):
        back = self.GOOD[:3] + [(3, 10)]
        self.assertGreater(self.judge([back, back])["stale_ops"], 0)

    def test_a_build_beside_a_destroy_counts_and_is_no_operation(self):
        with tempfile.TemporaryDirectory() as name:
            file = pathlib.Path(name) / "records.1"
            file.write_bytes(verdict.RECORD.pack(verdict.MADE_BESIDE_DESTROY, 0, 0, 0, 0) * 2)
            found = verdict.judge([], [file])
        self.assertEqual(found, {"stale_ops": 0, "lost_ops": 0, "wrong_data": 0, "swaps": 0,
                                 "operations": 0, "made_again": 0, "built_beside_destroy": 2})

    def test_a_group_on_two_generations_is_stale(self):
        split = [(0, 10), (1, 10), (1, 11), (2, 11), (3, 12)]
        self.assertGreater(self.judge([split, split])["stale_ops"], 0)

    def test_an_operation_without_a_call_is_lost(self):
        self.assertEqual(self.judge([self.GOOD, self.GOOD[:3]])["lost_ops"], 1)

    def test_a_call_that_the_program_did_not_make_counts(self):
        self.assertEqual(self.judge([self.GOOD, self.GOOD + [(4, 12)]])["lost_ops"], 1)

    def test_an_operation_that_is_called_twice_is_not_one_operation(self):
        self.assertEqual(self.judge([self.GOOD, self.GOOD[:1] + self.GOOD])["lost_ops"], 1)

    def test_wrong_and_unverified_results_count(self):
        self.assertEqual(self.judge([self.GOOD], wrong=2)["wrong_data"], 2)
        self.assertEqual(self.judge([self.GOOD], verified=3)["wrong_data"], 1)


if __name__ == "__main__":
    unittest.main()
