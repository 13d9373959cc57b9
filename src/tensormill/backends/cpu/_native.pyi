"""The compiled module; its functions are bound in `csrc/linear/bind.cpp` and `csrc/runtime/bind.cpp`."""

from typing import Any

def __getattr__(name: str) -> Any: ...
