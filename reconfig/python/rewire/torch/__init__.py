"""Rewire for PyTorch: a script's world changes while it trains (job.py, group.py)."""
from . import group
from .experts import BalancedExperts
from .job import Job, Left
from .sharded import ShardedOptimizer
from .tensors import StateError

__all__ = ["BalancedExperts", "Job", "Left", "ShardedOptimizer", "StateError"]

group.take_over()
