#!/usr/bin/env python3
"""wheel.py BUILD OUT: makes a wheel of the package `rewire` that carries the programs and libraries of BUILD.

It is for machines with the same architecture and the same or a newer C library. Needs setuptools and wheel.
"""
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory(prefix="rewire-wheel-") as name:
        folder = pathlib.Path(name)
        prefix, package = folder / "prefix", folder / "source" / "rewire"
        subprocess.run(["cmake", "--install", str(build), "--prefix", str(prefix), "--strip"], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.copytree(prefix / "share" / "rewire" / "python" / "rewire", package)
        shutil.copytree(prefix / "bin", package / "bin")
        shutil.copytree(prefix / "lib", package / "lib", ignore=shutil.ignore_patterns("cmake", "pkgconfig"))
        shutil.copy(HERE / "pyproject.toml", package.parent)
        program = "from setuptools import setup; setup(package_data={'rewire': ['bin/*', 'lib/**']})"
        subprocess.run([sys.executable, "-c", program, "-q", "bdist_wheel", "--plat-name", f"linux_{platform.machine()}",
                        "--dist-dir", str(out)], cwd=package.parent, check=True)
    print(*sorted(out.glob("rewire-*.whl")))


if __name__ == "__main__":
    main()
