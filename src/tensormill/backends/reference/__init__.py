"""Backend reference: the NumPy definition of every op, and an executable that runs programs by it.

Compiles anything; float32 throughout. Ops are in one file a family, `kinds.py` lists them.
"""

from tensormill.backends.reference.executable import Reference, compile

__all__ = ["Reference", "compile"]
