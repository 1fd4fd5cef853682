"""Finds Rewire's libraries, calls their functions and raises their errors."""
import ctypes
import os
import pathlib
from typing import Any, Dict, Optional

_UNAVAILABLE = 3
_VERSION = "0.1"


class RewireError(RuntimeError):
    """The error of a failed call of a library. `lost`: another process is lost, or there is no agent."""

    def __init__(self, result: int, text: str) -> None:
        super().__init__(text)
        self.result = result
        self.lost = result == _UNAVAILABLE


def _open(name: str) -> ctypes.CDLL:
    """Opens the copy that the process has loaded, or the loader's (`rewire run` names the folder of the
    preloaded library), or that of this package."""
    soname = f"{name}.so.{_VERSION}"
    try:
        return ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        pass
    try:
        return ctypes.CDLL(soname)
    except OSError as error:
        reason = str(error)
    here = pathlib.Path(__file__).resolve()
    # A wheel has its libraries in rewire/; an installation has <prefix>/share/rewire/python/rewire/library.py.
    prefixes = [here.parent, *list(here.parents)[4:5]]
    for prefix in prefixes:
        # The folder of libraries is lib, or another one that the build chose, such as lib64.
        for pattern in ("lib/rewire", "lib*/rewire", "lib/*/rewire"):
            for library in prefix.glob(f"{pattern}/{soname}"):
                return ctypes.CDLL(str(library))
    raise OSError(
        f"{reason}; and not below {' or '.join(f'{prefix}/lib' for prefix in prefixes)}"
        " (start the program by `rewire run`, or give a path)"
    )


class Library:
    """One library. name: without the suffix. last_error: its function that returns the reason of a failure."""

    def __init__(self, name: str, last_error: str, path: Optional[str] = None) -> None:
        self._library = _open(name) if path is None else ctypes.CDLL(str(path))
        self._last_error = getattr(self._library, last_error)
        self._last_error.restype = ctypes.c_char_p

    def result(self, function: str, *arguments: Any) -> int:
        """Returns the result of a call, for a caller that has a better error."""
        return int(getattr(self._library, function)(*arguments))

    def error(self, result: int) -> RewireError:
        """Returns the error of this thread's last call, which returned `result`."""
        return RewireError(result, self._last_error().decode(errors="replace"))

    def call(self, function: str, *arguments: Any) -> None:
        result = self.result(function, *arguments)
        if result != 0:
            raise self.error(result)


def moe_library(path: Optional[str] = None) -> Library:
    return Library("librewire-moe", "rewireMoeLastError", path)


def set_options(name: str, struct: ctypes.Structure, options: Dict[str, Any]) -> None:
    """Sets members of the struct `name`. An unknown member is a TypeError."""
    known = {field[0] for field in struct._fields_}
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"{option} is not an option of {name}")
        setattr(struct, option, value)
