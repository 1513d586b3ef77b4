"""Losses of agents in plain `jax.numpy`, and batches for them: the tests of recipes.

`common.py` has batches, networks and what losses share, each other module the plain
losses and the cases of one module of recipes.
"""
