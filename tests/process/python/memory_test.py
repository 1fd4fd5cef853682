#!/usr/bin/env python3
"""memory_test.py: the memory of arrays (rewire.memory). Cases of a library that is not installed are skipped by name."""
import ctypes
import importlib.util
import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "reconfig" / "python"))
from rewire.memory import Memory, memory_of  # noqa: E402


def described(memory):
    return (memory.address, memory.elements, memory.element_bytes, memory.device)


def need(name):
    return unittest.skipIf(importlib.util.find_spec(name) is None, f"{name} is not installed")


class Interfaced:
    """An array of 2 x 3 floats at address 4096, on a GPU. changes: of the interface."""

    def __init__(self, **changes):
        self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, **changes}


class BufferTest(unittest.TestCase):
    def test_takes_a_memory_as_it_is(self):
        memory = Memory(4096, 3, 4)
        self.assertIs(memory_of(memory), memory)

    def test_takes_a_ctypes_array(self):
        array = (ctypes.c_uint64 * 3)()
        self.assertEqual(described(memory_of(array)), (ctypes.addressof(array), 3, 8, False))


class InterfaceTest(unittest.TestCase):
    def test_takes_an_array_on_a_gpu(self):
        array = Interfaced()
        self.assertEqual(described(memory_of(array)), (4096, 6, 4, True))
        self.assertIs(memory_of(array).owner, array)
        self.assertEqual(memory_of(array).bytes, 24)

    def test_takes_strides_of_c_order(self):
        self.assertEqual(described(memory_of(Interfaced(strides=(12, 4)))), (4096, 6, 4, True))
        self.assertEqual(described(memory_of(Interfaced(shape=(1, 3), strides=(999, 4)))), (4096, 3, 4, True))

    def test_refuses_arrays_that_cannot_be_moved(self):
        for change, error, text in (({"strides": (4, 8)}, ValueError, "not contiguous"),
                                    ({"data": (4096, True)}, ValueError, "read-only"),
                                    ({"typestr": "|O8"}, TypeError, "typestr=|O8: must be of numbers")):
            with self.subTest(change=change), self.assertRaisesRegex(error, text.replace("|", r"\|")):
                memory_of(Interfaced(**change))


@need("numpy")
class NumpyTest(unittest.TestCase):
    def setUp(self):
        import numpy  # pylint: disable=import-outside-toplevel
        self.numpy = numpy

    def test_takes_numbers_of_each_kind(self):
        for kind in ("float64", "int8", "bool", "complex64", "datetime64[ns]", "i4,f8"):
            array = self.numpy.zeros((3, 5), kind)
            self.assertEqual(described(memory_of(array)), (array.ctypes.data, 15, array.itemsize, False), kind)

    def test_refuses_arrays_that_cannot_be_moved(self):
        read_only = self.numpy.zeros(4)
        read_only.flags.writeable = False
        for array, error, text in ((read_only, ValueError, "read-only"),
                                   (self.numpy.zeros((4, 4))[:, ::2], ValueError, "not contiguous"),
                                   (self.numpy.zeros((4, 3)).T, ValueError, "not contiguous"),
                                   (self.numpy.zeros(2, object), TypeError, "must be of numbers"),
                                   (self.numpy.zeros(2, "U3"), TypeError, "must be of numbers")):
            with self.subTest(text=text), self.assertRaisesRegex(error, text):
                memory_of(array)


@need("torch")
class DlpackTest(unittest.TestCase):
    def setUp(self):
        import torch  # pylint: disable=import-outside-toplevel
        self.torch = torch

    def test_takes_a_tensor_in_host_memory(self):
        for dtype in (self.torch.float32, self.torch.bfloat16, self.torch.int64):
            tensor = self.torch.zeros(4, 6, dtype=dtype)[1:]
            self.assertEqual(described(memory_of(tensor)), (tensor.data_ptr(), 18, tensor.element_size(), False))

    def test_refuses_a_strided_tensor(self):
        for tensor in (self.torch.zeros(4, 6).t(), self.torch.zeros(8)[::2]):
            with self.assertRaisesRegex(ValueError, "not contiguous"):
                memory_of(tensor)

    def test_refuses_another_device(self):
        other = types.SimpleNamespace(__dlpack__=None, __dlpack_device__=lambda: (4, 0))  # kDLOpenCL
        with self.assertRaisesRegex(TypeError, "DLPack device 4: must be"):
            memory_of(other)


if __name__ == "__main__":
    unittest.main()
