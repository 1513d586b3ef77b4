"""PPO, DQN and PQN on MinAtar, with the hyper-parameters of published results.

- `ppo`, `dqn`, `pqn`: the agents, each a file to copy, with its source.
- `games`: the games of gymnax, training in one jitted function, evaluation.
- `page`: the results beside the published ones, `docs/minatar.md`.

From the root of the repository, with `examples/` on the path:

    python -m minatar                                    # all that is missing
    python -m minatar --agents=pqn --games=Breakout      # one of them
    python -m minatar --steps=10000000                   # the sources' budget
"""
