"""Logits → tokens: the sampler chain, penalties, and stop strings."""

from tensormill.sampling.sampler import Sampler
from tensormill.sampling.stop import StopMatcher
from tensormill.sampling.suggested import suggested

__all__ = ["Sampler", "StopMatcher", "suggested"]
