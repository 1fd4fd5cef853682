"""Counts the reductions of each step: a step that would make more or fewer than other members' gets an error.

A script that reduces after each sample of its share makes as many reductions as the share has samples. In a world whose
shares differ, a member would wait for a reduction that the others never begin. Owned by the training thread.
"""
from typing import Callable, Optional, Tuple

from .tensors import StateError

__all__ = ["ReductionCount"]


class ReductionCount:
    def __init__(self) -> None:
        self._reductions = 0  # of this step
        self._batches = 0
        self._equal_shares = True  # in all batches of this step
        self._usual: Optional[Tuple[int, int]] = None  # reductions and batches of a step with equal shares
        self._varies = False  # between such steps: then it depends on more than the share

    def begin_batch(self, equal_shares: bool) -> None:
        self._batches += 1
        self._equal_shares = self._equal_shares and equal_shares

    def add(self) -> None:
        """Call before a reduction. Raises StateError if others would not make it."""
        self._reductions += 1
        if self._differs(lambda now, usual: now > usual):
            self._refuse()

    def end_step(self) -> None:
        """Call where a step begins its update. Raises StateError if others make more reductions."""
        if self._differs(lambda now, usual: now < usual):
            self._refuse()
        if self._equal_shares and self._batches > 0:
            self._varies = self._varies or self._differs(lambda now, usual: now != usual, True)
            self._usual = self._usual or (self._reductions, self._batches)
        self.drop()

    def drop(self) -> None:
        self._reductions = self._batches = 0
        self._equal_shares = True

    def _differs(self, compare: Callable[[int, int], bool], equal_shares: bool = False) -> bool:
        """Compares the reductions for each batch with the usual ones."""
        if self._usual is None or self._batches == 0 or self._varies or self._equal_shares is not equal_shares:
            return False
        return compare(self._reductions * self._usual[1], self._usual[0] * self._batches)

    def _refuse(self) -> None:
        assert self._usual is not None
        raise StateError(f"backward: {self._reductions} reductions of gradients for {self._batches} batches of this "
                         f"step, where a step had {self._usual[0]} for {self._usual[1]}: the members' shares of the "
                         "global batch differ now, so others make another number: put all backward passes of a step "
                         "but the last into no_sync()")
