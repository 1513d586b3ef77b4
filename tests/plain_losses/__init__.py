"""Losses of recipes as their authors' code has them, and batches for them.

`common.py` has batches and networks, each other module the plain losses and the cases
of one module of recipes. A plain loss is transcribed from the file that it names, at a
commit, in the order and with the reductions of that file; where no code is known, from
the paper. Streams are given to it in pieces without masks, as the authors have them:
`common.rollouts`. `agreement.py` is the table of what is equal, and up to what.
"""
