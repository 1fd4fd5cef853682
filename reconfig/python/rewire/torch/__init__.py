"""Rewire for PyTorch: a script's world changes while it trains (job.py, group.py)."""
import os

from . import group
from .experts import BalancedExperts
from .job import Job, Left
from .parts import Parts
from .replicas import rebalance_experts
from .sharded import ShardedOptimizer
from .sharded_experts import ShardedExperts
from .tensors import StateError

__all__ = ["BalancedExperts", "Job", "Left", "Parts", "ShardedExperts", "ShardedOptimizer", "StateError",
           "rebalance_experts"]

group.take_over()
if os.environ.get("REWIRE_SOCKET"):
    from . import zero  # some versions of PyTorch warn where this module is imported

    zero.take_over()
