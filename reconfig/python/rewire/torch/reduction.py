"""The reduction of gradients over the members of a world that may change between two updates.

As in DistributedDataParallel, gradients are reduced in buckets while backward runs, and are the mean over the
global batch when backward returns. The world changes in place: nothing is made again. Owned by the training thread;
hooks run on the threads of autograd, one backward pass at a time.
"""
import contextlib
import functools
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set

import torch

from .process import process
from .reduction_count import ReductionCount
from .tensors import StateError

__all__ = ["BUCKET_BYTES", "Reduction"]

BUCKET_BYTES = 25 << 20
_FIXED_POINT = 2.0**36  # exact=True: gradients are sums of integers of this scale


class _Bucket:
    """Gradients that are reduced together. Their sum is in one tensor in the device's memory."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], exact: bool) -> None:
        self.parameters = list(parameters)
        self.exact = exact
        first = self.parameters[0]
        elements = sum(p.numel() for p in self.parameters)
        # The last element of an exact bucket counts backward passes.
        dtype = torch.int64 if exact else first.dtype
        self.sum = process().empty(elements + (1 if exact else 0), dtype)
        self.sum.zero_()
        self.ready = 0
        # Exact: the gradients that the step's earlier reductions have given. Backward adds to no others.
        self.reduced: Dict[torch.nn.Parameter, torch.Tensor] = {}

    def views(self) -> Iterator[Any]:
        at = 0
        for parameter in self.parameters:
            yield parameter, self.sum[at: at + parameter.numel()].view_as(parameter)
            at += parameter.numel()

    def add_exactly(self) -> None:
        """Adds the gradients of one backward pass. The sum does not depend on the order of passes."""
        for parameter, view in self.views():
            if parameter.grad is not None:
                view += (parameter.grad.double() * _FIXED_POINT).round().to(torch.int64)
                parameter.grad = None
        self.sum[-1] += 1

    def fill(self, weight: float) -> None:
        for parameter, view in self.views():
            if parameter.grad is None:
                view.zero_()
            elif parameter.grad.data_ptr() == view.data_ptr():
                view.mul_(weight)
            else:
                torch.mul(parameter.grad, weight, out=view)

    def finish(self) -> None:
        """Makes the sums the gradients."""
        if not self.exact:
            for parameter, view in self.views():
                parameter.grad = view
            return
        passes = max(int(self.sum[-1]), 1)
        for parameter, view in self.views():
            gradient = (view.double() / (_FIXED_POINT * passes)).to(parameter.dtype)
            before = self.reduced.pop(parameter, None)
            parameter.grad = gradient if before is None else before + gradient
        self.sum.zero_()


class Reduction:
    """Hooks on a model's parameters. bucket_bytes: of the gradients that are reduced together.

    exact: each reduction gives the mean over the backward passes since the one before, on all members, and is added in
    fixed point. The sum then has the same bits for any division of the passes. A script with a pass for each sample,
    for example, ends with the same bits after any changes of its world (no_sync() around all passes but the last).
    """

    def __init__(self, model: torch.nn.Module, bucket_bytes: int = BUCKET_BYTES, exact: bool = False) -> None:
        for name, module in model.named_modules():
            if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse \
                    and module.weight.requires_grad:
                raise StateError(f"{name or 'model'}: is an {type(module).__name__} with sparse=True: Job reduces "
                                 "dense gradients: must be sparse=False (or reduce=False)")
        self._model = model
        self._parameters = [(name, parameter, parameter.requires_grad) for name, parameter in model.named_parameters()]
        self._exact = exact
        self._sync = True
        self._callback_queued = False
        self._weight: Optional[float] = None  # of this member's mean in that of the global batch; None: equal parts
        self._count = ReductionCount()
        self._buckets = self._make_buckets(bucket_bytes)
        self._next = 0  # the first bucket whose reduction has not begun
        self._added: Set[torch.nn.Parameter] = set()  # exact: that this backward pass has added to
        self._hooked: List[Any] = []  # keeps the nodes that accumulate the gradients
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
                node.register_hook(self._hook_of(bucket))
                self._hooked.append(node)
                if exact:
                    parameter.register_hook(functools.partial(self._set_apart, bucket, parameter))
        if not process().member.world.joining:
            self._make_equal()

    def _make_buckets(self, bucket_bytes: int) -> List[_Bucket]:
        buckets: List[_Bucket] = []
        group: List[torch.nn.Parameter] = []
        size = 0  # of the group, in bytes
        # Backward makes gradients in about the opposite order.
        for parameter in reversed([p for p in self._model.parameters() if p.requires_grad]):
            if group and (group[0].dtype != parameter.dtype or size >= bucket_bytes):
                buckets.append(_Bucket(group, self._exact))
                group, size = [], 0
            group.append(parameter)
            size += parameter.numel() * parameter.element_size()
        if group:
            buckets.append(_Bucket(group, self._exact))
        return buckets

    def _make_equal(self) -> None:
        """Gives the parameters and buffers the values of slot 0."""
        here = process()
        with torch.no_grad():
            for tensor in [*self._model.parameters(), *self._model.buffers()]:
                if tensor.numel() == 0:
                    continue
                copy = here.empty(tensor.numel(), tensor.dtype if tensor.dtype != torch.bool else torch.uint8)
                copy.copy_(tensor.reshape(-1))
                here.broadcast(copy, 0)
                here.wait()
                tensor.copy_(copy.view_as(tensor))

    def begin_batch(self, weight: float) -> None:
        """Call where a batch begins. weight: of this member's share in the global batch."""
        self._weight = weight
        self._count.begin_batch(abs(weight * process().member.world.slots - 1) < 1e-9)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate their gradients without a reduction."""
        self._sync = False
        try:
            yield
        finally:
            self._sync = True

    def _set_apart(self, bucket: _Bucket, parameter: torch.nn.Parameter, _: torch.Tensor) -> None:
        """Runs before a backward pass adds to a gradient: what is reduced already must not be reduced again."""
        if parameter.grad is not None and parameter not in self._added:
            bucket.reduced[parameter] = parameter.grad
            parameter.grad = None
        self._added.add(parameter)

    def _hook_of(self, bucket: _Bucket) -> Any:
        def hook(*_: Any) -> None:
            if not self._callback_queued:
                self._callback_queued = True
                # pylint: disable=protected-access; DistributedDataParallel ends its backward in the same way
                torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
            bucket.ready += 1
            if self._sync and not self._exact:
                self._begin_ready()

        return hook

    def _begin_ready(self) -> None:
        """Begins the reductions in the order of buckets, which is the same on all members."""
        while self._next < len(self._buckets):
            bucket = self._buckets[self._next]
            if bucket.ready < len(bucket.parameters):
                return
            self._begin(bucket)

    def _begin(self, bucket: _Bucket) -> None:
        if self._next == 0:
            self._count.add()
        self._next += 1
        with torch.no_grad():
            if not self._exact:
                bucket.fill(self._weight if self._weight is not None else 1.0 / process().member.world.slots)
        process().all_reduce(bucket.sum)

    def _end_backward(self) -> None:
        """Runs when the backward pass ends."""
        self._callback_queued = False
        self._added.clear()
        with torch.no_grad():
            if self._exact:
                for bucket in self._buckets:
                    bucket.add_exactly()
            if self._sync:
                while self._next < len(self._buckets):
                    self._begin(self._buckets[self._next])
                self._finish()
        for bucket in self._buckets:
            bucket.ready = 0

    def _finish(self) -> None:
        self._next = 0
        process().wait()
        # After a loss the script may still use gradients before its step, which then recovers.
        for bucket in self._buckets:
            bucket.finish()

    def check(self) -> None:
        """Raises RuntimeError where a backward pass has ended by an exception: its gradients are not reduced. Raises
        StateError where the hooks are not those of the trained parameters."""
        if self._callback_queued or self._next != 0:
            raise RuntimeError("step(): a backward pass has ended by an exception before its gradients were reduced")
        self._count.end_step()
        for name, parameter, trained in self._parameters:
            if parameter.requires_grad is not trained:
                raise StateError(f"{name}: {'is frozen now, and was not' if trained else 'was frozen'} when Job was "
                                 "made: requires_grad must not change during training")

    def check_new(self) -> None:
        """Raises StateError for a parameter without a hook, in the first step. Later ones are not registered."""
        known = {parameter for _, parameter, _ in self._parameters}
        for name, parameter in self._model.named_parameters():
            if parameter not in known:
                raise StateError(f"{name}: is a parameter that the model did not have when Job was made: its gradient "
                                 "is not reduced (make Job after it)")

    def drop(self) -> None:
        """Forgets the gradients of a step that is repeated, or was not the script's."""
        self._next, self._callback_queued = 0, False
        self._added.clear()
        self._count.drop()
        for bucket in self._buckets:
            bucket.ready = 0
            bucket.sum.zero_()
            bucket.reduced.clear()
            for parameter in bucket.parameters:
                parameter.grad = None
