"""Loads librewire-moe.so, calls its functions and raises their errors."""
import ctypes
import pathlib

_UNAVAILABLE = 3


class RewireError(RuntimeError):
    """The error of a failed call of the library. `lost`: another process is lost."""

    def __init__(self, result, text):
        super().__init__(text)
        self.result = result
        self.lost = result == _UNAVAILABLE


class Library:
    def __init__(self, path=None):
        if path is None:  # <prefix>/share/rewire/python/rewire/library.py
            path = pathlib.Path(__file__).resolve().parents[4] / "lib/rewire/librewire-moe.so"
        self._library = ctypes.CDLL(str(path))
        self._library.rewireMoeLastError.restype = ctypes.c_char_p

    def call(self, function, *arguments):
        result = getattr(self._library, function)(*arguments)
        if result != 0:
            raise RewireError(result, self._library.rewireMoeLastError().decode(errors="replace"))


def set_options(name, struct, options):
    """Sets members of the struct `name`. An unknown member is a TypeError."""
    known = {field[0] for field in struct._fields_}
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"{option} is not an option of {name}")
        setattr(struct, option, value)
