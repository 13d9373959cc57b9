"""Every setting a user can make, as frozen dataclasses: flags, TOML and docs are made from these.

A docstring under a field is its help text. Values out of range raise RequestError at construction. Nothing here acts
on a setting.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tensormill.bounds import MOST_BIASES, MOST_COUNT, MOST_LETTERS, MOST_TEXTS
from tensormill.errors import RequestError

MOST_THREADS, MOST_CONTEXT, MOST_SEQUENCES, MOST_DRAFTS = 1024, 1 << 24, 4096, 64
MOST_KV = 1 << 28  # tokens
MOST_PENALTY = 1_000_000  # beyond it only overflow lies
_WITHIN = f"between -{MOST_PENALTY} and {MOST_PENALTY}"
DRAFTS = 4  # where guesses are wanted and nobody says how many


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How a model is loaded and run."""

    backend: Literal["cpu", "reference"] = "cpu"
    """Which backend runs the model; `reference` is the slow NumPy definition."""
    threads: int = 0
    """Threads of the CPU backend; 0: as many as this process may use cores."""
    context: int = 0
    """Most tokens a conversation may have; 0: the model's own limit, at most 8192."""
    chunk: int = 512
    """Most tokens of a prompt that are computed at once."""
    kv_type: Literal["f32", "f16", "bf16", "q8_0", "q4_0"] = "f16"
    """How keys and values are kept; q8_0 takes half the memory of f16, q4_0 a quarter, at some cost in quality."""
    rows: int = 1
    """Most rows of logits that are wanted at once (`tensormill logits` wants all)."""
    sequences: int = 1
    """Most sequences that are computed together."""
    kv_tokens: int = 0
    """Tokens that the caches hold, of all conversations together; 0: as many as --kv-memory allows, up to --ctx for each."""
    kv_memory: str | None = None
    """Most bytes for keys, values and states, such as 4G or 512M; by default three quarters of what the weights leave free."""
    kv_disk: str | None = None
    """Folder that keeps keys and values of earlier prompts, for later runs too; without it they live in memory alone."""
    kv_disk_size: str = "8G"
    """Most bytes of that folder; what was not used for longest is given up first."""
    drafts: int | None = None
    """Most tokens that are guessed ahead for a sequence and checked in one step; 0: none. Guesses change the speed, never the
    answer. Without this: 4 for `run`, `chat` and wherever a --draft-model guesses."""
    draft_model: str | None = None
    """GGUF of a small model with the same vocabulary that guesses; without it guesses repeat the sequence's own text."""
    pre: str | None = None
    """Pre-tokenizer to use instead of the one the file names."""
    template: str | None = None
    """Chat template to use instead of the file's default: one that the file names, or a built-in format."""

    def __post_init__(self) -> None:
        # Upper bounds, since a slip of the finger would spend minutes and gigabytes on books before a backend asks for memory.
        _check(0 <= self.threads <= MOST_THREADS, "threads", f"between 0 and {MOST_THREADS}", self.threads)
        _check(
            0 <= self.context <= MOST_CONTEXT, "ctx", f"between 1 and {MOST_CONTEXT}, or 0 for the model's own", self.context
        )
        _check(self.chunk >= 1, "chunk", "1 or more", self.chunk)
        _check(self.rows >= 1, "rows", "1 or more", self.rows)
        _check(1 <= self.sequences <= MOST_SEQUENCES, "sequences", f"between 1 and {MOST_SEQUENCES}", self.sequences)
        _check(0 <= self.kv_tokens <= MOST_KV, "kv-tokens", f"between 0 and {MOST_KV}", self.kv_tokens)
        _check(self.drafts is None or 0 <= self.drafts <= MOST_DRAFTS, "drafts", f"between 0 and {MOST_DRAFTS}", self.drafts)
        if self.kv_memory is not None:
            bytes_of(self.kv_memory, "kv-memory")
        bytes_of(self.kv_disk_size, "kv-disk-size")

    @property
    def guesses(self) -> int:
        """How many tokens are guessed ahead at most."""
        return self.drafts if self.drafts is not None else DRAFTS if self.draft_model is not None else 0


@dataclass(frozen=True, slots=True)
class ServedConfig(EngineConfig):
    """The same where many are served: other defaults than for one user."""

    sequences: int = 16
    """Most sequences that are computed together."""
    rows: int = 64
    """Most rows of texts that are embedded at once."""


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """How the next token is chosen: logit bias, penalties, DRY, top-k, typical, top-p, min-p, XTC, temperature, in order."""

    temperature: float = 0.8
    """Randomness of the draw; 0 always takes the most likely token."""
    top_k: int = 40
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 0.95
    """Keep the most likely tokens that together reach this probability; 1 keeps all."""
    min_p: float = 0.05
    """Keep tokens at least this likely relative to the most likely one; 0 keeps all."""
    typical_p: float = 1.0
    """Keep the tokens that surprise as much as is to be expected and together reach this probability; 1 keeps all."""
    xtc_probability: float = 0.0
    """How often all but the least likely of the obvious tokens are left out (XTC); 0 is never."""
    xtc_threshold: float = 0.1
    """From which probability on a token is obvious."""
    repeat_penalty: float = 1.0
    """Divide positive (multiply negative) logits of tokens seen in the window by this; 1 is off."""
    presence_penalty: float = 0.0
    """Take this off the logit of each token seen in the window."""
    frequency_penalty: float = 0.0
    """Take this off the logit of a token for each time it was seen in the window."""
    penalty_window: int = 64
    """How many of the last tokens, prompt included, the penalties look at; -1 is all of them."""
    dry_multiplier: float = 0.0
    """How much a token that would prolong a repetition loses (DRY); 0 is off."""
    dry_base: float = 1.75
    """By how much that grows with each repeated token."""
    dry_allowed_length: int = 2
    """Repetitions shorter than this are fine."""
    dry_window: int = -1
    """How many of the last tokens DRY looks at; -1 is all of them."""
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    """Texts over which no repetition reaches."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Numbers to add to the logits of tokens, by id; minus infinity bans one."""
    seed: int | None = None
    """Same seed, same prompt, same text; without one each run draws differently."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer; they are not part of it."""
    max_tokens: int | None = None
    """The most tokens to generate; without it the context is the limit."""
    min_tokens: int = 0
    """The answer may not end by itself before it has so many tokens."""
    ignore_eos: bool = False
    """Go on after the model has ended its answer (for benchmarks)."""

    def __post_init__(self) -> None:
        _check(math.isfinite(self.temperature) and self.temperature >= 0, "temperature", "0 or more", self.temperature)
        _check_count(self.top_k, "top-k")
        _check(0 < self.top_p <= 1, "top-p", "above 0 and at most 1", self.top_p)
        _check(0 <= self.min_p <= 1, "min-p", "between 0 and 1", self.min_p)
        _check(0 < self.typical_p <= 1, "typical-p", "above 0 and at most 1", self.typical_p)
        _check(0 <= self.xtc_probability <= 1, "xtc-probability", "between 0 and 1", self.xtc_probability)
        _check(0 <= self.xtc_threshold <= 1, "xtc-threshold", "between 0 and 1", self.xtc_threshold)
        self._check_repetition()
        _check(len(self.logit_bias) <= MOST_BIASES, "logit-bias", f"of at most {MOST_BIASES} tokens", len(self.logit_bias))
        odd = next(((t, b) for t, b in self.logit_bias if t < 0 or not (abs(b) <= MOST_PENALTY or b == -math.inf)), None)
        _check(odd is None, "logit-bias", f"token ids with numbers up to {MOST_PENALTY} or minus infinity", odd)
        _check(self.seed is None or 0 <= self.seed < 1 << 64, "seed", "between 0 and 2^64 - 1", self.seed)
        _check_texts(self.stop, "stop")
        _check_count(self.max_tokens or 0, "max-tokens")
        _check_count(self.min_tokens, "min-tokens")

    def _check_repetition(self) -> None:
        _check(
            1 / MOST_PENALTY <= self.repeat_penalty <= MOST_PENALTY,
            *("repeat-penalty", f"between {1 / MOST_PENALTY} and {MOST_PENALTY}", self.repeat_penalty),
        )
        _check(abs(self.presence_penalty) <= MOST_PENALTY, "presence-penalty", _WITHIN, self.presence_penalty)
        _check(abs(self.frequency_penalty) <= MOST_PENALTY, "frequency-penalty", _WITHIN, self.frequency_penalty)
        _check_count(self.penalty_window, "penalty-window", -1)
        dry = math.isfinite(self.dry_multiplier) and self.dry_multiplier >= 0
        _check(dry, "dry-multiplier", "0 or more", self.dry_multiplier)
        _check(math.isfinite(self.dry_base) and self.dry_base >= 1, "dry-base", "1 or more", self.dry_base)
        _check_count(self.dry_allowed_length, "dry-allowed-length", 1)
        _check_count(self.dry_window, "dry-window", -1)
        _check_texts(self.dry_breakers, "dry-breakers")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How a server listens, whom it lets in, and how much it takes on."""

    host: str = "127.0.0.1"
    """Address to listen on; a public one needs --api-key-file, or --allow-public."""
    port: int = 8080
    """Port to listen on; 0 takes a free one."""
    api_key_file: Path | None = None
    """File of API keys, one a line: NAME KEY, or KEY alone; every route but /health wants one then."""
    allow_public: bool = False
    """Listen on a public address though nobody needs a key."""
    tls_cert: Path | None = None
    """Certificate (PEM), to serve HTTPS; with --tls-key."""
    tls_key: Path | None = None
    """Private key (PEM) of the certificate."""
    cors: bool = False
    """Let web pages of any origin call this server."""
    max_queue: int = 64
    """Most requests that wait for a model; more are told to come again (429)."""
    max_body: int = 32 << 20
    """Most bytes of a request."""
    timeout: float = 0.0
    """Most seconds an answer may take; 0: no limit."""
    drain: float = 30.0
    """Seconds that answers under way have to end after SIGTERM."""
    memory: str | None = None
    """Most bytes that all loaded models and their caches take together, such as 8G; --kv-memory bounds the caches of each."""
    otlp_endpoint: str = ""
    """Where traces go, such as http://localhost:4318 (OTLP over HTTP, needs tensormill[otel]); else what
    OTEL_EXPORTER_OTLP_ENDPOINT says, if anything."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much is logged (JSON lines on stderr, without prompts)."""

    def __post_init__(self) -> None:
        _check(0 <= self.port < 1 << 16, "port", "between 0 and 65535", self.port)
        _check(self.max_queue >= 0, "max-queue", "0 or more", self.max_queue)
        _check(self.max_body > 0, "max-body", "above 0", self.max_body)
        _check(self.timeout >= 0, "timeout", "0 or more", self.timeout)
        _check(0 <= self.drain < 1e9, "drain", "0 or more seconds", self.drain)
        if self.memory is not None:
            bytes_of(self.memory, "memory")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise RequestError("--tls-cert and --tls-key go together: give both, or neither")


def bytes_of(text: str, name: str) -> int:
    """A size such as 512M, 4G, 1.5GiB or 1000000 in bytes; K, M, G, T are powers of 1024. RequestError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    _check(found is not None, name, "a size such as 512M or 4G", text)
    assert found is not None
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


def in_words(size: float) -> str:
    """Bytes as people read them: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def _check_count(value: int, name: str, least: int = 0) -> None:
    _check(least <= value <= MOST_COUNT, name, f"{least} or more (at most 2^53)", value)


def _check_texts(texts: Sequence[str], name: str) -> None:
    _check(all(texts), name, "a text of at least one character, or several", "")
    _check(len(texts) <= MOST_TEXTS, name, f"at most {MOST_TEXTS} texts", len(texts))
    letters = sum(map(len, texts))
    _check(letters <= MOST_LETTERS, name, f"at most {MOST_LETTERS} characters, of all texts together", letters)


def _check(fine: bool, name: str, expected: str, found: object) -> None:
    if not fine:
        raise RequestError(f"{name} must be {expected}, not {reprlib.repr(found)}")
