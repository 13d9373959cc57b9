"""Room evals: how good a model's distributions are: perplexity, and divergence from those of a better copy of it.

`divergence.py` is the arithmetic, on arrays; `text.py` runs engines over a text. Definitions are those of llama-perplexity.
"""

from tensormill.evals.divergence import Divergence, Perplexity, log_softmax
from tensormill.evals.text import compare, cut, perplexity

__all__ = ["Divergence", "Perplexity", "compare", "cut", "log_softmax", "perplexity"]
