"""The cache manager: which pages and slot each sequence holds, over pools and the prefix tree. No tensor is touched here.

The engine asks for room before a step (`reserve`), and tells what a step filled (`commit`). Both are bookkeeping: steps, page
copies and snapshots form one stream on the device (OPS §2.2): a page may be matched once the step that fills it is queued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tensormill.cache.disk import DiskTier
from tensormill.cache.pool import PagePool
from tensormill.cache.tree import Node, PrefixTree, Snapshot

Keep = Literal["", "end", "passing", "answer"]  # why states are worth keeping: nothing; a border; on the way; an answer's
SPACING = 8  # pages between states that are kept on the way through a prompt, at first
SHARE = 4  # a prompt's states on the way take no more than this part of the budget


@dataclass(eq=False, slots=True)
class Holding:
    """What one sequence holds: page tables by lifetime (0: none), its slot, and the node up to which the tree knows it."""

    salt: str
    tables: dict[int, list[int]]
    slot: int
    node: Node | None
    resumed: int  # tokens that need not be computed
    snapshot: Snapshot | None = None  # to be put into the slot before the first step
    known: int = 0  # tokens whose pages the tree had when it began: others turned off here
    kept: int = 0  # tokens up to the last states that were kept of it
    spacing: int = SPACING  # pages from states to states on the way
    passing: list[Node] = field(default_factory=list)  # pages on the way whose states were kept
    answer: Node | None = None  # the last page of its answer whose states were kept


class Cache:
    """Pages by lifetime and slots, shared between sequences; `check_integrity` proves the books."""

    def __init__(
        self, pages: Mapping[int, int], *, page: int, slots: int, stateful: bool, snapshot_budget: int = 1 << 30
    ) -> None:
        self.page = page
        self.pools = {w: PagePool(n) for w, n in pages.items()}
        self.tree = PrefixTree(self.pools, page, slots=stateful, snapshot_budget=snapshot_budget)
        self._disk: DiskTier | None = None
        self._slots = list(range(slots - 1, 0, -1))

    def attach(self, disk: DiskTier) -> None:
        """Keep pages and snapshots on disk too, from now on."""
        self._disk = disk
        self.tree.losing = disk.losing

    def flush(self) -> None:
        """Write to disk what the tree has; the beginnings last, so that they are given up last."""
        if self._disk:
            for node in sorted(self.tree.nodes(), key=lambda n: -n.depth):
                self._disk.save(node)
        self.settle()

    def settle(self, seconds: float | None = None) -> None:
        """Wait until all that is to be on disk is there, at most so long; another thread may do so too."""
        if self._disk:
            self._disk.files.settle(seconds)

    @property
    def on_disk(self) -> tuple[int, int]:
        """Bytes in files, and how many writes failed."""
        if self._disk is None:
            return 0, 0
        files = self._disk.files.files
        return files.size, files.failures

    @property
    def free_slots(self) -> int:
        """Sequences that may still be opened."""
        return len(self._slots)

    def open(self, tokens: Sequence[int], salt: str = "") -> Holding:
        """Begin a sequence, on whatever the tree and the disk know of its tokens; needs a free slot."""
        if self._disk:
            self._disk.fetch(self.tree, self.pools, tokens, salt, self._take)
        node = self.tree.match(tokens, salt)
        tables = self.tree.hold(node) if node else {w: [] for w in self.pools}
        resumed = node.depth * self.page if node else 0
        snapshot, known = node.snapshot if node else None, self.tree.known(tokens, salt) * self.page
        return Holding(salt, tables, self._slots.pop(), node, resumed, snapshot, known, resumed)

    def reserve(self, holding: Holding, length: int) -> bool:
        """Pages for `length` tokens in every lifetime, evicting what nobody uses; False (and nothing taken) without room."""
        taken: list[tuple[int, int]] = []
        for w, table in holding.tables.items():
            for _ in range(-(-length // self.page) - len(table)):
                page = self._take(w)
                if page is None:
                    for v, p in taken:
                        self.pools[v].drop(p)
                        holding.tables[v].pop()
                    return False
                taken.append((w, page))
                table.append(page)
        return True

    def _take(self, lifetime: int) -> int | None:
        pool = self.pools[lifetime]
        page = pool.take()
        return pool.take() if page is None and self.tree.evict(lifetime) else page

    def commit(self, holding: Holding, tokens: Sequence[int], past: int) -> None:
        """`past` certain tokens are in the caches: whole pages go to the tree, windows' old pages are given back."""
        known = holding.node.depth if holding.node else 0
        for i in range(known, past // self.page):
            part = tuple(tokens[i * self.page : (i + 1) * self.page])
            pages = {w: t[i] for w, t in holding.tables.items()}
            holding.node = self.tree.insert(holding.node, part, pages, holding.salt)
            self._adopt(holding, holding.node, i)
        for w, table in holding.tables.items():
            for i in range(max(0, past + 1 - w) // self.page if w else 0):
                if table[i]:
                    self.pools[w].drop(table[i])
                    table[i] = 0

    def _adopt(self, holding: Holding, node: Node, i: int) -> None:
        """Where the tree had the page already (two requests computed it), hold the tree's, free one's own: bits are equal."""
        for w, table in holding.tables.items():
            if table[i] and w in node.pages and node.pages[w] != table[i]:
                self.pools[w].drop(table[i])
                table[i] = self.pools[w].share(node.pages[w])

    def keep_snapshot(self, holding: Holding, snapshot: Snapshot, size: int, why: Keep) -> None:
        """Keep the states at the end of the last whole page; within an answer, instead of those a page before.

        Who goes on with a conversation does so at its end, so one snapshot an answer is enough, however long it is.
        Those on the way serve whoever begins alike; when they are too many, every other one goes, and the next are rarer.
        """
        node = holding.node
        if node is None or node.snapshot is not None or not self.tree.keep_snapshot(node, snapshot, size):
            return
        holding.kept = node.depth * self.page
        if why == "answer":
            if holding.answer is not None:
                self.tree.drop_snapshot(holding.answer)
            holding.answer = node
        elif why == "passing":
            holding.passing.append(node)
            if len(holding.passing) * size > self.tree.snapshot_budget // SHARE:
                for n in holding.passing[::2]:
                    self.tree.drop_snapshot(n)
                holding.passing, holding.spacing = holding.passing[1::2], 2 * holding.spacing

    def close(self, holding: Holding) -> None:
        """End a sequence: its pages are the tree's alone, or free."""
        if self._disk and holding.node:
            for node in holding.node.path():
                self._disk.save(node)
        for w, table in holding.tables.items():
            for page in filter(None, table):
                self.pools[w].drop(page)
            table.clear()
        self._slots.append(holding.slot)

    def usage(self) -> float:
        """Share of the pages of the whole lifetime that some sequence or the tree holds."""
        pool = self.pools[0]
        return 1 - pool.free / max(len(pool.refs) - 1, 1)

    def check_integrity(self, holdings: Sequence[Holding]) -> None:
        """Every page's count is the number of its holders, tree and sequences; no page is both free and held."""
        for w, pool in self.pools.items():
            counted = [0] * len(pool.refs)
            for page in (p for h in holdings for p in h.tables[w] if p):
                counted[page] += 1
            for node in self.tree.nodes():
                if w in node.pages:
                    counted[node.pages[w]] += 1
            assert counted == pool.refs, f"lifetime {w}: counted {counted}, booked {pool.refs}"
            assert pool.free == sum(r == 0 for r in pool.refs[1:]), f"lifetime {w}: a page is lost"
        slots = sorted([*self._slots, *(h.slot for h in holdings)])
        assert slots == list(range(1, len(slots) + 1)), f"slots {slots}"
