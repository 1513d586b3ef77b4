"""How recipes differ from the code that they name: one table, which the tests read.

At random inputs, with ends, cuts and steps to ignore where the recipe takes streams:

    no entry        value and gradient are those of the source, or of the paper where
                    no code of the authors is known,
    times(c, ..)    value and gradient are c times those of the source, which has ...,
    gradient(..)    the gradient is that of the source, whose value is another,
    cosine(c, ..)   the gradient is another on purpose: the source has ....
"""

from typing import NamedTuple

from plain_losses.common import B, D, M


class Agreement(NamedTuple):
    """What is compared, and why it differs."""

    reason: str = ""
    factor: float = 1.0
    cosine: float | None = None
    compares_value: bool = True


def times(factor, reason):
    return Agreement(reason, factor)


def gradient(reason, factor=1.0):
    return Agreement(reason, factor, compares_value=False)


def cosine(value, reason):
    return Agreement(reason, cosine=value)


AGREEMENT = {
    # continuous.py
    "ddpg_critic": times(0.5, "squares without ½"),
    "ddpg_actor": gradient("the value of DPG's loss has no meaning"),
    "p_dqn_critic": times(0.5, "squares without ½"),
    "p_dqn_actor": gradient("the value of DPG's loss has no meaning"),
    "td3_critic": times(0.5, "squares without ½"),
    "sac_actor": cosine(0.99, "the mean of the critics, where this is the minimum"),
    "redq_critic": times(0.5, "squares without ½"),
    "tqc_critic": times(M, "a mean over quantiles, where this is a sum"),
    "drqv2_critic": times(0.5, "squares without ½"),
    # exploration.py
    "rnd": times(M, "a mean over features, where this is a sum"),
    "ngu": cosine(0.928, "a softmax of values as target policy, where this is greedy"),
    "icm": cosine(0.994, "a gradient of the next features, which is stopped here"),
    "bootstrapped_dqn": times(0.5, "squares without ½"),
    # imitation.py
    "airl": times(2.0, "a mean over both batches"),
    "sqil": cosine(0.889, "DQN in place of soft Q-learning"),
    # language.py
    "rloo": gradient("its loss has ratios, which are 1"),
    "remax": cosine(1.0, "a mean over tokens, each with its own KL alone"),
    "opo": gradient("its loss has ratios, which are 1"),
    "vapo": cosine(0.914, "a later reward, discounts, means of prompts, another λ"),
    "orpo": cosine(0.895, "a likelihood by tokens, and a token of padding"),
    "sampled_distillation": times(1 / 20, "a sum over the tokens, here 20"),
    # offline.py
    "iql_critic": times(0.5, "squares without ½"),
    "xql_value": cosine(1.0, "a division by the largest exponential of the batch"),
    "awac_critic": times(0.5, "squares without ½"),
    "awac_actor": cosine(1.0, "a softmax of advantages over the batch"),
    "cql_critic": times(0.5, "squares without ½, and twice the weight"),
    "cal_ql_critic": times(0.5, "squares without ½, and twice the weight"),
    "edac_critic": times(0.5, "squares without ½, and twice the weight"),
    "td3_bc_actor": times(D, "a mean over dimensions of actions"),
    "rebrac_critic": times(0.5, "squares without ½"),
    "bcq_critic": times(0.5, "squares without ½"),
    "bear_critic": times(0.5, "squares without ½"),
    # policy_gradient.py
    "impala": times(1 / 18, "a sum over valid steps, here 18"),
    "coma": cosine(0.967, "a critic that bootstraps from the action taken"),
    "categorical_mpo": cosine(1.0, "a gradient of the temperature by the policy's"),
    "discrete_sac_critic": times(0.5, "squares without ½"),
    # search.py
    "muzero": cosine(0.99, "no rewards after an end, and means over valid steps"),
    # value_based.py
    "branching_dqn": times(0.5, "squares without ½"),
    "persistent_advantage_learning": cosine(0.998, "the gap after an end"),
    "pcl": cosine(0.76, "weights of 1 and 0.1, and paths from the first step"),
    "dqn": gradient("a clipped gradient of the error"),
    "double_dqn": gradient("a clipped gradient of the error"),
    "fqf_fractions": gradient("a sum over the batch", 1 / B),
    "r2d2": times(1 / 3, "a sum over the steps after the burn-in, here 3"),
    "ape_x": times(0.5, "squares without ½"),
    # flows.py
    "flow_bc": times(D, "a mean over dimensions of actions"),
    "qsm": times(D / 2, "a mean over dimensions of actions, without ½"),
    # multiagent.py
    "vdn": times(0.5, "squares without ½"),
    "qmix": times(0.5, "squares without ½"),
    "maddpg_critic": times(0.5, "squares without ½"),
    "masac_critic": times(0.5, "squares without ½"),
    # dreamer.py
    "dreamer_replay_critic": times(20 / 18, "last observations count too, 2 of 20"),
    # evaluation.py
    "fqe": cosine(0.998, "Huber's loss for discrete actions"),
    # language_updates.py
    "topr": cosine(0.909, "ratios of tokens, where these are of answers"),
    "dro": cosine(0.996, "squared log-ratios of tokens, where these are of answers"),
    "clip_cov": gradient("the loss of chosen tokens that PPO clips"),
    # phases.py
    "qdagger": gradient("a KL divergence"),
    # planning.py
    "spr": cosine(0.956, "a mask that begins a step before the end"),
    "bbf": gradient("squared distances of unit vectors, 2 more a step"),
    "sampled_muzero_policy": gradient("a density of actions after a tanh"),
    # preferences.py
    "sppo": times(2.0, "half of the sum over both answers"),
    "bco": times(2.0, "a mean over both answers"),
}
