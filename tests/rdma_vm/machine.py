"""One run of the virtual machine: QEMU as a child, its ports relayed, the command's exit code back.

Used by rdma_vm alone. QEMU emulates the processor (TCG), has no network, and gets everything over
file descriptors. Nothing is left in the file system, and the kernel kills QEMU when this process
ends in any way.
"""

import contextlib
import ctypes
import os
import selectors
import shlex
import signal
import socket
import subprocess
import time

BOOT_SECONDS = 180  # 3 to 4 s, on a machine that has a processor to spare
# One processor until init has done its work. A crash ends the machine. The kernel does not test
# whether the timer ticks: if the host delays the emulated processor, the test fails and the kernel
# hangs.
KERNEL_ARGUMENTS = ("console=ttyS0 quiet panic=-1 mitigations=off rcupdate.rcu_expedited=1 no_timer_check maxcpus=1 "
                    "rdinit=/init")
PR_SET_PDEATHSIG = 1
CONSOLE_KEPT = 4096


class Broken(Exception):
    """The machine itself failed; the text says how."""


class DeadlinePassed(Exception):
    """The command did not end in time."""


def command_script(command, devices):
    """Returns the guest shell's script: the command with our folder and environment."""
    environment = dict(os.environ, REWIRE_VM_DEVICES=" ".join(f"rxe{i}" for i in range(devices)),
                       PATH="/run/rewire_vm:" + os.environ["PATH"])
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items() if name.isidentifier()]
    lines += [f"cd {shlex.quote(os.getcwd())} || exit 125", shlex.join(command), "exit $?"]
    return "\n".join(lines).encode(errors="surrogateescape") + b"\n"


def raise_stuck(*_):
    raise DeadlinePassed("the command's output was not taken in time")


class Machine:
    """A context: QEMU has ended when the context is left."""

    PORTS = ("console", "control", "output", "errors")

    def __init__(self, image, memory, cpus, devices, output):
        self.devices, self.output = devices, output
        self.console, self.control, self.started, self.status = b"", b"", None, None
        initial = os.memfd_create("initial")
        with open(initial, "wb", closefd=False) as file:
            file.write(image.initial_files())
        pairs = {name: socket.socketpair() for name in self.PORTS}
        self.ports = {name: pair[0] for name, pair in pairs.items()}
        theirs = {name: pair[1].fileno() for name, pair in pairs.items()}
        shares = [("host", "/", ",readonly=on")] + ([("output", output, "")] if output else [])
        arguments = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cpus),
                     "-m", str(memory), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                     "-nic", "none", "-kernel", str(image.kernel), "-initrd", f"/proc/self/fd/{initial}",
                     "-append", KERNEL_ARGUMENTS,
                     "-serial", "chardev:console", "-device", "virtio-serial"]
        arguments += [a for name, fd in theirs.items() for a in ("-chardev", f"socket,id={name},fd={fd}")]
        arguments += [a for number, name in enumerate(self.PORTS[1:], 1)
                      for a in ("-device", f"virtserialport,chardev={name},nr={number},name={name}")]
        arguments += [a for tag, path, more in shares for a in
                      ("-virtfs", f"local,path={path.replace(',', ',,')},mount_tag={tag},security_model=none,"
                                  f"multidevs=remap{more}")]
        parent = os.getpid()

        def die_with_parent():
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        self.qemu = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, pass_fds=(initial, *theirs.values()),
                                     preexec_fn=die_with_parent)
        self.ports["qemu"] = self.qemu.stdout
        os.close(initial)
        for _, their in pairs.values():
            their.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.qemu.kill()
        self.qemu.wait()
        for port in self.ports.values():
            port.close()

    def run(self, command, timeout):
        """Boots, runs the command for at most timeout seconds and returns its exit code."""
        # The loop below checks the deadline, except while it is blocked on writing output.
        signal.signal(signal.SIGALRM, raise_stuck)
        signal.alarm(BOOT_SECONDS + timeout + 10)
        parent, deadline = os.getppid(), time.monotonic() + BOOT_SECONDS
        script = command_script(command, self.devices)
        first = b"%d %d %s\n" % (self.devices, len(script), os.fsencode(self.output or ""))
        with selectors.DefaultSelector() as selector:
            with contextlib.suppress(ConnectionError):  # QEMU has died: its ports say so below
                self.ports["control"].sendall(first + script)
            for name, port in self.ports.items():
                selector.register(port, selectors.EVENT_READ, name)
            while self.status is None:
                started = self.started
                for key, _ in selector.select(timeout=0.2):
                    self.take(selector, key)
                if self.started != started:
                    deadline = self.started + timeout
                if os.getppid() != parent:
                    raise Broken("the process that started this one is gone")
                if self.status is None and time.monotonic() > deadline:
                    self.give_up(timeout)
                if self.status is None and not selector.get_map():
                    raise Broken("QEMU ended before the command did" + self.last_words())
        return self.status

    def give_up(self, timeout):
        if self.started is None:
            raise Broken(f"the machine did not boot within {BOOT_SECONDS} s" + self.last_words())
        raise DeadlinePassed(f"the command did not end within {timeout} s")

    def take(self, selector, key):
        """Reads the available bytes of a port."""
        try:
            data = os.read(key.fd, 1 << 16)
        except ConnectionResetError:  # it has ended with something unread
            data = b""
        if not data:
            selector.unregister(key.fileobj)
        elif key.data in ("output", "errors"):
            while data:
                data = data[os.write(1 if key.data == "output" else 2, data):]
        elif key.data == "control":
            self.control += data
            *lines, self.control = self.control.split(b"\n")
            for line in lines:
                if line == b"started":
                    self.started = time.monotonic()
                elif line.startswith(b"exit "):
                    self.status = int(line[5:])
        else:
            self.console = (self.console + data)[-CONSOLE_KEPT:]

    def last_words(self):
        text = self.console.decode(errors="replace").replace("\r", "").strip()
        return f"; its console:\n{text}" if text else ""
