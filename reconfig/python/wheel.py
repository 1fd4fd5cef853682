#!/usr/bin/env python3
"""wheel.py BUILD OUT: makes a wheel of the package `rewire` that carries the programs and libraries of BUILD.

It is for machines with the same architecture and the same or a newer C library. Needs setuptools and wheel.

A wheel has no links, and a process must not load two copies of a library. So each library is in the wheel once, by the
name that programs open, and the drop-in libnccl.so.2 is not.
"""
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def copy_libraries(source: pathlib.Path, target: pathlib.Path) -> None:
    for file in source.rglob("*.so*"):
        if file.is_symlink():
            continue
        links = [link.name for link in file.parent.iterdir() if link.is_symlink() and link.resolve() == file.resolve()]
        opened = [name for name in links if name == "librewire-preload.so"]
        opened = opened or [name for name in links if re.search(r"\.so\.\d", name)] or [file.name]
        place = target / file.relative_to(source).with_name(opened[0])
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory(prefix="rewire-wheel-") as name:
        folder = pathlib.Path(name)
        prefix, package = folder / "prefix", folder / "source" / "rewire"
        subprocess.run(["cmake", "--install", str(build), "--prefix", str(prefix), "--strip"], check=True,
                       stdout=subprocess.DEVNULL)
        # The build chose the folders below the prefix. The wheel keeps them, because the programs expect them.
        python = next(prefix.rglob("__init__.py")).parent
        libraries = next(prefix.rglob("librewire-preload.so")).parents[1].relative_to(prefix)
        shutil.copytree(python, package)
        shutil.copytree(prefix / "bin", package / "bin")
        copy_libraries(prefix / libraries, package / libraries)
        shutil.copy(HERE / "pyproject.toml", package.parent)
        program = f"from setuptools import setup; setup(package_data={{'rewire': ['bin/*', '{libraries}/**']}})"
        subprocess.run([sys.executable, "-c", program, "-q", "bdist_wheel", "--plat-name", f"linux_{platform.machine()}",
                        "--dist-dir", str(out)], cwd=package.parent, check=True)
    print(*sorted(out.glob("rewire-*.whl")))


if __name__ == "__main__":
    main()
