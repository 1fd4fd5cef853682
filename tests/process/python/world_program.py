#!/usr/bin/env python3
"""world_program.py STOP [replicated]: a cooperating program without an array library. Its state says which step it is of.

Every step reduces a number over all members, which keeps the members in the same step.
replicated: the whole state is constant and on every member, and the reduction is in the update. The member of slot 1
dies in an update, before the reduction, when the file "die" is beside STOP.
"""
import ctypes
import os
import pathlib
import signal
import sys
import time

from rewire.device import Device
from rewire.nccl import Communicator, NcclError, Type
from rewire.world import Change, Kind, Layout, Member, Memory, Unchanged, shard

ELEMENTS = 1000


class Program:
    def __init__(self, member, stop, replicated):
        self.stop, self.replicated = stop, replicated
        self.member, self.device = member, Device(int(os.environ["LOCAL_RANK"]))
        world = member.world
        self.slots, self.slot = world.slots, world.slot
        self.step = (ctypes.c_uint64 * 1)(0)
        self.reclaimed = False
        self.total = self.device.allocate(8)
        self.buffers = {}
        self.begin, self.end = (0, ELEMENTS) if replicated else shard(ELEMENTS, self.slots, self.slot)
        self.moments = self.allocate("moments", 8 * (self.end - self.begin))
        member.set_parallel(zero_stage=1, on_world=self.on_world, allocate=self.allocate, adopt=self.adopt,
                            discard=lambda name, address: self.buffers.pop(address))
        part = Memory(self.moments, self.end - self.begin, 8)
        member.register("step", self.step, Change.CONSTANT if replicated else Change.VOLATILE)
        member.register("moments", part, layout=Layout.REPLICATED if replicated else Layout.SHARDED, elements=ELEMENTS)
        self.communicator = Communicator(member.unique_id("all"), self.slots, self.slot)
        try:  # NCCL refuses the rank, and the job goes on
            Communicator(member.unique_id("all"), self.slots, self.slots)
            raise AssertionError("a rank beyond the last was taken")
        except NcclError:
            pass

    def allocate(self, _, size):
        buffer = ctypes.create_string_buffer(size)
        self.buffers[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)

    def adopt(self, name, address, begin, end):
        assert name == "moments"
        self.buffers.pop(self.moments)
        self.moments, self.begin, self.end = address, begin, end

    def on_world(self, world):
        self.slots, self.slot = world.slots, world.slot

    def part(self):
        return (ctypes.c_uint64 * (self.end - self.begin)).from_address(self.moments)

    def apply(self):
        if self.replicated:
            self.reduce_first()
        part = self.part()
        for i in range(self.begin, self.end):
            part[i - self.begin] += i
        self.step[0] += 1

    def reduce_first(self):
        die = self.stop.parent / "die"
        if self.slot == 1 and die.exists():
            die.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            self.reduce()
        except NcclError as error:
            raise Unchanged(str(error)) from error

    def reduce(self):
        ctypes.memset(self.total, 0, 8)
        ctypes.memset(self.total, 1, 1)
        self.communicator.all_reduce(self.total, 1, Type.UINT64, self.device.stream)
        self.device.synchronize()
        self.communicator.check()
        total = ctypes.c_uint64.from_address(self.total).value
        assert total == self.slots, f"{total} members of {self.slots} took part"

    def run(self):
        stop = self.stop
        joining = self.member.world.joining
        while True:
            try:
                if not joining:
                    time.sleep(0.02)
                    self.reduce()
                joining = False
                outcome = self.member.update(self.apply)
            except (NcclError, Unchanged) as error:
                print(f"step {self.step[0]}: {error}", flush=True)
                outcome = self.member.recover()
            if outcome.kind is not Kind.CONTINUE:
                print(f"step {self.step[0]}: {outcome.kind.name}, slot {self.slot} of {self.slots}", flush=True)
            if outcome.kind is Kind.LEAVE:
                return
            assert list(self.part()) == [i * self.step[0] for i in range(self.begin, self.end)]
            if (stop.parent / f"reclaim.{self.member.world.member}").exists() and not self.reclaimed:
                self.reclaimed = True
                self.member.reclaim(60)
            # All members see the file in the same step, or in neighbouring ones; the later ones end there.
            if stop.exists() and self.step[0] >= int(stop.read_text()):
                print(f"finished at step {self.step[0]}", flush=True)
                return


def main():
    with Member() as member:
        Program(member, pathlib.Path(sys.argv[1]), sys.argv[2:] == ["replicated"]).run()


if __name__ == "__main__":
    main()
