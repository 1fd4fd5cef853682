"""An expert-parallel layer whose load is balanced inside a node, in forward and backward (rewire/experts.py).

    experts = rewire.torch.BalancedExperts("moe", rank, ranks, [w1, w2], compute, width=1024, rows=8192)
    x = permuted_rows_of_the_own_experts          # after the dispatch, sorted by expert
    y = experts(x, tokens_per_expert)             # before the combine

Rows of busy experts, and their weights, go to other processes of the node and come back. compute(x, *parts) is one
expert's layer, for rows x and the expert's part of each tensor of weights: each row alone, in differentiable PyTorch.
What belongs to a row, such as the router's probability, is a column of it. The backward pass computes each row's
forward again. Every process of the node makes the same calls in the same order. Owned by one thread.
"""
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from ..experts import Counts, Experts, Moved, Segment
from .place import Place

__all__ = ["BalancedExperts"]

_Compute = Callable[..., torch.Tensor]


class BalancedExperts(torch.nn.Module):
    """weights: parameters whose first dimension is the own expert. width: of a row, in and out. name, rows, options: of
    Experts; `rows` is the room for moved rows. layer: a small number, for layers that share an object."""

    def __init__(self, name: str, rank: int, ranks: int, weights: Sequence[torch.nn.Parameter], compute: _Compute, *,
                 width: int, rows: int, **options: Any) -> None:
        super().__init__()
        first = weights[0]
        if any(w.dtype != first.dtype or w.shape[0] != first.shape[0] or not w.is_contiguous() for w in weights):
            raise ValueError("weights: must be contiguous, of one type, and have the same number of experts")
        self.weights = torch.nn.ParameterList(weights)
        self.compute, self.width, self.own = compute, width, int(first.shape[0])
        self._place = Place.of(rank)
        with torch.no_grad():
            for weight in weights if not first.is_cuda else ():
                place = self._place.empty(weight.shape, weight.dtype)
                weight.data = place.copy_(weight)
        self.part_bytes = [weight[0].numel() * weight.element_size() for weight in weights]
        self.experts = Experts(name, rank, ranks, experts=self.own, rows=rows, weight_bytes=sum(self.part_bytes),
                               grad_bytes=sum(self.part_bytes), token_bytes=width * first.element_size(), **options)

    def forward(self, x: torch.Tensor, tokens: Sequence[int], layer: int = 0) -> torch.Tensor:
        """x: rows sorted by own expert, tokens[e] of expert e, of the weights' type."""
        if tuple(x.shape) != (sum(tokens), self.width) or x.dtype != self.weights[0].dtype:
            raise ValueError(f"x: shape={tuple(x.shape)} dtype={x.dtype}: must be {(sum(tokens), self.width)} "
                             f"and {self.weights[0].dtype}")
        return _Round.apply(self, layer, list(tokens), x, *self.weights)

    def check(self) -> None:
        """Raises unless all results so far are valid. Call after a wait for the stream."""
        self.experts.check()

    def counts(self) -> Counts:
        return self.experts.counts()

    def end(self) -> None:
        """Leaves together with the other processes."""
        self.experts.end()

    # ---- rounds ----------------------------------------------------------------------------------------------------

    def zeros_like(self, rows: torch.Tensor) -> torch.Tensor:
        return self._place.empty(rows.shape, rows.dtype).zero_()

    def here(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the rows in device memory."""
        if rows.is_cuda:
            return rows.contiguous()
        return self._place.empty(rows.shape, rows.dtype).copy_(rows)

    def round(self, layer: int, tokens: List[int], x: torch.Tensor, out: torch.Tensor, run: Callable[[Segment], None],
              errors: Optional[torch.Tensor] = None, moved: Optional[Moved] = None) -> List[Tuple[int, int]]:
        """Runs all segments. Returns the own experts that others have computed gradients for, with the addresses."""
        pieces = [[weight[e].data_ptr() for weight in self.weights] for e in range(self.own)]
        # A tensor without rows has no address. Nothing is read there, but none would mean a forward pass.
        address = None if errors is None else errors.data_ptr() or pieces[0][0]
        begun = self.experts.begin(self._place.stream(), layer, tokens, pieces, self.part_bytes, x.data_ptr(),
                                   out.data_ptr(), errors=address, moved=moved)
        for segment in begun:
            run(segment)
        for segment in self.experts.rest():
            run(segment)
        gradients = [(int(gradient.expert), int(gradient.data)) for gradient in self.experts.collect()]
        self._place.wait_for_cpu()
        return gradients

    def rows_of(self, address: int, rows: int) -> torch.Tensor:
        return self._place.view(address, (rows, self.width), self.weights[0].dtype)

    def parts_of(self, address: int) -> List[torch.Tensor]:
        """Returns the pieces of one expert that lie at the address, one after another."""
        parts = []
        for weight, size in zip(self.weights, self.part_bytes):
            parts.append(self._place.view(address, weight.shape[1:], weight.dtype))
            address += size
        return parts

    def parts(self, segment: Segment) -> List[torch.Tensor]:
        self._place.wait_for_cpu()
        if segment.weights:
            return self.parts_of(segment.weights)
        return [weight.detach()[segment.expert % self.own] for weight in self.weights]


class _Round(torch.autograd.Function):
    # pylint: disable=abstract-method,arguments-differ
    @staticmethod
    def forward(ctx: Any, layer: BalancedExperts, number: int, tokens: List[int], x: torch.Tensor,
                *_: torch.Tensor) -> torch.Tensor:
        x = layer.here(x)
        out = layer.zeros_like(x)

        def run(segment: Segment) -> None:
            parts = layer.parts(segment)
            rows = layer.compute(layer.rows_of(segment.x, segment.rows), *parts)
            layer.rows_of(segment.out, segment.rows)[:, : rows.shape[1]].copy_(rows)  # the rest stays 0

        layer.round(number, tokens, x, out, run)
        ctx.layer, ctx.number, ctx.tokens, ctx.moved = layer, number, tokens, layer.experts.moved()
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx: Any, errors: torch.Tensor) -> Any:
        layer: BalancedExperts = ctx.layer
        (x,) = ctx.saved_tensors
        errors = layer.here(errors)
        out = layer.zeros_like(x)
        gradients = [torch.zeros_like(weight) for weight in layer.weights]

        def run(segment: Segment) -> None:
            parts = [part.requires_grad_() for part in layer.parts(segment)]
            inputs = layer.rows_of(segment.x, segment.rows).requires_grad_()
            with torch.enable_grad():
                rows = layer.compute(inputs, *parts)
            of_rows = layer.rows_of(segment.errors, segment.rows)[:, : rows.shape[1]]
            found = torch.autograd.grad(rows, [inputs, *parts], of_rows)
            layer.rows_of(segment.out, segment.rows).copy_(found[0])
            places = layer.parts_of(segment.grad) if segment.weights else [
                gradient[segment.expert % layer.own] for gradient in gradients]
            for place, gradient in zip(places, found[1:]):
                if segment.weights:
                    place.copy_(gradient)
                else:
                    place.add_(gradient)

        for expert, address in layer.round(ctx.number, ctx.tokens, x, out, run, errors, ctx.moved):
            for gradient, part in zip(gradients, layer.parts_of(address)):
                gradient[expert].add_(part)
        return (None, None, None, out, *gradients)
