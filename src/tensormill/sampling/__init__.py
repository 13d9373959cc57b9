"""Logits → tokens: the sampler chain, penalties, stop strings, and what grammars allow (`sampling.grammar`)."""

from tensormill.sampling.sampler import Sampler
from tensormill.sampling.stop import StopMatcher
from tensormill.sampling.suggested import suggested

__all__ = ["Sampler", "StopMatcher", "suggested"]
