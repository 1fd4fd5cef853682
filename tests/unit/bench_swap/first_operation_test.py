#!/usr/bin/env python3
"""The first operations on a generation are found and compared with their neighbours.

first_operation_test.py FOLDER-OF-FIRST_OPERATION
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1))
import first_operation  # noqa: E402
import verdict  # noqa: E402

KINDS = ("sum", "ring")
SWAP_AT = 21  # an operation of kind "ring"


class FirstOperationTest(unittest.TestCase):
    def figures(self, time_of):
        """time_of(index): of one rank's 40 operations, alternately of both kinds."""
        times = [[KINDS[i % 2], i, time_of(i)] for i in range(40)]
        with tempfile.TemporaryDirectory() as name:
            file = pathlib.Path(name) / "records.1"
            file.write_bytes(b"".join(verdict.RECORD.pack(7, 0, 0, i, 10 if i < SWAP_AT else 11)
                                      for i in range(40)))
            results = [{"lanes": [{"communicator": 7, "rank": 0, "times": times}]}]
            return first_operation.figures(results, [file])

    def test_equal_times_give_a_ratio_of_one(self):
        found = self.figures(lambda i: 100)
        self.assertEqual(found["first_op_ratio"], 1)
        self.assertEqual(found["first_op_ratio_at_swap"], 1)

    def test_the_operation_of_the_swap_and_the_first_of_the_other_kind_are_both_first(self):
        found = self.figures(lambda i: {SWAP_AT: 300, SWAP_AT + 1: 200}.get(i, 100))
        self.assertEqual(found["first_op_ratio_by_kind"], {"ring": 3, "sum": 2})
        self.assertEqual(found["first_op_ratio"], 3)
        self.assertEqual(found["first_op_ratio_at_swap"], 3)

    def test_a_slow_operation_elsewhere_does_not_count(self):
        self.assertEqual(self.figures(lambda i: 900 if i == 25 else 100)["first_op_ratio"], 1)

    def test_kinds_of_different_speed_are_not_mixed(self):
        self.assertEqual(self.figures(lambda i: 100 if i % 2 else 5000)["first_op_ratio"], 1)

    def test_without_times_there_are_no_figures(self):
        self.assertEqual(first_operation.figures([None, {"lanes": []}], []), {})


if __name__ == "__main__":
    unittest.main()
