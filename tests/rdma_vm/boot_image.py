"""The boot image of the virtual machine: a kernel, and an initial RAM file system.

The file system has modules and scripts. Used by rdma_vm alone. The kernel and the modules are
cached; everything else is put together for each run, in memory.
"""

import contextlib
import fcntl
import glob
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import tempfile
import time

GUEST = pathlib.Path(__file__).resolve().parent / "guest"

# rdma_rxe does not declare its dependency on crc32_generic.
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "veth", "bridge", "sch_netem",
           "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm")
APPLETS = ("sh", "mount", "insmod", "mkdir", "ln", "cp", "cat", "head", "echo", "usleep", "sleep", "mkfifo",
           "chroot", "poweroff", "unshare")
# A program or file, and the Debian package that provides it.
NEEDED = (("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static"), ("modprobe", "kmod"),
          ("ip", "iproute2"), ("rdma", "iproute2"), ("ibv_devinfo", "ibverbs-utils"),
          ("/etc/libibverbs.d/rxe.driver", "ibverbs-providers"), ("ib_write_bw", "perftest"))
DISK_NEEDED = 700 << 20  # for the package and what is in it; 72 MiB stay


class CannotRun(Exception):
    """This machine lacks a requirement, which the text names."""


def find_needed():
    if os.uname().machine != "x86_64":
        raise CannotRun(f"the host's programs run in the guest, which is x86_64; this is {os.uname().machine}")
    missing = [package for name, package in NEEDED if not (os.path.exists(name) if "/" in name else shutil.which(name))]
    if missing:
        raise CannotRun("missing Debian packages; run: sudo apt-get install -y --no-install-recommends "
                        + " ".join(dict.fromkeys(missing)))


def output_of(command, **more):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, **more).stdout
    except subprocess.TimeoutExpired as error:
        raise CannotRun(f"'{' '.join(command)}' did not end within 300 s") from error
    except FileNotFoundError as error:
        raise CannotRun(f"there is no {command[0]}") from error
    except subprocess.CalledProcessError as error:
        raise CannotRun(f"'{' '.join(command)}' failed: {error.stderr.strip()}") from error


class BootImage:
    """The kernel and its modules in a folder of the cache; prepare() fills it."""

    def __init__(self, cache):
        self.cache = pathlib.Path(cache)
        self.version = hashlib.sha256(" ".join(MODULES).encode()).hexdigest()[:8]
        self.folder = None
        self.look()

    def look(self):
        ready = sorted(self.cache.glob(f"linux-*-{self.version}"))
        self.folder = ready[-1] if ready else None

    @property
    def kernel(self):
        return self.folder / "vmlinux"

    def prepare(self, say):
        """Fills the cache if necessary. One process at a time."""
        find_needed()
        if self.folder:
            return
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotRun(f"no cache in {self.cache}: {error}") from error
        with locked(self.cache / "lock", 600):
            self.look()
            if self.folder:
                return
            with tempfile.TemporaryDirectory(prefix="new-", dir=self.cache) as work:
                root, release = installed_kernel() or downloaded_kernel(pathlib.Path(work), say)
                store(root, release, pathlib.Path(work) / "image")
                os.rename(pathlib.Path(work) / "image", self.cache / f"linux-{release}-{self.version}")
            self.look()

    def initial_files(self):
        """Returns the bytes of the initial file system in the kernel's format (cpio, newc)."""
        busybox = pathlib.Path(shutil.which("busybox")).read_bytes()
        if b"/ld-linux" in busybox[:4096]:
            raise CannotRun("busybox is not the static one; run: sudo apt-get install -y busybox-static")
        folders = ("bin", "dev", "proc", "sys", "host", "layer", "root", "guest", "modules")
        parts = [cpio_entry(name, stat.S_IFDIR | 0o755) for name in folders]
        parts.append(cpio_entry("bin/busybox", stat.S_IFREG | 0o755, busybox))
        parts += [cpio_entry(f"bin/{name}", stat.S_IFLNK | 0o777, b"busybox") for name in APPLETS]
        parts += [cpio_entry(f"modules/{path.name}", stat.S_IFREG | 0o644, path.read_bytes())
                  for path in sorted((self.folder / "modules").iterdir())]
        parts += [cpio_entry(f"guest/{path.name}", stat.S_IFREG | 0o755, path.read_bytes())
                  for path in sorted(GUEST.iterdir())]
        parts.append(cpio_entry("init", stat.S_IFLNK | 0o777, b"guest/init"))
        parts.append(cpio_entry("TRAILER!!!", 0))
        return b"".join(parts)


def cpio_entry(name, mode, data=b""):
    name = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


@contextlib.contextmanager
def locked(path, seconds):
    deadline = time.monotonic() + seconds
    with open(path, "w", encoding="ascii") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CannotRun(f"another process holds {path} for more than {seconds} s") from None
                time.sleep(0.2)
        yield


def installed_kernel(root="/"):
    """Returns (root, release) of an installed kernel with all required modules, or None."""
    for driver in sorted(glob.glob(f"{root}/lib/modules/*-amd64/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko")):
        release = pathlib.Path(driver).relative_to(f"{root}/lib/modules").parts[0]
        if os.access(f"{root}/boot/vmlinuz-{release}", os.R_OK):
            return pathlib.Path(root), release
    return None


def downloaded_kernel(work, say):
    """Returns (root, release) of Debian's kernel, unpacked below work; apt checks its signature."""
    free = shutil.disk_usage(work).free
    if free < DISK_NEEDED:
        raise CannotRun(f"{work.parent} has {free >> 20} MiB free; unpacking a kernel needs {DISK_NEEDED >> 20}")
    try:
        package = download(work, say)
    except CannotRun as error:
        # The package lists are missing, or older than the mirror's current package.
        if os.geteuid() != 0:
            raise CannotRun(f"no kernel ({error}); is there a network? Perhaps: sudo apt-get update") from error
        try:
            output_of(["apt-get", "update", "-qq"])
            package = download(work, say)
        except CannotRun as again:
            raise CannotRun(f"no kernel ({again}); is there a network?") from again
    root = work / "unpacked"
    output_of(["dpkg-deb", "-x", str(package), str(root)])
    package.unlink()
    release = next((root / "lib/modules").iterdir()).name
    output_of(["depmod", "-b", str(root), release])
    return root, release


def download(work, say):
    """Returns the package of the kernel that linux-image-amd64 depends on."""
    facts = output_of(["apt-cache", "show", "--no-all-versions", "linux-image-amd64"])
    found = re.search(r"^Depends:.*?(linux-image-\S+-amd64)", facts, re.MULTILINE)
    if not found:
        raise CannotRun("apt knows no linux-image-amd64; run: sudo apt-get update")
    say(f"fetching {found[1]} (once, about 70 MB)")
    output_of(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", found[1]], cwd=work)
    return next(work.glob("*.deb"))


def store(root, release, folder):
    """Copies the parts that we boot from the root of a Debian system."""
    (folder / "modules").mkdir(parents=True)
    order = []
    for module in MODULES:
        for line in output_of(["modprobe", "-d", str(root), "-S", release, "--show-depends", module]).splitlines():
            if line.startswith("insmod "):
                path = pathlib.Path(line.split()[1])
                if path.name not in order:
                    order.append(path.name)
                    shutil.copy(path, folder / "modules" / path.name)
    (folder / "modules" / "order").write_text("\n".join(order) + "\n", encoding="ascii")
    (folder / "vmlinux").write_bytes(unpacked_kernel((root / f"boot/vmlinuz-{release}").read_bytes()))


def unpacked_kernel(image):
    """Returns the kernel inside a bzImage: an emulated processor would take seconds to unpack it.

    The setup header is the kernel's x86 boot protocol, 2.08 or later.
    """
    setup_sectors = image[0x1f1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start:start + length]
    if not payload.startswith(b"\xfd7zXZ"):
        return image  # boots as well, more slowly
    return lzma.LZMADecompressor().decompress(payload)
