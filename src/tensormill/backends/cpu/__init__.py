"""The CPU backend: C++ kernels, one native call a step.

`compile` lowers a program to flat records (`lower.py`), packs the weights (`weights.py`), plans memory and returns an
`Executable` (`executable.py`). Kernels are in `csrc/`; what an op means is in `backends/reference`.
"""

from tensormill.backends.cpu.executable import CPUExecutable, compile

__all__ = ["CPUExecutable", "compile"]
