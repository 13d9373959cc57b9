"""The disk tier: pages and snapshots of the prefix tree in files, for later requests and later processes.

Every page has a name: the hash of its tokens behind the hash of the page before it, from a root that is the model's fingerprint
and the tenant's salt. What a file was made for is proved by the same two, kept in it, so no clash of hashes can mix texts up.
Pages are written when their sequence ends, and when they leave the tree (a thread does it: `behind.py`); a prompt looks here
for what the tree does not know.

There are three tiers: device, host, disk. On a CPU the host tier is the device's memory itself, so it has no code.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Protocol

import xxhash

from tensormill.cache.behind import Behind
from tensormill.cache.files import Files
from tensormill.cache.pool import PagePool
from tensormill.cache.tree import Node, PrefixTree, Snapshot

Take = Callable[[int], int | None]  # lifetime → a page held once, None without room


class Device(Protocol):
    """Where pages and states are: an executable, as far as this room need know."""

    def read_page(self, lifetime: int, page: int) -> bytes:
        """The bytes of a page of every cache of a lifetime."""

    def write_page(self, lifetime: int, page: int, data: bytes) -> None:
        """Put them back; ValueError if they are of another layout."""

    def pack(self, snapshot: Snapshot) -> bytes:
        """A snapshot as bytes."""

    def unpack(self, data: bytes) -> tuple[Snapshot, int]:
        """A snapshot and its size; ValueError if it is of another layout."""


class DiskTier:
    """Writes what the tree has to files, and brings files back into the tree."""

    def __init__(self, files: Files, device: Device, fingerprint: bytes) -> None:
        self.files = Behind(files)
        self._device = device
        self._fingerprint = fingerprint

    # ---- names ----

    def _root(self, salt: str) -> bytes:
        return xxhash.xxh128_digest(self._fingerprint + b"\0" + salt.encode())

    def _digest(self, node: Node) -> bytes:
        """The hash of a node's tokens and all before them, remembered in the nodes."""
        for n in reversed([*takewhile(lambda n: not n.digest, node.path())]):
            n.digest = xxhash.xxh128_digest(self._proof(n))
        return node.digest

    # ---- to disk ----

    def save(self, node: Node) -> None:
        """Write all that a node has and the folder has not."""
        for lifetime, page in node.pages.items():
            self.files.later(*self._file(node, str(lifetime)), partial(self._device.read_page, lifetime, page))
        if node.snapshot is not None:
            self.files.later(*self._file(node, "s"), partial(self._device.pack, node.snapshot))

    def losing(self, node: Node, lifetime: int | None) -> None:
        """Its page of a lifetime (None: its states) is about to be given up."""
        if lifetime is not None:
            self.files.now(*self._file(node, str(lifetime)), partial(self._device.read_page, lifetime, node.pages[lifetime]))
        elif node.snapshot is not None:
            self.files.now(*self._file(node, "s"), partial(self._device.pack, node.snapshot))

    def _file(self, node: Node, what: str) -> tuple[str, bytes]:
        return _name(self._digest(node), what), self._proof(node)

    def _proof(self, node: Node) -> bytes:
        assert node.parent is not None
        return _proof(node.parent.digest if node.parent.parent else self._root(node.parent.salt), node.tokens)

    # ---- from disk ----

    def fetch(self, tree: PrefixTree, pools: dict[int, PagePool], tokens: Sequence[int], salt: str, take: Take) -> None:
        """Bring into the tree what lets a request for `tokens` resume further than it can now; as far as there are pages."""
        known = tree.match(tokens, salt)
        plan = _Plan(self, tree, tokens, salt, self._root(salt))
        while (depth := plan.deepest()) > (known.depth if known else 0):
            held: list[tuple[int, int]] = []
            try:
                if self._bring(plan, depth, pools, take, held) is not False:
                    return
            finally:
                for lifetime, page in held:
                    pools[lifetime].drop(page)

    def _bring(
        self, plan: _Plan, depth: int, pools: dict[int, PagePool], take: Take, held: list[tuple[int, int]]
    ) -> bool | None:
        """Load what a resume at `depth` lacks; False if a file was no good (and is gone), None without room."""
        node: Node | None = None
        read: list[str] = []
        for i in range(depth):
            there = plan.nodes[i]
            for lifetime, page in there.pages.items() if there else ():
                held.append((lifetime, pools[lifetime].share(page)))  # lest room for the next be made of it
            pages: dict[int, int] = {}
            for lifetime in plan.missing(i, depth):
                if (free := take(lifetime)) is None:
                    return None
                held.append((lifetime, free))
                name = plan.name(i, str(lifetime))
                if not self._load(name, plan.proofs[i], partial(self._device.write_page, lifetime, free)):
                    return False
                pages[lifetime] = free
                read.append(name)
            node = plan.nodes[i] = plan.tree.insert(node, plan.part(i), pages, plan.salt) if pages or not there else there
        if node is not None and plan.slots and node.snapshot is None:
            loaded: list[tuple[Snapshot, int]] = []
            name = plan.name(depth - 1, "s")
            if not self._load(name, plan.proofs[depth - 1], lambda data: loaded.append(self._device.unpack(data))):
                return False
            plan.tree.keep_snapshot(node, *loaded[0])
            read.append(name)
        for name in reversed(read):  # the beginning last: without it the rest is worth nothing
            self.files.touch(name)
        return True

    def _load(self, name: str, proof: bytes, use: Callable[[bytes], None]) -> bool:
        data = self.files.get(name, proof)
        if data is None:
            return False
        try:
            use(data)
        except ValueError:
            self.files.drop(name)
            return False
        return True


class _Plan:
    """The pages of a prompt: which the tree has, which the folder has."""

    def __init__(self, tier: DiskTier, tree: PrefixTree, tokens: Sequence[int], salt: str, root: bytes) -> None:
        self.tree, self.salt, self.slots = tree, salt, tree.slots
        self._tokens, self._files = tokens, tier.files
        self.nodes: list[Node | None] = []
        self.proofs: list[bytes] = []
        self._digests: list[bytes] = []
        node = tree.root(salt)
        for i in range((len(tokens) - 1) // tree.page):
            node = node.children.get(self.part(i)) if node else None
            proof = _proof(root, self.part(i))
            root = xxhash.xxh128_digest(proof)
            if node is None and _name(root, "0") not in self._files:
                break
            self.nodes.append(node)
            self.proofs.append(proof)
            self._digests.append(root)

    def part(self, i: int) -> tuple[int, ...]:
        """The tokens of a page."""
        return tuple(self._tokens[i * self.tree.page : (i + 1) * self.tree.page])

    def name(self, i: int, what: str) -> str:
        """The file of a page (a lifetime) or a snapshot (s)."""
        return _name(self._digests[i], what)

    def missing(self, i: int, depth: int) -> list[int]:
        """Lifetimes whose page i is needed to resume at `depth`, and which the tree lacks."""
        node = self.nodes[i]
        need = [w for w in self.tree.lifetimes if not w or i >= depth - self.tree.window_pages(w)]
        return [w for w in need if node is None or w not in node.pages]

    def deepest(self) -> int:
        """How many pages a resume could skip with what is in tree and folder together."""
        whole = next((i for i in range(len(self.nodes)) if not self._has(i, 0)), len(self.nodes))
        return next((d for d in range(whole, 0, -1) if self._can_resume(d)), 0)

    def _can_resume(self, depth: int) -> bool:
        last = self.nodes[depth - 1]
        if self.slots and (last is None or last.snapshot is None) and self.name(depth - 1, "s") not in self._files:
            return False
        lowest = min((depth - self.tree.window_pages(w) for w in self.tree.lifetimes if w), default=depth)
        return all(self._has(i, w) for i in range(max(lowest, 0), depth) for w in self.missing(i, depth))

    def _has(self, i: int, lifetime: int) -> bool:
        node = self.nodes[i]
        return (node is not None and lifetime in node.pages) or self.name(i, str(lifetime)) in self._files


def _proof(above: bytes, tokens: Sequence[int]) -> bytes:
    return above + array("i", tokens).tobytes()


def _name(digest: bytes, what: str) -> str:
    return f"{digest.hex()}-{what}.kv"
