"""Losses of 140 algorithms, each a function to copy: `docs/algorithms.md` lists them.

    value_based.py      DQN and its successors, to PQN,
    policy_gradient.py  REINFORCE to PPO, MPO, V-MPO, Muesli, Gumbel MuZero,
    dreamer.py          DreamerV3,
    continuous.py       DDPG, TD3, D4PG, SAC, REDQ, TQC and MPO for continuous actions,
    offline.py          IQL, AWR, CRR, CQL, EDAC, TD3+BC, ReBRAC, BCQ,
    imitation.py        behaviour cloning, DQfD, GAIL, AIRL, SQIL,
    exploration.py      RND, NGU, ICM, bootstrapped DQN,
    streaming.py        stream Q(λ), emphatic, gradient and differential TD,
    language.py         GRPO and its kin, DPO and its kin, distillation,
    language_updates.py, preferences.py    further losses of language models,
    constraints.py      TRPO, CPO, FOCOPS, CUP, P3O,
    phases.py           PPG, continuous PPO, RPO, QDagger,
    multiagent.py       VDN, QMIX, MAPPO, HAPPO, MADDPG, MASAC,
    goals.py            HER, contrastive RL, GCIVL, HIQL, QRL,
    planning.py         TD-MPC2, MPPI, CEM, SPR, BBF, MR.Q, Sampled MuZero,
    flows.py            FQL, FPO, diffusion policies,
    evaluation.py       FQE, off-policy evaluation, MAGIC, successor features, rliable,
    plasticity.py, gflownets.py    ReDo and its kin; balance losses.

The arguments of a loss are parameters, those of the target networks, an `apply`
function and a batch. `apply(params, s)` accepts any number of leading axes. A batch is
any NamedTuple with the fields that the loss reads. Discounts are 0 where the episode
ended. A stream may hold several episodes, cut or not: it has the fields of a transition
and two masks, `truncated_t` and `sample_mask`, as all multistep functions of rlaxlib.
"""
