"""Tests cmake/rooms.py, cmake/type_names.py and the include paths that CMake builds from rooms.txt.

usage: rooms_test.py SOURCE COMPILER INCLUDES     INCLUDES: those of the room reconfig/state/plan, A:B
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, COMPILER, INCLUDES = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(":")
ABOVE = "reconfig/elastic/protocol/messages.h"
BELOW = "reconfig/world/world.h"


def compiles(included):
    command = [COMPILER, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    command += [f"-I{folder}" for folder in INCLUDES if folder]
    return subprocess.run(command, input=f'#include "{included}"\n', text=True, capture_output=True,
                          check=False).returncode == 0


class Checkout:
    """A repository with the table of rooms and a few planted files."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "cmake").mkdir()
        for name in ("cmake/rooms.py", "cmake/rooms.txt", "cmake/type_names.py", "CONTRIBUTING.md"):
            shutil.copy(SOURCE / name, self.folder / name)

    def plant(self, path, text):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def check(self, *script):
        subprocess.run("git init -q . && git add -A", shell=True, cwd=self.folder, check=True)
        done = subprocess.run([sys.executable, *(script or ("cmake/rooms.py", "check"))], cwd=self.folder,
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class RoomsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = Checkout(folder.name)

    def test_an_include_of_a_room_above_does_not_compile(self):
        self.assertTrue(compiles(BELOW))
        self.assertFalse(compiles(ABOVE))
        self.assertFalse(compiles("shim/core/cut.h"))

    def test_allowed_includes_pass(self):
        self.checkout.plant("reconfig/state/plan/plan.cc", f'#include "{BELOW}"\n#include <vector>\n')
        self.assertEqual(self.checkout.check(), (0, ""))

    def test_an_include_of_a_room_above_is_named(self):
        self.checkout.plant("reconfig/state/plan/plan.cc", f'#include "{ABOVE}"\n')
        status, text = self.checkout.check()
        self.assertEqual(status, 1)
        self.assertIn("reconfig/state/plan may not include reconfig/elastic/protocol", text)

    def test_a_file_or_an_include_outside_of_all_rooms_is_named(self):
        self.checkout.plant("reconfig/stray.cc", "")
        self.checkout.plant("reconfig/base/log.cc", '#include "tests/sim/simulation.h"\n')
        status, text = self.checkout.check()
        self.assertEqual(status, 1)
        self.assertIn("reconfig/stray.cc is in no room", text)
        self.assertIn("tests/sim/simulation.h, which is in no room", text)

    def test_a_type_name_that_is_defined_twice_in_one_namespace_is_named(self):
        self.checkout.plant("reconfig/base/a.h", "namespace rewire::net {\nclass Link;\nstruct Link : Base {};\n}\n")
        self.checkout.plant("reconfig/base/b.h", """
            namespace rewire::net {
            struct Outer { struct Inner {}; };
            namespace { struct Link {}; }
            struct Outer::Link {};
            class REWIRE_SCOPED_CAPABILITY Lock {};
            }
            extern "C" { struct alignas(sizeof(int)) Plain { int one; }; }
            namespace rewire::shim { enum class Link { kOne }; struct Inner {}; }""")
        self.assertEqual(self.checkout.check("cmake/type_names.py"), (0, ""))
        self.checkout.plant("net_plugin/d.cc", """
            namespace rewire::net { class [[nodiscard]] REWIRE_CAPABILITY("mutex") Lock {}; }
            struct Plain {};""")
        status, text = self.checkout.check("cmake/type_names.py")
        self.assertEqual(text, "Plain is defined in net_plugin/d.cc and in reconfig/base/b.h\n"
                         "rewire::net::Lock is defined in net_plugin/d.cc and in reconfig/base/b.h\n")
        (self.checkout.folder / "net_plugin/d.cc").unlink()
        self.checkout.plant("net_plugin/c.cc", "namespace rewire::net {\n// A link.\nclass Link final {\n};\n}\n")
        status, text = self.checkout.check("cmake/type_names.py")
        self.assertEqual(status, 1)
        self.assertEqual(text, "rewire::net::Link is defined in net_plugin/c.cc and in reconfig/base/a.h\n")

    def test_a_cycle_in_the_table_is_refused(self):
        table = self.checkout.folder / "cmake/rooms.txt"
        table.write_text(table.read_text().replace("reconfig/abi | |", "reconfig/abi | reconfig/base |"))
        status, text = self.checkout.check()
        self.assertNotEqual(status, 0)
        self.assertIn("reconfig/abi may include reconfig/base, which is not below it", text)

    def test_an_old_table_in_contributing_is_named(self):
        page = self.checkout.folder / "CONTRIBUTING.md"
        page.write_text(page.read_text().replace("| `reconfig/world` |", "| `reconfig/globe` |"))
        self.assertIn("CONTRIBUTING.md", self.checkout.check()[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
