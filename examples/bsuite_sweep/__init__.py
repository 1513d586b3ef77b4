"""The score of bsuite for DQN, bootstrapped DQN and an actor-critic.

- `environments`: bsuite's environments in JAX.
- `agents`: the agents, with the settings of bsuite's baselines.
- `training`: training in one jitted function; scores by bsuite's analysis.
- `page`: the scores, `docs/bsuite.md`.

From the root of the repository, with `examples/` on the path:

    python -m bsuite_sweep                                     # all that is missing
    python -m bsuite_sweep --agents dqn --experiments catch    # one of them
"""
