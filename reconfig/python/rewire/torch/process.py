"""This process in the job: its member, its communicator, and how PyTorch's tensors reach NCCL.

Owned by the training thread.
"""
import atexit
import os
import sys
from typing import Any, Callable, List, Optional

import torch

from ..nccl import Communicator, NcclError, Operation, Type
from ..world import Member
from .place import Place

__all__ = ["TYPES", "Process", "process"]

_COMMUNICATOR = "rewire.torch"
TYPES = {
    torch.int8: Type.INT8, torch.uint8: Type.UINT8, torch.int32: Type.INT32, torch.int64: Type.INT64,
    torch.float16: Type.FLOAT16, torch.float32: Type.FLOAT32, torch.float64: Type.FLOAT64,
    torch.bfloat16: Type.BFLOAT16,
}


class Process:
    def __init__(self) -> None:
        self.member = Member()
        # Without an agent a script of one process trains as without Rewire.
        self._alone = not os.environ.get("REWIRE_SOCKET") or os.environ.get("REWIRE_DISABLE", "0") != "0"
        if self._alone and self.member.world.slots > 1:
            raise RuntimeError(f"rewire.torch: WORLD_SIZE={self.member.world.slots} and there is no agent "
                               "(REWIRE_SOCKET is not set, or REWIRE_DISABLE is): start the script by `rewire run`")
        self._communicator: Optional[Communicator] = None
        self._error: Optional[NcclError] = None
        self._side: Any = None  # a torch.cuda.Stream
        rank = int(os.environ.get("LOCAL_RANK", "0"))
        if torch.cuda.is_available():
            torch.cuda.set_device(rank % torch.cuda.device_count())
        self._place = Place(None) if self._alone else Place.of(rank)
        self.trains = False  # a Job has registered its state
        self.before_end: List[Callable[[], object]] = []  # called where the program ends well
        self._raised = False
        self._pid = os.getpid()
        hook = sys.excepthook

        def note(*error: Any) -> None:
            self._raised = True
            hook(*error)

        sys.excepthook = note
        atexit.register(self._end)

    def _end(self) -> None:
        """A program that ends by an exception does not detach, so the others know that it is lost. A forked child
        that ends is not the member."""
        if self._raised or os.getpid() != self._pid:
            return
        try:
            for call in self.before_end:
                call()
            if self._communicator is not None:
                self._communicator.destroy()
        finally:
            self.member.detach()

    def check_devices(self, model: torch.nn.Module) -> None:
        """Raises TypeError for a trained parameter that is not on this process's device."""
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and not self._place.has(parameter):
                raise TypeError(f"{name}: is on {parameter.device}, and this process trains on {self._place}: "
                                "model.to(device) must come before")

    def drain(self) -> None:
        """Waits for all work on the device. Memory that another thread gets from PyTorch has no user then."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns a flat tensor in the device's memory. Any thread may call this."""
        return self._place.empty((elements,), dtype)

    def _stream(self) -> int:
        """Returns the stream of NCCL's work, which begins after the work so far on the current stream."""
        if self._place.driver is not None:
            return self._place.driver.stream
        if self._side is None:
            self._side = torch.cuda.Stream()
        self._side.wait_stream(torch.cuda.current_stream())
        return int(self._side.cuda_stream)

    def synchronize(self) -> None:
        """Waits for PyTorch's work on the device, such as an update's."""
        if self._place.driver is None and torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()

    def connect(self) -> None:
        """Makes the communicator of all members."""
        if not self._alone:
            self.communicator  # pylint: disable=pointless-statement

    @property
    def communicator(self) -> Communicator:
        """The communicator of all members, made at the first use. A joiner's first use must come after it has
        registered its state."""
        if self._communicator is None:
            world = self.member.world
            self._communicator = Communicator(self.member.unique_id(_COMMUNICATOR), world.slots, world.slot)
        return self._communicator

    # A member can be lost while any of these works. They keep the error, do nothing from then on, and leave the
    # values as they are: the program reaches its next step, which recovers.

    def all_reduce(self, tensor: torch.Tensor, operation: Operation = Operation.SUM) -> None:
        """Begins the reduction in place of a contiguous tensor in the device's memory."""
        self._begin(lambda comm, stream: comm.all_reduce(
            tensor.data_ptr(), tensor.numel(), _type_of(tensor), stream, operation))

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Begins the broadcast of a contiguous tensor in the device's memory."""
        size = tensor.numel() * tensor.element_size()
        self._begin(lambda comm, stream: comm.broadcast(tensor.data_ptr(), size, Type.UINT8, root, stream))

    def all_gather(self, mine: torch.Tensor, all_of_them: torch.Tensor) -> None:
        """As broadcast. all_of_them: as many elements for each slot as `mine` has."""
        size = mine.numel() * mine.element_size()
        if self._alone:
            all_of_them.copy_(mine)
        self._begin(lambda comm, stream: comm.all_gather(
            mine.data_ptr(), all_of_them.data_ptr(), size, Type.UINT8, stream))

    def _begin(self, operation: Callable[[Communicator, int], None]) -> None:
        if self._alone or self._error is not None:
            return
        try:
            operation(self.communicator, self._stream())
        except NcclError as error:
            self._error = error

    def wait(self) -> bool:
        """Waits for what was begun. Returns false where a member was lost: the values are then wrong."""
        if self._alone:
            return True
        if self._place.driver is not None:
            self._place.driver.synchronize()
        elif self._side is not None:
            self._side.synchronize()
        if self._error is None:
            try:
                self.communicator.check()
            except NcclError as error:
                self._error = error
        return self._error is None

    def wait_or_raise(self) -> None:
        """As wait(). Raises NcclError where a member was lost."""
        if not self.wait():
            error = self.take_error()
            assert error is not None
            raise error

    def broadcast_bytes(self, content: bytes, root: int) -> bytes:
        """Returns the root's content. Raises NcclError where a member was lost."""
        header = self.empty(1, torch.int64)
        header[0] = len(content)
        self.broadcast(header, root)
        self.wait_or_raise()
        packed = self.empty(int(header[0]), torch.uint8)
        if len(content) == packed.numel():
            packed.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self.broadcast(packed, root)
        self.wait_or_raise()
        return bytes(packed.cpu().numpy())

    def keep_error(self, error: NcclError) -> None:
        self._error = error

    def take_error(self) -> Optional[NcclError]:
        """Returns the error since the last call, if any."""
        error, self._error = self._error, None
        return error


def _type_of(tensor: torch.Tensor) -> Type:
    if tensor.dtype not in TYPES:
        raise TypeError(f"{tensor.dtype}: NCCL has no such type")
    return TYPES[tensor.dtype]


_process: Optional[Process] = None


def process() -> Process:
    """Returns this process's Process; the first call attaches."""
    global _process  # pylint: disable=global-statement
    if _process is None:
        _process = Process()
    return _process
