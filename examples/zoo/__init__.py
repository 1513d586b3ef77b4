"""A zoo: each recipe of `recipes/` trained on a small task, at five seeds.

    PYTHONPATH=examples python -m zoo                 # all, as `make zoo` does
    PYTHONPATH=examples python -m zoo dqn ppo         # some
    PYTHONPATH=examples python -m zoo --faults dqn    # with a part taken out, to fail

An `Entry` trains one algorithm in one jitted function and states the return that its
worst seed of five reaches. Files are families, as those of `recipes/`. `tasks.py` has
the environments and `training.py` the loops; `__main__.py` writes `results.json`.
"""
