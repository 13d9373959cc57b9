"""Room gguf: reads (mapped, split files) and writes GGUF; typed, validated metadata.

`GGUFFile` reads, `GGUFWriter` writes, `GGMLType` is the geometry of tensor types.
What the bytes of a block mean is in `tensormill.quant`.
"""

from tensormill.gguf.file import GGUFFile
from tensormill.gguf.header import TensorInfo
from tensormill.gguf.metadata import Metadata
from tensormill.gguf.types import GGMLType
from tensormill.gguf.values import ValueType
from tensormill.gguf.writer import GGUFWriter

__all__ = ["GGMLType", "GGUFFile", "GGUFWriter", "Metadata", "TensorInfo", "ValueType"]
