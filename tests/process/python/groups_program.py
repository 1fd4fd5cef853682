#!/usr/bin/env python3
"""groups_program.py STOP: a program with communicators over all slots, and over its tensor- and data-parallel group.

Every step checks, by sums over the slots' numbers, which slots each communicator has. When the file "again" is beside
STOP, all members make the communicator of the tensor-parallel group again in the step whose number it has.
"""
import ctypes
import os
import pathlib
import sys
import time

from rewire.device import Device
from rewire.layouts import layout_group
from rewire.nccl import Communicator, NcclError, Type
from rewire.world import Kind, Member

AXES = {"tensor": "tp", "samples": "dp"}  # by the name of the communicator


def layout_of(slots):
    tensor = 2 if slots > 1 else 1
    return {"parallel": {"tensor": tensor, "data": slots // tensor, "spare": slots % tensor}, "tensors": []}


class Program:
    def __init__(self, member, stop):
        self.stop, self.member, self.device = stop, member, Device(int(os.environ["LOCAL_RANK"]))
        self.step = (ctypes.c_uint64 * 1)(0)
        self.total = self.device.allocate(8)
        self.world = member.world
        self.buffers = {}
        member.set_parallel(layout=layout_of, on_world=self.on_world, allocate=self.allocate,
                            adopt=lambda *part: None, discard=lambda name, address: self.buffers.pop(address))
        member.register("step", self.step)
        self.everyone = Communicator(member.unique_id("all"), self.world.slots, self.world.slot)
        self.groups = {name: Communicator(*member.group_id(name, axes)) for name, axes in AXES.items()}
        # A joiner waits here for its communicators, before its first update.
        device = ctypes.c_int(-1)
        assert ctypes.CDLL(None).ncclCommCuDevice(ctypes.c_void_p(self.groups["tensor"].address),
                                                  ctypes.byref(device)) == 0

    def allocate(self, _, size):
        buffer = ctypes.create_string_buffer(size)
        self.buffers[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)

    def on_world(self, world):
        self.world = world

    def sum_over(self, communicator, number):
        ctypes.c_uint64.from_address(self.total).value = number
        communicator.all_reduce(self.total, 1, Type.UINT64, self.device.stream)
        self.device.synchronize()
        communicator.check()
        return ctypes.c_uint64.from_address(self.total).value

    def check(self):
        slots = range(self.world.slots)
        total = self.sum_over(self.everyone, 1 << 8 * self.world.slot)
        assert total == sum(1 << 8 * slot for slot in slots), f"all: {total:x} in {self.world}"
        for name, axes in AXES.items():
            slots = layout_group(layout_of(self.world.slots), axes, self.world.slot).slots
            total = self.sum_over(self.groups[name], 1 << 8 * self.world.slot)
            assert total == sum(1 << 8 * slot for slot in slots), f"{name}: {total:x}, not {slots} in {self.world}"

    def make_again(self):
        again = self.stop.parent / "again"
        if again.exists() and int(again.read_text()) == self.step[0]:
            self.groups["tensor"].destroy()
            self.groups["tensor"] = Communicator(*self.member.group_id("tensor", AXES["tensor"]))
            print(f"step {self.step[0]}: made again", flush=True)

    def apply(self):
        self.step[0] += 1

    def run(self):
        joining = self.member.world.joining
        while True:
            try:
                if not joining:
                    time.sleep(0.02)
                    self.check()
                    self.make_again()
                joining = False
                outcome = self.member.update(self.apply)
            except NcclError as error:
                print(f"step {self.step[0]}: {error}", flush=True)
                outcome = self.member.recover()
            if outcome.kind is not Kind.CONTINUE:
                print(f"step {self.step[0]}: {outcome.kind.name}, slot {self.world.slot} of {self.world.slots}",
                      flush=True)
            if outcome.kind is Kind.LEAVE:
                return
            # All members see the file in the same step, or in neighbouring ones; the later ones end there.
            if self.stop.exists() and self.step[0] >= int(self.stop.read_text()):
                print(f"finished at step {self.step[0]}", flush=True)
                return


def main():
    with Member() as member:
        try:
            member.group_id("early", "dp")
            raise AssertionError("a group before set_parallel() was given an id")
        except RuntimeError as error:
            assert "after rewireSetParallel" in str(error), error
        Program(member, pathlib.Path(sys.argv[1])).run()


if __name__ == "__main__":
    main()
