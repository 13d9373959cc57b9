"""Decides which tokens run next; touches no tensor."""

from tensormill.scheduler.scheduler import Scheduler
from tensormill.scheduler.sequence import Sequence, Work

__all__ = ["Scheduler", "Sequence", "Work"]
