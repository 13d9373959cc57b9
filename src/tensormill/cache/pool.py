"""The pages of one lifetime: numbers with reference counts. Page 0 is scratch and never handed out."""

from __future__ import annotations


class PagePool:
    """Hands out page numbers 1…pages−1; a page is free when nobody holds it."""

    def __init__(self, pages: int) -> None:
        self.refs = [0] * pages
        self._free = list(range(pages - 1, 0, -1))

    @property
    def free(self) -> int:
        """How many pages nobody holds."""
        return len(self._free)

    def take(self) -> int | None:
        """A free page, held once; None if there is none."""
        if not self._free:
            return None
        page = self._free.pop()
        self.refs[page] = 1
        return page

    def share(self, page: int) -> int:
        """Hold a page once more."""
        assert self.refs[page] > 0, f"page {page} is free"
        self.refs[page] += 1
        return page

    def drop(self, page: int) -> None:
        """Hold a page once less."""
        assert self.refs[page] > 0, f"page {page} is free already"
        self.refs[page] -= 1
        if not self.refs[page]:
            self._free.append(page)
