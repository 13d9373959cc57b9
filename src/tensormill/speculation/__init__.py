"""Guesses of what a request says next, so that one step can check several tokens: n-grams, a draft model, a governor."""

from tensormill.speculation.draft import DraftModel
from tensormill.speculation.governor import Governor
from tensormill.speculation.ngram import NGram
from tensormill.speculation.proposer import FirstOf, Proposer, Wish

__all__ = ["DraftModel", "FirstOf", "Governor", "NGram", "Proposer", "Wish"]
