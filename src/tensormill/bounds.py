"""How much one request may ask for, each bound with its reason; the messages of refusals say them.

They lie far above what real clients send, and keep what one request costs others below a second. What a person sets for a
whole server is in config.py.
"""

from __future__ import annotations

MOST_COUNT = 1 << 53  # tokens, places, ranks: what every JSON reader can still write exactly; the engine takes 64 bits
MOST_TEXTS = 128  # stop texts, or breakers: each is looked for behind every token
MOST_LETTERS = 8192  # in all of them together
MOST_BIASES = 1 << 16  # tokens with a bias: a third of the largest vocabularies; they are kept for every answer
MOST_PRIORITY = 1 << 31  # either way: enough to order by time or by rank
MOST_GRAMMAR = 1 << 20  # characters of a grammar, or of all schemas of a request with what they say: it is sent on as it is
MOST_SUBSCHEMAS = 4096  # in a schema: the largest in use have half of that; checking them takes half a second
MOST_CHECKED = 1 << 22  # characters that are checked to find what is refused in the schemas of a request: a few seconds
MOST_VALUES = 1 << 20  # bytes of a request's variables for the template, which walks through them: half a second
MOST_TOKENIZED = 1 << 22  # characters that are tokenized for /tokenize alone, where no context is the bound: ten seconds
MOST_PROMPTS = 256  # of one request: each has a place in the queue
MOST_DOCUMENTS = 1024  # to order by a query: each is embedded
MOST_EMBEDDED = 2048  # texts of one request: as many as OpenAI takes, and as common clients send at once
KEPT_GRAMMARS, KEPT_LETTERS = 64, 1 << 20  # compiled ones, for requests that repeat one; each letter takes about 100 bytes
