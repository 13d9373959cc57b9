"""Text to token ids and back, with the vocabulary of a GGUF file: ids equal llama.cpp's, streams never split a character.

Start at tokenizer.py; one encoder a kind (bpe, spm, wordpiece, unigram); pre.py is the table of pre-tokenizers.
"""

from tensormill.tokenizer.stream import StreamDecoder
from tensormill.tokenizer.tokenizer import Tokenizer
from tensormill.tokenizer.vocab import Kind

__all__ = ["Kind", "StreamDecoder", "Tokenizer"]
