"""Losses of agents in plain `jax.numpy`, and batches for them: the tests of recipes.

`common.py` has batches, networks and what losses share, each other module the plain
losses and the cases of one module of recipes. A plain loss names its source, a file at
a commit, and is its loss, with its constants. Most are written from that file; those of
the first version are the paper's formula, found equal to the file when they were read
side by side.
"""
