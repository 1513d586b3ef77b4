"""Losses of agents in plain `jax.numpy`, and batches for them: the tests of recipes.

`common.py` has batches, networks and what losses share, each other module the plain
losses and the cases of one module of recipes. A plain loss is the one of the source
that its docstring names: the formulas of that file, at that commit, with its constants.
"""
