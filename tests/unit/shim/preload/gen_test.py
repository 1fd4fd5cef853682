#!/usr/bin/env python3
"""gen.py refuses a table that is wrong and a header that the table does not describe.

gen_test.py FOLDER-OF-GEN
"""

import pathlib
import sys
import tempfile
import unittest

GEN = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(GEN))
import gen  # noqa: E402

HEADER = """
#define NCCL_MAJOR 2
#define NCCL_MINOR 20
#define NCCL_PATCH 3
/* ncclNotThere(int x); in a comment */
ncclResult_t  ncclTwo(const ncclComm_t comm, int* count);
ncclResult_t pncclTwo(const ncclComm_t comm, int* count);
%s
"""
TABLE = """
# facts
Two 2.14 handle : ncclResult_t (const ncclComm_t comm, int* count)
Later 2.25.1 pass : void (void)
"""


class GenTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def table(self, text):
        file = self.path / "table.txt"
        file.write_text(text)
        return gen.read_table(file)

    def check(self, table, extra=""):
        (self.path / "nccl.h").write_text(HEADER % extra)
        gen.check(self.table(table), self.path)

    def refused(self, *arguments, **named):
        with self.assertRaises(gen.TableError) as raised:
            self.check(*arguments, **named)
        return str(raised.exception)

    def test_same_is_accepted(self):
        self.check(TABLE)

    def test_unknown_function(self):
        text = self.refused(TABLE, extra="ncclResult_t ncclNew(int a);")
        self.assertIn("ncclNew(int)", text)
        self.assertNotIn("ncclTwo", text)

    def test_unknown_device_function(self):
        (self.path / "nccl_device").mkdir()
        (self.path / "nccl_device" / "core.h").write_text(
            "NCCL_EXTERN_C __host__ ncclTeam_t ncclTeamNew(ncclComm_t);\n"
            "NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE int ncclInline(int a);\n")
        text = self.refused(TABLE)
        self.assertIn("ncclTeamNew", text)
        self.assertNotIn("ncclInline", text)

    def test_other_parameter_type(self):
        text = self.refused(TABLE.replace("int* count", "long* count"))
        self.assertIn("ncclTwo is ncclResult (ncclComm, int *) there", text)

    def test_other_number_of_parameters(self):
        self.refused(TABLE.replace(", int* count", ""))

    def test_other_return_type(self):
        self.refused(TABLE.replace(": ncclResult_t", ": int"))

    def test_function_that_should_be_there(self):
        text = self.refused(TABLE + "Gone 2.19.1 pass : int (int x)\n")
        self.assertIn("ncclGone should be there since 2.19.1", text)

    def test_place_of_const_does_not_matter(self):
        self.check(TABLE + "Const 2.19.1 pass : int (const ncclX_t* x)\n",
                   extra="int ncclConst(ncclX_t const *);")

    def test_bad_lines(self):
        for line in ("Two", "Two 2.14 handle ncclResult_t (int x)",
                     "Three 2.14 odd : int (int x)", "Three 2.14 pass : int (int)",
                     "Three 2.14 collective : int (int x)"):
            with self.subTest(line), self.assertRaises(gen.TableError):
                self.table(TABLE + line + "\n")
        with self.assertRaises(gen.TableError):
            self.table(TABLE + "Two 2.14 pass : int (int x)\n")
        with self.assertRaises(gen.TableError):
            self.table("# nothing\n")

    def test_command_fails_and_writes_nothing(self):
        (self.path / "nccl.h").write_text(HEADER % "int ncclNew(int a);")
        out = self.path / "out"
        self.assertEqual(1, gen.main(["--table", str(GEN / "nccl_functions.txt"), "--out",
                                      str(out), "--check-include", str(self.path)]))
        self.assertFalse(out.exists())

    def test_whole_table(self):
        functions = gen.read_table(GEN / "nccl_functions.txt")
        names = {f.name for f in functions}
        self.assertGreaterEqual(len(names), 80)
        for must in ("AllReduce", "CommRevoke", "CommGrow", "ParamDumpAll", "DevCommCreate"):
            self.assertIn(must, names)
        exports = gen.export_map(functions)
        for name in names:
            self.assertIn(f"nccl{name};", exports)


if __name__ == "__main__":
    unittest.main()
