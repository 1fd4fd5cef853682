"""The division of the training data over a world that changes.

The global batch of a step is that of the first world: batch_size samples for each of its slots, in the order that
DistributedSampler gives. Each slot takes its share of it, whatever the world. A loop over the loader goes on with
the next global batch after a change, and with the batch of the repeated step after a loss. In a joiner, a loop
over an epoch that is over yields nothing. Owned by the training thread.
"""
import copy
from typing import Any, Callable, Dict, Iterator, List

from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

__all__ = ["Position", "follow"]


class Position:
    """The position of the job in its data: the number of global batches that were taken, over all epochs."""

    def __init__(self, loader: "DataLoader[Any]", slots: int, slot: int) -> None:
        if loader.batch_size is None:
            raise TypeError("data: has no batch_size (batch_sampler=, or batch_size=None): must have batch_size= and "
                            "sampler=, so that Rewire can divide each batch")
        sampler = loader.sampler
        if getattr(type(sampler), "__iter__", None) is not DistributedSampler.__iter__:
            own = " with an order of its own" if isinstance(sampler, DistributedSampler) else ""
            raise TypeError(f"data: its sampler is a {type(sampler).__name__}{own}: must be a DistributedSampler, so "
                            "that every member knows the order of the samples")
        self._sampler = sampler
        self._batch: int = loader.batch_size * sampler.num_replicas
        # The whole order, also of the samples that a division over other slots pads or drops.
        self._samples: int = sampler.num_samples * sampler.num_replicas
        self.per_epoch: int = len(loader)
        self.slots, self.slot = slots, slot
        self.changes = 0  # of the world or of the position; a loop begins again after each
        self.taken = 0
        self._epochs_begun = 0
        self._epoch_numbers: Dict[int, int] = {}  # of DistributedSampler, by the number of the loop

    @property
    def loops(self) -> int:
        """The number of loops that have begun."""
        return self._epochs_begun

    def state_dict(self) -> Dict[str, Any]:
        return {"taken": self.taken, "epoch_numbers": dict(self._epoch_numbers), "batch": self._batch,
                "samples": self._samples, "per_epoch": self.per_epoch}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes also the global batch, which a joiner would have made from a world of another size."""
        self.taken = state["taken"]
        self._epoch_numbers.update(state["epoch_numbers"])
        self._batch, self._samples, self.per_epoch = state["batch"], state["samples"], state["per_epoch"]
        self.changes += 1

    def set_world(self, slots: int, slot: int) -> None:
        if (slots, slot) != (self.slots, self.slot):
            self.slots, self.slot = slots, slot
            self.changes += 1

    def begin_epoch(self) -> int:
        """Returns the number of batches that are taken when the loop that begins now ends."""
        if self.taken < self._epochs_begun * self.per_epoch:
            raise RuntimeError("data: the last loop was left before its end: the position in the data is that of the "
                               "whole job, so every loop must take all batches")
        self._epoch_numbers.setdefault(self._epochs_begun, self._sampler.epoch)
        self._epochs_begun += 1
        return self._epochs_begun * self.per_epoch

    def _order(self, epoch: int) -> List[int]:
        """The global order of an epoch: DistributedSampler gives rank r of n the elements r, r + n, ..."""
        # One replica that takes all gives the order, with the padding of the first world.
        whole = copy.copy(self._sampler)
        whole.num_replicas, whole.rank = 1, 0
        whole.num_samples = whole.total_size = self._samples
        whole.epoch = self._epoch_numbers.get(epoch, whole.epoch)
        return list(iter(whole))

    def batches(self, end: int) -> Iterator[List[int]]:
        """Yields this slot's share of each global batch from the present position on."""
        epoch, order = -1, []
        for number in range(self.taken, end):
            if number // self.per_epoch != epoch:
                epoch = number // self.per_epoch
                order = self._order(epoch)
            first = number % self.per_epoch * self._batch
            whole = order[first: first + self._batch]
            # A slot without a share takes part with a sample that does not count.
            yield whole[self.slot:: self.slots] or whole[:1]

    def share(self, number: int) -> float:
        """Returns the part of global batch `number` that this slot takes."""
        whole = min(self._batch, self._samples - number % self.per_epoch * self._batch)
        return len(range(self.slot, whole, self.slots)) / whole


class _FollowingLoader(DataLoader):
    """The class of a loader that follows a Position."""

    _rewire: Any  # (Position, called with a batch's number before the batch is given out, called at a loop's end)

    def __len__(self) -> int:
        return int(self._rewire[0].per_epoch)

    def __iter__(self) -> Iterator[Any]:
        position, on_batch, on_end = self._rewire
        end = position.begin_epoch()
        while position.taken < end:
            changes = position.changes
            for batch in self._inner(position, end):
                on_batch(position.taken)
                position.taken += 1
                yield batch
                if position.changes != changes:
                    break
        on_end()

    def _inner(self, position: Position, end: int) -> Iterator[Any]:
        more: Dict[str, Any] = {}
        if self.num_workers > 0:
            more["prefetch_factor"] = self.prefetch_factor
        return iter(DataLoader(
            self.dataset, batch_sampler=_Batches(position, end), num_workers=self.num_workers,
            collate_fn=self.collate_fn, pin_memory=self.pin_memory, timeout=self.timeout,
            worker_init_fn=self.worker_init_fn, multiprocessing_context=self.multiprocessing_context,
            generator=self.generator, **more))


class _Batches:
    def __init__(self, position: Position, end: int) -> None:
        self._position, self._end = position, end

    def __iter__(self) -> Iterator[List[int]]:
        return self._position.batches(self._end)

    def __len__(self) -> int:
        return self._end - self._position.taken


def follow(loader: "DataLoader[Any]", slots: int, slot: int, on_batch: Callable[[int], None],
           on_end: Callable[[], None]) -> Position:
    """Makes loops over this loader follow the world. Returns the position. on_batch, on_end: see _FollowingLoader."""
    if type(loader) is not DataLoader:  # pylint: disable=unidiomatic-typecheck; a subclass has its own loop
        raise TypeError(f"data: is a {type(loader).__name__}: must be a torch.utils.data.DataLoader")
    if loader.persistent_workers:
        raise TypeError("data: persistent_workers=True: a change of the world begins the loop again, with new workers: "
                        "must be False")
    position = Position(loader, slots, slot)
    loader.__class__ = _FollowingLoader
    object.__setattr__(loader, "_rewire", (position, on_batch, on_end))
    return position
