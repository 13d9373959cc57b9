"""Room quant: what the bytes of each ggml block type mean, in NumPy, as the truth for kernels.

`decode` knows every type, `encode` those that files are made with. Geometry is `tensormill.gguf.GGMLType`.
"""

from tensormill.quant.decode import DECODABLE, decode
from tensormill.quant.encode import ENCODABLE, encode

__all__ = ["DECODABLE", "ENCODABLE", "decode", "encode"]
