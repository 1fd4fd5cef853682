"""The promises of rdma_vm: exit codes, streams, deadlines, and that nothing is left behind."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent / "rdma_vm"
PATIENCE = 300  # seconds; nothing here takes that long


def start(*arguments, **more):
    return subprocess.Popen([sys.executable, PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **more)


def finish(process):
    """Returns (exit code, standard output, standard error)."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {PATIENCE} s")
        time.sleep(0.05)
    return value


def children(pid):
    """Returns {pid: name} of a process that may have ended."""
    found = {}
    try:
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            found[int(child)] = pathlib.Path(f"/proc/{child}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        pass
    return found


def qemu_of(pid):
    return next((child for child, name in children(pid).items() if name.startswith("qemu-system")), None)


def runs(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


class Command(unittest.TestCase):
    def test_gets_what_it_was_given_and_gives_its_exit_code(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            given, private = folder / "given", folder / "private"
            given.mkdir()
            private.mkdir()
            script = ('echo "$1 $WORD"; pwd; echo to stderr >/dev/stderr; sleep 1000 & '
                      'echo kept >"$2/file"; echo lost >"$3/file"; cat "$3/file"; exit 37')
            code, out, err = finish(start("run", "--output", given, "--", "sh", "-c", script, "sh", "--", given, private,
                                          cwd=folder, env=dict(os.environ, WORD="it's two")))
            self.assertEqual(code, 37, err)
            self.assertEqual(out, f"-- it's two\n{folder}\nlost\n")
            self.assertIn("to stderr\n", err)
            self.assertEqual((given / "file").read_text(encoding="ascii"), "kept\n")
            self.assertEqual(list(private.iterdir()), [])

    def test_that_hangs_is_ended_at_its_deadline(self):
        code, _, err = finish(start("run", "--timeout", 1, "--", "sleep", "1000"))
        self.assertEqual(code, 124, err)
        self.assertIn("the command did not end within 1 s", err)


class Machine(unittest.TestCase):
    def test_whose_qemu_dies_while_it_boots(self):
        process = start("run", "--", "sleep", "1000")
        os.kill(wait_for(lambda: qemu_of(process.pid), "QEMU"), signal.SIGKILL)
        code, _, err = finish(process)
        self.assertEqual(code, 125, err)
        self.assertIn("QEMU ended before the command did", err)


class NothingIsLeft(unittest.TestCase):
    def end(self, number, code):
        process = start("run", "--", "sleep", "1000")
        qemu = wait_for(lambda: qemu_of(process.pid), "QEMU")
        process.send_signal(number)
        self.assertEqual(finish(process)[0], code)
        wait_for(lambda: not runs(qemu), "end of QEMU")

    def test_by_terminate(self):
        self.end(signal.SIGTERM, 128 + signal.SIGTERM)

    def test_by_interrupt(self):
        self.end(signal.SIGINT, 128 + signal.SIGINT)

    def test_by_kill(self):
        self.end(signal.SIGKILL, -signal.SIGKILL)

    def test_when_the_parent_dies(self):
        with subprocess.Popen(["sh", "-c", '"$@" & wait', "sh", sys.executable, PROGRAM, "run", "--", "sleep", "1000"],
                              stderr=subprocess.DEVNULL) as shell:
            program = wait_for(lambda: next(iter(children(shell.pid)), None), "rdma_vm")
            qemu = wait_for(lambda: qemu_of(program), "QEMU")
            shell.kill()
        wait_for(lambda: not runs(qemu) and not runs(program), "end of QEMU and rdma_vm")


class CannotRun(unittest.TestCase):
    def test_without_packages(self):
        with tempfile.TemporaryDirectory() as empty:
            code, _, err = finish(start("prepare", env={"PATH": empty, "HOME": empty}))
        self.assertEqual(code, 77, err)
        self.assertIn("missing Debian packages; run: sudo apt-get install", err)
        self.assertIn(" qemu-system-x86 busybox-static ", err)

    def test_without_a_place_for_the_cache(self):
        code, _, err = finish(start("prepare", env=dict(os.environ, XDG_CACHE_HOME="/dev/null/cache")))
        self.assertEqual(code, 77, err)
        self.assertIn("no cache in /dev/null/cache", err)

    @unittest.skipIf(list(pathlib.Path("/lib/modules").glob("*-amd64")), "an installed kernel is taken instead")
    def test_without_a_source_of_kernels(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            config = folder / "apt.conf"
            config.write_text(f'Dir::State "{folder}/state"; Dir::Cache "{folder}/cache";\n'
                              'Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "/dev/null";\n', encoding="utf-8")
            code, _, err = finish(start("prepare", env=dict(os.environ, XDG_CACHE_HOME=str(folder), APT_CONFIG=str(config))))
            self.assertEqual(list((folder / "rewire/rdma_vm").glob("linux-*")), [])
        self.assertEqual(code, 77, err)
        self.assertIn("no kernel", err)


def setUpModule():
    code, _, err = finish(start("prepare"))
    if code == 77:
        print(err, file=sys.stderr)
        os._exit(77)
    assert code == 0, err


if __name__ == "__main__":
    unittest.main(verbosity=2)
