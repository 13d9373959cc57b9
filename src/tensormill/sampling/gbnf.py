"""GBNF, the grammar notation of llama.cpp → Lark."""


def to_lark(text: str) -> str:
    """Stub."""
    return text
