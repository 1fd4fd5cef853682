"""Expert-parallel layers whose experts are cut into chunks over all devices (rewire/fsep.py), with autograd.

    experts = rewire.torch.ShardedExperts(communicator.address, rank, 1, ranks, compute, layers=24, experts=64, slots=8,
                                          shapes=[w1.shape, w2.shape], dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(experts.parameters())   # of this rank's chunk of each expert
    experts.place(layer, slots)                           # before a step; a placement may change between steps
    with experts.step():
        x = experts.exchange(x, dispatch, dispatch_backward)
        x = experts(layer, x, rows_of_slots)              # for layer 0, 1, ...
        x = experts.exchange(x, combine, combine_backward)
        loss(x).backward()
    optimizer.step()

compute(x, *parts) is one expert's layer, in differentiable PyTorch and without random numbers: the backward pass
computes the forward again. Each layer has an exchange before and after its experts, also where no token moves. All
ranks make the same calls in the same order. Owned by one thread at a time: autograd's in a backward pass.
"""
import contextlib
import math
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import torch

from ..fsep import EMPTY, Fsep
from .place import Place

__all__ = ["ShardedExperts"]

_Exchanged = Callable[[torch.Tensor], torch.Tensor]


class ShardedExperts(torch.nn.Module):
    """comm: an ncclComm_t that no other object uses; must outlive this object. slots: experts of one layer that a
    device holds at a time. shapes: of one expert's tensors. prefetch: see rewireFsepOptions_t."""

    def __init__(self, comm: int, rank: int, nodes: int, devices_of_node: int, compute: Callable[..., torch.Tensor], *,
                 layers: int, experts: int, slots: int, shapes: Sequence[Sequence[int]],
                 dtype: torch.dtype = torch.float32, prefetch: int = 1) -> None:
        super().__init__()
        if dtype not in (torch.float32, torch.bfloat16):
            raise TypeError(f"dtype={dtype}: must be float32 or bfloat16: gradients are added in these")
        self.compute, self.experts, self.slots, self.rank = compute, experts, slots, rank
        self.ranks = nodes * devices_of_node
        self.shapes = [tuple(shape) for shape in shapes]
        self.elements = -(-sum(map(math.prod, self.shapes)) // self.ranks)  # of a chunk
        self._place = Place.of(rank)
        self.chunks = torch.nn.ParameterList(
            torch.nn.Parameter(self._place.empty((experts, self.elements), dtype).zero_()) for _ in range(layers))
        self._gradients = [self._place.empty((experts, self.elements), dtype).zero_() for _ in range(layers)]
        self._placed: List[List[int]] = [[] for _ in range(layers)]  # the experts of this rank's slots
        self._visits: List[Tuple[int, bool]] = []  # remaining visits of this step
        size = dtype.itemsize if hasattr(dtype, "itemsize") else torch.empty(0, dtype=dtype).element_size()
        self.fsep = Fsep(comm, rank, nodes, devices_of_node, [chunk.data_ptr() for chunk in self.chunks],
                         [gradient.data_ptr() for gradient in self._gradients], experts=experts, slots=slots,
                         prefetch=prefetch, elements=self.elements, weight_bytes=size, gradient_bytes=size)
        self._addresses = [chunk.data_ptr() for chunk in self.chunks]

    def load(self, layer: int, expert: int, parts: Sequence[torch.Tensor]) -> None:
        """Copies this rank's chunk from an expert's tensors. Call between steps."""
        if [tuple(part.shape) for part in parts] != self.shapes:
            raise ValueError(f"parts: shapes={[tuple(part.shape) for part in parts]}: must be {self.shapes}")
        with torch.no_grad():
            whole = torch.cat([part.reshape(-1) for part in parts])
            own = whole[self.rank * self.elements: (self.rank + 1) * self.elements]
            self.chunks[layer][expert, : len(own)].copy_(own)

    def place(self, layer: int, slots: Sequence[int]) -> None:
        """slots: the experts of all devices' slots, device after device; rewire.fsep.EMPTY for none."""
        self.fsep.place(layer, slots)
        self._placed[layer] = list(slots[self.rank * self.slots: (self.rank + 1) * self.slots])

    @contextlib.contextmanager
    def step(self, visits: Optional[Sequence[Tuple[int, bool]]] = None) -> Iterator[None]:
        """A forward pass through all layers and its backward pass, or the given visits: pairs of a layer and whether it
        is a backward pass. Afterwards the gradients of the chunks are those of all ranks' rows."""
        for chunk, address, gradient in zip(self.chunks, self._addresses, self._gradients):
            if chunk.data_ptr() != address:
                raise RuntimeError("chunks: a parameter is no longer in its memory (`.data =`, `.to()`)")
            if chunk.grad is None:
                gradient.zero_()
        if visits is None:
            layers = range(len(self.chunks))
            visits = [(layer, False) for layer in layers] + [(layer, True) for layer in reversed(layers)]
        self._visits = list(visits)
        self.fsep.begin(visits, self._place.stream())
        yield
        self.fsep.finish(self._place.stream())
        self._place.wait_for_cpu()
        for chunk, gradient in zip(self.chunks, self._gradients):
            chunk.grad = gradient

    def exchange(self, x: torch.Tensor, there: _Exchanged, back: _Exchanged) -> torch.Tensor:
        """Returns there(x), an all-to-all of tokens. back: of its gradients. Both enqueue on the current stream."""
        return _Exchange.apply(self, there, back, x, self.chunks[0])

    def forward(self, layer: int, x: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        """x: rows sorted by this rank's slots, rows[s] of slot s. Returns the rows of compute()."""
        if len(rows) != self.slots or sum(rows) != len(x):
            raise ValueError(f"rows={list(rows)}: must be of {self.slots} slots, and {len(x)} together")
        if any(count and expert == EMPTY for count, expert in zip(rows, self._placed[layer])):
            raise ValueError(f"rows={list(rows)}: a slot without an expert has rows")
        return _Experts.apply(self, layer, list(rows), x, self.chunks[layer])

    def close(self) -> None:
        """Waits for the work that was begun. All ranks call it before they destroy the communicator."""
        self.fsep.close()

    # ---- visits ----------------------------------------------------------------------------------------------------

    def exchanged(self, call: _Exchanged, x: torch.Tensor) -> torch.Tensor:
        self.fsep.begin_tokens(self._place.stream())
        result = call(x)
        self.fsep.end_tokens(self._place.stream())
        return result

    def begin_experts(self, layer: int, backward: bool) -> Tuple[List[List[torch.Tensor]], List[List[torch.Tensor]]]:
        """Returns the parts of each slot's expert and those of its gradient, which are zero, in a backward visit."""
        if self._visits[:1] != [(layer, backward)]:
            raise RuntimeError(f"layer {layer}, {'backward' if backward else 'forward'}: the step's next visits are "
                               f"{self._visits[:3]} (layer, whether backward)")
        del self._visits[0]
        weights, gradients = self.fsep.begin_experts(self._place.stream())
        self._place.wait_for_cpu()
        assert weights is not None
        dtype = self.chunks[layer].dtype
        slots = (self.slots, self.ranks * self.elements)
        of_gradients = [] if gradients is None else [
            self._parts(slot) for slot in self._place.view(gradients, slots, dtype).zero_()]
        return [self._parts(slot) for slot in self._place.view(weights, slots, dtype)], of_gradients

    def _parts(self, slot: torch.Tensor) -> List[torch.Tensor]:
        parts, first = [], 0
        for shape in self.shapes:
            parts.append(slot[first: first + math.prod(shape)].view(shape))
            first += math.prod(shape)
        return parts

    def end_experts(self) -> None:
        self.fsep.end_experts(self._place.stream())


class _Exchange(torch.autograd.Function):
    # pylint: disable=abstract-method,arguments-differ
    @staticmethod
    def forward(ctx: Any, layers: ShardedExperts, there: _Exchanged, back: _Exchanged, x: torch.Tensor,
                _: torch.Tensor) -> torch.Tensor:  # a parameter, so that there is a backward pass in any case
        ctx.layers, ctx.back = layers, back
        return layers.exchanged(there, x)

    @staticmethod
    def backward(ctx: Any, errors: torch.Tensor) -> Any:
        return None, None, None, ctx.layers.exchanged(ctx.back, errors), None


class _Experts(torch.autograd.Function):
    # pylint: disable=abstract-method,arguments-differ
    @staticmethod
    def forward(ctx: Any, layers: ShardedExperts, layer: int, rows: List[int], x: torch.Tensor,
                _: torch.Tensor) -> torch.Tensor:
        weights, _gradients = layers.begin_experts(layer, False)
        # With no rows, compute(x) still runs, so that the empty result has the others' width.
        results = [layers.compute(part, *parts) for part, parts in zip(x.split(rows), weights) if len(part)]
        result = torch.cat(results or [layers.compute(x, *weights[0])])
        layers.end_experts()
        ctx.layers, ctx.layer, ctx.rows = layers, layer, rows
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx: Any, errors: torch.Tensor) -> Any:
        layers: ShardedExperts = ctx.layers
        (x,) = ctx.saved_tensors
        weights, gradients = layers.begin_experts(ctx.layer, True)
        of_x = torch.zeros_like(x)
        for part, error, out, parts, places in zip(x.split(ctx.rows), errors.split(ctx.rows), of_x.split(ctx.rows),
                                                   weights, gradients):
            if len(part) == 0:
                continue
            inputs = [each.detach().requires_grad_() for each in (part, *parts)]
            with torch.enable_grad():
                found = torch.autograd.grad(layers.compute(*inputs), inputs, error)
            for place, gradient in zip((out, *places), found):
                place.copy_(gradient)
        layers.end_experts()
        return None, None, None, of_x, None
