"""Which parts of a recursive grammar may be lexemes, that is: matched by a lexer that always takes the longest match.

A lexeme A is safe if, whenever a word of A begins a longer word of any lexeme B, what follows there never follows A in the
grammar: then the longest match is the only one that can go on. What is not safe is taken apart, in the end to characters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Set
from itertools import product

from tensormill.sampling.gbnf_parse import Node, Ranges

_MOST_LEXEMES, _MOST_STATES, _MOST_PAIRS = 200, 2000, 4000
Key = tuple[str, str | int]  # a rule by name, a text, or single characters by their set


def reaches(rules: Mapping[str, Node], start: str, goals: Set[str]) -> bool:
    """Whether a rule leads, over at least one step, to one of `goals`."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        for node in rules[ahead.pop()].all():
            if node.kind == "rule" and node.text in goals:
                return True
            if node.kind == "rule" and node.text not in seen:
                seen.add(node.text)
                ahead.append(node.text)
    return False


class _TooLarge(Exception):
    pass


class _Machine:
    """A lexeme as a nondeterministic automaton; sets of states are integers too."""

    def __init__(self, letters: _Letters, rules: Mapping[str, Node], node: Node) -> None:
        self._letters, self._rules = letters, rules
        self._free: list[int] = []  # states that a state leads to for nothing
        self._moves: list[tuple[int, int] | None] = []
        start, self._end = self._build(node)
        self.start = self.closed(1 << start)

    def _state(self) -> int:
        if len(self._free) >= _MOST_STATES:
            raise _TooLarge
        self._free.append(0)
        self._moves.append(None)
        return len(self._free) - 1

    def _letter(self, letters: int) -> tuple[int, int]:
        a, b = self._state(), self._state()
        self._moves[a] = letters, b
        return a, b

    def _build(self, node: Node) -> tuple[int, int]:
        if node.kind == "rule":
            return self._build(self._rules[node.text])
        if node.kind == "chars":
            return self._letter(self._letters.of(node.ranges))
        if node.kind == "choice":
            return self._alternatives([self._build(part) for part in node.parts])
        if node.kind == "repeat":
            return self._repeated(node)
        if node.kind == "text":
            return self._chained([self._letter(self._letters.of(((ord(c), ord(c)),))) for c in node.text])
        return self._chained([self._build(part) for part in node.parts])

    def _alternatives(self, parts: list[tuple[int, int]]) -> tuple[int, int]:
        start, end = self._state(), self._state()
        for a, b in parts:
            self._free[start] |= 1 << a
            self._free[b] |= 1 << end
        return start, end

    def _chained(self, parts: list[tuple[int, int]]) -> tuple[int, int]:
        start = end = self._state()
        for a, b in parts:
            self._free[end] |= 1 << a
            end = b
        return start, end

    def _repeated(self, node: Node) -> tuple[int, int]:
        count = max(node.least, node.most, 1)
        parts = [self._build(node.parts[0]) for _ in range(count)]
        start, end = self._chained(parts)
        for i, (a, b) in enumerate(parts):
            if i >= node.least:
                self._free[a] |= 1 << end
            if node.most < 0 and i == count - 1:
                self._free[b] |= 1 << a
        return start, end

    def closed(self, states: int) -> int:
        """With all states that can be had for nothing."""
        ahead, found = states, states
        while ahead:
            low = ahead & -ahead
            ahead ^= low
            new = self._free[low.bit_length() - 1] & ~found
            found |= new
            ahead |= new
        return found

    def moves(self, states: int) -> Iterator[tuple[int, int]]:
        """Letters and the state that each set of them leads to."""
        while states:
            low = states & -states
            states ^= low
            move = self._moves[low.bit_length() - 1]
            if move is not None:
                yield move

    def letters(self, states: int) -> int:
        """All letters that can be next."""
        out = 0
        for letters, _ in self.moves(states):
            out |= letters
        return out

    def after(self, states: int, letter: int) -> int:
        """The states behind one letter."""
        out = 0
        for letters, to in self.moves(states):
            if letters & letter:
                out |= 1 << to
        return self.closed(out)

    def accepts(self, states: int) -> bool:
        """Whether a word may end here."""
        return bool(states >> self._end & 1)


class _Letters:
    """Classes of characters that no range of the grammar tells apart."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        nodes = [node for root in rules.values() for node in root.all()]
        edges = {0, 128}
        for low, high in [r for node in nodes for r in node.ranges] + [
            (ord(c),) * 2 for n in nodes if n.kind == "text" for c in n.text
        ]:
            edges |= {low, high + 1}
        self._starts = sorted(edges)
        self.beyond = self.of(((128, 0x10FFFF),))  # what takes several bytes; first bytes may be the same

    def of(self, ranges: Ranges) -> int:
        """The set of classes in these ranges."""
        out = 0
        for low, high in ranges:
            first, last = bisect_right(self._starts, low) - 1, bisect_right(self._starts, high) - 1
            out |= (1 << (last + 1)) - (1 << first)
        return out

    def meet(self, a: int, b: int) -> bool:
        """Whether a lexer, which sees bytes, can take one of `a` for one of `b`."""
        return bool(a & b) or bool(a & self.beyond and b & self.beyond)


class Lexemes:
    """`ruled`: the rules that stay rules; `texts`: the texts in them that are lexemes; `both`: rules that are also needed as
    parts of lexemes."""

    def __init__(self, rules: Mapping[str, Node], ruled: Set[str]) -> None:
        self._rules, self._letters = rules, _Letters(rules)
        recursive = set(ruled)
        self.ruled = set(ruled)
        self.texts = {n.text for r in rules.values() for n in r.all() if n.kind == "text" and len(n.text) > 1}
        self._machines: dict[Key, _Machine | None] = {}
        while (bad := self._unsafe()) is not None:
            if bad[0] == "rule":
                self.ruled.add(str(bad[1]))
            else:
                self.texts.discard(str(bad[1]))
        self.both = self.ruled - recursive

    def _machine(self, key: Key) -> _Machine | None:
        if key not in self._machines:
            node = self._rules[str(key[1])] if key[0] == "rule" else Node("text", str(key[1]))
            try:
                made = _Machine(self._letters, self._rules, node)
                if key[0] == "letters":
                    made = _Machine(self._letters, self._rules, Node("sequence"))
                    made.start = 1 << made._letter(int(key[1]))[0]
                    made._end = len(made._free) - 1
                self._machines[key] = made
            except _TooLarge:
                self._machines[key] = None
        return self._machines[key]

    def _unsafe(self) -> Key | None:
        """A lexeme that must be taken apart; None if all are safe."""
        found = _Follows(self._rules, self).lexemes
        big = next((k for k in found if self._machine(k) is None), None)
        if big is not None:
            return big
        if len(found) > _MOST_LEXEMES:
            return next((k for k in found if k[0] != "letters"), None)
        for a, b in product(found, found):
            if (a[0] != "letters" or b[0] != "letters") and self._clash(a, b, found[a]):
                return a if a[0] != "letters" else b
        return None

    def first(self, key: Key) -> tuple[int, bool]:
        """Letters that a lexeme may begin with, and whether it may be empty."""
        machine = self._machine(key)
        return (-1, True) if machine is None else (machine.letters(machine.start), machine.accepts(machine.start))

    def _clash(self, a: Key, b: Key, follow: int) -> bool:
        """Whether a word of `a` begins a word of `b` that goes on with something that may follow `a`."""
        one, other = self._machine(a), self._machine(b)
        assert one is not None and other is not None
        ahead = [(one.start, other.start)]
        seen = set(ahead)
        while ahead:
            x, y = ahead.pop()
            common = one.letters(x) & other.letters(y)
            while common:
                letter = common & -common
                common ^= letter
                pair = one.after(x, letter), other.after(y, letter)
                if pair in seen:
                    continue
                if (one.accepts(pair[0]) and self._letters.meet(other.letters(pair[1]), follow)) or len(seen) > _MOST_PAIRS:
                    return True
                seen.add(pair)
                ahead.append(pair)
        return False

    def of_text(self, text: str) -> list[Key]:
        """The lexemes that a text in a rule is matched by."""
        return [("text", text)] if text in self.texts else [("letters", self._letters.of(((ord(c), ord(c)),))) for c in text]

    def of_chars(self, ranges: Ranges) -> Key:
        """The lexeme of a class of characters in a rule."""
        return "letters", self._letters.of(ranges)


class _Follows:
    """For every lexeme the letters that may follow it: the textbook's FIRST and FOLLOW, to a fixed point."""

    def __init__(self, rules: Mapping[str, Node], lexemes: Lexemes) -> None:
        self._rules, self._of = rules, lexemes
        self._firsts: dict[str, tuple[int, bool]] = dict.fromkeys(lexemes.ruled, (0, False))
        self._after: dict[str, int] = dict.fromkeys(lexemes.ruled, 0)
        self.lexemes: dict[Key, int] = {}
        self._changed = True
        while self._changed:
            self._changed = False
            for name in lexemes.ruled:
                self._note(self._firsts, name, self._first(rules[name]))
        self._changed = True
        while self._changed:
            self._changed = False
            for name in lexemes.ruled:
                self._visit(rules[name], self._after[name])

    def _note(self, table: dict[str, tuple[int, bool]], name: str, value: tuple[int, bool]) -> None:
        if table[name] != value:
            table[name], self._changed = value, True

    def _first(self, node: Node) -> tuple[int, bool]:
        if node.kind == "rule":
            return self._firsts[node.text] if node.text in self._firsts else self._of.first(("rule", node.text))
        if node.kind == "text":
            keys = self._of.of_text(node.text)
            return self._of.first(keys[0]) if keys else (0, True)
        if node.kind in ("chars", "token"):
            return (self._of.first(self._of.of_chars(node.ranges))[0] if node.kind == "chars" else 0), False
        parts = [self._first(part) for part in node.parts]
        if node.kind == "choice":
            letters = 0
            for one, _ in parts:
                letters |= one
            return letters, any(empty for _, empty in parts)
        if node.kind == "repeat":
            return parts[0][0], parts[0][1] or node.least == 0
        return self._chain(parts, (0, True))

    @staticmethod
    def _chain(parts: list[tuple[int, bool]], rest: tuple[int, bool]) -> tuple[int, bool]:
        for letters, empty in reversed(parts):
            rest = (letters | rest[0], rest[1]) if empty else (letters, False)
        return rest

    def _visit(self, node: Node, after: int) -> None:
        if node.kind == "rule" and node.text in self._after:
            if self._after[node.text] | after != self._after[node.text]:
                self._after[node.text] |= after
                self._changed = True
        elif node.kind == "rule":
            self._lexeme(("rule", node.text), after)
        elif node.kind == "text":
            for key in reversed(self._of.of_text(node.text)):
                self._lexeme(key, after)
                after = self._of.first(key)[0]
        elif node.kind == "chars":
            self._lexeme(self._of.of_chars(node.ranges), after)
        elif node.kind == "repeat":
            self._visit(node.parts[0], after | (self._first(node.parts[0])[0] if node.most != 1 else 0))
        elif node.kind == "choice":
            for part in node.parts:
                self._visit(part, after)
        else:
            for i in range(len(node.parts) - 1, -1, -1):
                rest = self._chain([self._first(part) for part in node.parts[i + 1 :]], (after, False))
                self._visit(node.parts[i], rest[0])

    def _lexeme(self, key: Key, after: int) -> None:
        known = self.lexemes.get(key, 0)
        self._changed |= key not in self.lexemes or known | after != known
        self.lexemes[key] = known | after
