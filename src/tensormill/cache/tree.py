"""The prefix tree: pages that earlier requests filled, by the tokens in them, for later requests to share.

A node is one page of tokens behind its parent's. It holds a page number for each lifetime that still has the rows, and perhaps
a snapshot of the recurrent states at its end. A request may *resume* behind a node if every page before it is whole, the last
`window` tokens of each window are there and, for programs with slots, the node has a snapshot. Tenants have trees of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensormill.cache.pool import PagePool

Tokens = tuple[int, ...]
Snapshot = Any  # opaque here: what an Executable gave


@dataclass(eq=False, slots=True)
class Node:
    """One page of tokens; `pages` by lifetime, those given up missing."""

    parent: Node | None
    tokens: Tokens
    depth: int  # pages before and including this one
    pages: dict[int, int] = field(default_factory=dict)
    children: dict[Tokens, Node] = field(default_factory=dict)
    snapshot: Snapshot | None = None
    snapshot_bytes: int = 0
    salt: str = ""  # of a root
    digest: bytes = b""  # the disk tier's

    def path(self) -> Iterator[Node]:
        """This node, then its parents up to the root's child."""
        node: Node | None = self
        while node is not None and node.parent is not None:
            yield node
            node = node.parent


class PrefixTree:
    """Shares pages of `pools` (lifetime → pool; 0 is the whole lifetime) between requests with equal beginnings."""

    def __init__(self, pools: dict[int, PagePool], page: int, *, slots: bool, snapshot_budget: int) -> None:
        self.page = page
        self._pools = pools
        self.slots = slots
        self.losing: Callable[[Node, int | None], None] | None = None  # told before a page of a lifetime, or a snapshot, goes
        self._roots: dict[str, Node] = {}
        self._used: dict[int, OrderedDict[Node, None]] = {w: OrderedDict() for w in pools}  # oldest first
        self._snapshots: OrderedDict[Node, None] = OrderedDict()
        self.snapshot_budget = self._snapshot_room = snapshot_budget

    @property
    def lifetimes(self) -> list[int]:
        """0 and the windows."""
        return [*self._pools]

    def root(self, salt: str) -> Node | None:
        """Where a tenant's tree begins, if it has one."""
        return self._roots.get(salt)

    def window_pages(self, window: int) -> int:
        """How many pages behind it the next token sees: window − 1 rows."""
        return -(-(window - 1) // self.page)

    def match(self, tokens: Sequence[int], salt: str) -> Node | None:
        """The deepest node behind which a request for `tokens` can resume, leaving at least one token to compute."""
        best, node, at = None, self._roots.get(salt), 0
        while node is not None and at + self.page < len(tokens):
            node = node.children.get(tuple(tokens[at : at + self.page]))
            at += self.page
            if node is None or 0 not in node.pages:
                break
            if self._can_resume(node):
                best = node
        return best

    def known(self, tokens: Sequence[int], salt: str) -> int:
        """How many whole pages of a request the tree has, whether it can resume behind them or not."""
        node, depth = self._roots.get(salt), 0
        while node is not None and (depth + 1) * self.page < len(tokens):
            node = node.children.get(tuple(tokens[depth * self.page : (depth + 1) * self.page]))
            depth += node is not None
        return depth

    def _can_resume(self, node: Node) -> bool:
        if self.slots and node.snapshot is None:
            return False
        return all(self._has_window(node, w) for w in self._pools if w)

    def _has_window(self, node: Node, window: int) -> bool:
        return all(window in n.pages for n, _ in zip(node.path(), range(self.window_pages(window)), strict=False))

    def hold(self, node: Node) -> dict[int, list[int]]:
        """Take a share of everything a resume behind `node` needs; page tables by lifetime, 0 where a window is past."""
        tables: dict[int, list[int]] = {w: [0] * node.depth for w in self._pools}
        for w, pool in self._pools.items():
            need = node.depth if not w else min(node.depth, self.window_pages(w))
            for n, _ in zip(node.path(), range(need), strict=False):
                tables[w][n.depth - 1] = pool.share(n.pages[w])
        self.touch(node)
        return tables

    def insert(self, parent: Node | None, tokens: Tokens, pages: dict[int, int], salt: str) -> Node:
        """Record a filled page; the tree takes a share of each page that it does not have already."""
        above = parent or self._roots.setdefault(salt, Node(None, (), 0, salt=salt))
        node = above.children.get(tokens)
        if node is None:
            node = above.children[tokens] = Node(above, tokens, above.depth + 1)
        for w, page in pages.items():
            if page and w not in node.pages:
                node.pages[w] = self._pools[w].share(page)
                self._touch_page(node, w)
        self.touch(node)
        return node

    def keep_snapshot(self, node: Node, snapshot: Snapshot, size: int) -> bool:
        """Keep the states at a node's end within the budget, giving up the least recently used ones; False if too large."""
        if size > self._snapshot_room + sum(n.snapshot_bytes for n in self._snapshots):
            return False
        while size > self._snapshot_room:
            self.forget_snapshot(next(iter(self._snapshots)))
        if node.snapshot is None:
            node.snapshot, node.snapshot_bytes = snapshot, size
            self._snapshots[node] = None
            self._snapshot_room -= size
        return True

    def touch(self, node: Node) -> None:
        """Mark as used what a resume behind a node needs: of a window's pages and the states no more than that.

        Whole paths are older at their leaves, which go first; a window's pages are older at its beginning, since only the next
        resume further back needs those.
        """
        for n in node.path():
            self._touch_page(n, 0)
        for w in self._pools:
            if w:
                for n in reversed([n for n, _ in zip(node.path(), range(self.window_pages(w)), strict=False)]):
                    self._touch_page(n, w)
        if node.snapshot is not None:
            self._snapshots.move_to_end(node)

    def _touch_page(self, node: Node, lifetime: int) -> None:
        if lifetime in node.pages:
            self._used[lifetime][node] = None
            self._used[lifetime].move_to_end(node)

    def evict(self, lifetime: int) -> bool:
        """Give up the least recently used page of a lifetime that no request holds; False if all are in use."""
        pool = self._pools[lifetime]
        for node in self._used[lifetime]:
            if pool.refs[node.pages[lifetime]] == 1 and (lifetime or not any(0 in c.pages for c in node.children.values())):
                self._give_up(node, lifetime)
                return True
        return False

    def _give_up(self, node: Node, lifetime: int) -> None:
        if self.losing:
            self.losing(node, lifetime)
        del self._used[lifetime][node]
        self._pools[lifetime].drop(node.pages.pop(lifetime))
        if lifetime == 0:
            self._remove(node)

    def _remove(self, node: Node) -> None:
        for below in [*node.children.values()]:
            self._remove(below)
        for w in [*node.pages]:
            self._give_up(node, w) if w else None
        self.forget_snapshot(node)
        assert node.parent is not None
        node.parent.children.pop(node.tokens, None)

    def forget_snapshot(self, node: Node) -> None:
        """Give up the states at a node's end, if they are kept, for want of room."""
        if node.snapshot is not None and self.losing:
            self.losing(node, None)
        self.drop_snapshot(node)

    def drop_snapshot(self, node: Node) -> None:
        """Drop the states at a node's end, if they are kept: others do as well."""
        if node.snapshot is None:
            return
        del self._snapshots[node]
        self._snapshot_room += node.snapshot_bytes
        node.snapshot, node.snapshot_bytes = None, 0

    @property
    def snapshots(self) -> list[Node]:
        """The nodes with a snapshot, least recently used first."""
        return list(self._snapshots)

    def nodes(self) -> Iterator[Node]:
        """Every node, for checking the books."""
        stack = [c for root in self._roots.values() for c in root.children.values()]
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            yield node
