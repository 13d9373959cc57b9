"""Drawer blocks: pieces that several architectures share, as plain functions over the tracer.

Each takes `g` (tracer), `w` (one block's tensors), `c` (hyperparameters) and traces ops;
none knows which architecture calls it.
"""
