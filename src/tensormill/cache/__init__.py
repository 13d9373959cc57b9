"""Pages, the prefix tree, recurrent-state slots and snapshots: who holds what, with no tensor in sight."""

from tensormill.cache.cache import Cache, Holding, Keep
from tensormill.cache.disk import DiskTier
from tensormill.cache.files import Files
from tensormill.cache.pool import PagePool
from tensormill.cache.tree import Node, PrefixTree

__all__ = ["Cache", "DiskTier", "Files", "Holding", "Keep", "Node", "PagePool", "PrefixTree"]
