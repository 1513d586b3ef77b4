"""How recipes agree with the code that they name: one table, which the tests read.

At random inputs, with ends, cuts and steps to ignore where the recipe takes streams:

    EQUAL           value and gradient are those of the source,
    times(c, ..)    value and gradient are c times those of the source, which has ...,
    gradient(..)    the gradient is that of the source, whose value is another,
    cosine(c, ..)   the gradient is another on purpose: the source has ...,
    PAPER           no code of the authors is known: the paper's equation.
"""

from typing import NamedTuple

from plain_losses.common import B, D, M


class Agreement(NamedTuple):
    """What is compared, and why it differs."""

    reason: str = ""
    factor: float = 1.0
    cosine: float | None = None
    compares_value: bool = True
    is_of_paper: bool = False


EQUAL = Agreement()
PAPER = Agreement(is_of_paper=True)


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
    "td3_actor": EQUAL,
    "d4pg_critic": EQUAL,
    "d4pg_actor": EQUAL,
    "sac_critic": EQUAL,
    "sac_actor": cosine(0.99, "the mean of the critics, where this is the minimum"),
    "sac_temperature": EQUAL,
    "redq_critic": times(0.5, "squares without ½"),
    "redq_actor": EQUAL,
    "tqc_critic": times(M, "a mean over quantiles, where this is a sum"),
    "tqc_actor": EQUAL,
    "mpo": EQUAL,
    "crossq_critic": EQUAL,
    "bro_critic": EQUAL,
    "bro_actor": EQUAL,
    "categorical_sac_critic": EQUAL,
    "xqc_critic": EQUAL,
    "fast_sac_critic": EQUAL,
    "fast_td3_critic": EQUAL,
    "fast_td3_actor": EQUAL,
    "drqv2_critic": times(0.5, "squares without ½"),
    "drqv2_actor": EQUAL,
    "reppo_critic": EQUAL,
    "reppo_actor": EQUAL,
    # exploration.py
    "rnd": times(M, "a mean over features, where this is a sum"),
    "rnd_ppo": EQUAL,
    "ngu_embedding": EQUAL,
    "ngu": cosine(0.928, "a softmax of values as target policy, where this is greedy"),
    "icm": cosine(0.994, "a gradient of the next features, which is stopped here"),
    "bootstrapped_dqn": times(0.5, "squares without ½"),
    "tdc": PAPER,
    "gtd2": PAPER,
    # imitation.py
    "bc": EQUAL,
    "dqfd": EQUAL,
    "gail": EQUAL,
    "airl": times(2.0, "a mean over both batches"),
    "sqil": cosine(0.889, "DQN in place of soft Q-learning"),
    # language.py
    "grpo": EQUAL,
    "dr_grpo": EQUAL,
    "dapo": EQUAL,
    "rloo": gradient("its loss has ratios, which are 1"),
    "remax": cosine(1.0, "a mean over tokens, each with its own KL alone"),
    "opo": gradient("its loss has ratios, which are 1"),
    "reinforce_plus_plus": EQUAL,
    "gspo": EQUAL,
    "cispo": EQUAL,
    "sapo": EQUAL,
    "gmpo": EQUAL,
    "vapo": cosine(0.914, "a later reward, discounts, means of prompts, another λ"),
    "dpo": EQUAL,
    "ipo": EQUAL,
    "simpo": EQUAL,
    "orpo": cosine(0.895, "a likelihood by tokens, and a token of padding"),
    "kto": EQUAL,
    "reward_model": EQUAL,
    "rlhf_ppo": EQUAL,
    "sampled_distillation": times(1 / 20, "a sum over the tokens, here 20"),
    "on_policy_distillation": EQUAL,
    # offline.py
    "decision_transformer": EQUAL,
    "iql_value": EQUAL,
    "iql_critic": times(0.5, "squares without ½"),
    "iql_actor": EQUAL,
    "xql_value": cosine(1.0, "a division by the largest exponential of the batch"),
    "sql_value": EQUAL,
    "sql_actor": EQUAL,
    "awr": EQUAL,
    "awac_critic": times(0.5, "squares without ½"),
    "awac_actor": cosine(1.0, "a softmax of advantages over the batch"),
    "crr_actor": EQUAL,
    "cql_critic": times(0.5, "squares without ½, and twice the weight"),
    "cql_temperature": EQUAL,
    "cal_ql_critic": times(0.5, "squares without ½, and twice the weight"),
    "discrete_cql": EQUAL,
    "edac_critic": times(0.5, "squares without ½, and twice the weight"),
    "td3_bc_actor": times(D, "a mean over dimensions of actions"),
    "rebrac_critic": times(0.5, "squares without ½"),
    "rebrac_actor": EQUAL,
    "vae_loss": EQUAL,
    "bcq_critic": times(0.5, "squares without ½"),
    "bcq_actor": EQUAL,
    "bear_critic": times(0.5, "squares without ½"),
    "bear_actor": EQUAL,
    "discrete_bcq": EQUAL,
    # policy_gradient.py
    "reinforce": PAPER,
    "a2c": EQUAL,
    "impala": times(1 / 18, "a sum over valid steps, here 18"),
    "acer": EQUAL,
    "coma": cosine(0.967, "a critic that bootstraps from the action taken"),
    "ppo": EQUAL,
    "spo": EQUAL,
    "discovered_policy_optimization": EQUAL,
    "ppo_lagrangian": EQUAL,
    "ppo_penalty": EQUAL,
    "decoupled_ppo": EQUAL,
    "categorical_mpo": cosine(1.0, "a gradient of the temperature by the policy's"),
    "vmpo": EQUAL,
    "muesli": PAPER,
    "smc_actor": EQUAL,
    "smc_critic": EQUAL,
    "discrete_sac_critic": times(0.5, "squares without ½"),
    "discrete_sac_actor": EQUAL,
    "discrete_sac_temperature": EQUAL,
    "masked_ppo": EQUAL,
    "recurrent_ppo": EQUAL,
    # search.py
    "alphazero": EQUAL,
    "muzero": cosine(0.99, "no rewards after an end, and means over valid steps"),
    "gumbel_muzero": EQUAL,
    # value_based.py
    "munchausen_iqn": EQUAL,
    "dqn_reg": EQUAL,
    "branching_dqn": times(0.5, "squares without ½"),
    "mmd_dqn": EQUAL,
    "advantage_learning": EQUAL,
    "persistent_advantage_learning": cosine(0.998, "a scale of the larger advantage"),
    "deep_mellow": EQUAL,
    "pcl": cosine(0.76, "weights of 1 and 0.1, and paths from the first step"),
    "n_step_dqn": EQUAL,
    "dqn": gradient("a clipped gradient of the error"),
    "double_dqn": gradient("a clipped gradient of the error"),
    "dueling_dqn": EQUAL,
    "c51": EQUAL,
    "qr_dqn": EQUAL,
    "iqn": EQUAL,
    "fqf": EQUAL,
    "fqf_fractions": gradient("a sum over the batch", 1 / B),
    "rainbow": EQUAL,
    "munchausen_dqn": EQUAL,
    "r2d2": times(1 / 3, "a sum over the steps after the burn-in, here 3"),
    "ape_x": times(0.5, "squares without ½"),
    "pqn": EQUAL,
    # constraints.py
    "focops": EQUAL,
    "cup": EQUAL,
    "p3o": EQUAL,
    # flows.py
    "flow_bc": times(D, "a mean over dimensions of actions"),
    "fql_critic": EQUAL,
    "fql_actor": EQUAL,
    "flow_grpo": EQUAL,
    "diffusion_nft": EQUAL,
    "qc_flow": EQUAL,
    "qc_critic": EQUAL,
    "diffusion_ql_critic": EQUAL,
    "diffusion_ql_actor": EQUAL,
    "fpo": EQUAL,
    "diffusion_bc": EQUAL,
    "qsm": times(D / 2, "a mean over dimensions of actions, without ½"),
    "diffusion_ppo": EQUAL,
    # goals.py
    "contrastive_critic": EQUAL,
    "contrastive_actor": EQUAL,
    "gcbc": EQUAL,
    "gciql_values": EQUAL,
    "gciql_actor": EQUAL,
    "gcivl_actor": EQUAL,
    "hiql_actor": EQUAL,
    "gcivl_value": EQUAL,
    "qrl_value": EQUAL,
    # multiagent.py
    "vdn": times(0.5, "squares without ½"),
    "qmix": times(0.5, "squares without ½"),
    "mappo": EQUAL,
    "happo": EQUAL,
    "maddpg_critic": times(0.5, "squares without ½"),
    "maddpg_actor": EQUAL,
    "masac_critic": times(0.5, "squares without ½"),
    "masac_actor": EQUAL,
    "masac_temperature": EQUAL,
    # dreamer.py
    "dreamer_model": EQUAL,
    "dreamer_actor": EQUAL,
    "dreamer_critic": EQUAL,
    "dreamer_replay_critic": times(20 / 18, "last observations count too, 2 of 20"),
    # evaluation.py
    "fqe": cosine(0.998, "Huber's loss for discrete actions"),
    "successor_features": PAPER,
    # gflownets.py
    "trajectory_balance": EQUAL,
    "sub_trajectory_balance": EQUAL,
    # language_updates.py
    "dppo": EQUAL,
    "max_rl": EQUAL,
    "vespo": EQUAL,
    "otb": EQUAL,
    "dft": EQUAL,
    "topr": cosine(0.909, "ratios of tokens, where these are of answers"),
    "dro": cosine(0.996, "squared log-ratios of tokens, where these are of answers"),
    "kl_cov": EQUAL,
    "gdpo": EQUAL,
    "prime_ipo": EQUAL,
    "clip_cov": gradient("the loss of chosen tokens that PPO clips"),
    "pass_at_k": PAPER,
    "sequence_mask_tis": EQUAL,
    # phases.py
    "ppg_auxiliary": EQUAL,
    "qdagger": gradient("a KL divergence"),
    "gaussian_ppo": EQUAL,
    "rpo": EQUAL,
    # planning.py
    "tdmpc2_model": EQUAL,
    "tdmpc2_actor": EQUAL,
    "spr": cosine(0.956, "a mask that begins a step before the end"),
    "bbf": gradient("squared distances of unit vectors, 2 more a step"),
    "mrq_encoder": EQUAL,
    "mrq_critic": EQUAL,
    "mrq_actor": EQUAL,
    "sampled_muzero_policy": gradient("a density of actions after a tanh"),
    # plasticity.py
    "l2_init": EQUAL,
    # preferences.py
    "sppo": times(2.0, "half of the sum over both answers"),
    "bco": times(2.0, "a mean over both answers"),
    "apo_zero": EQUAL,
    "nca": EQUAL,
    "exo": EQUAL,
    "f_dpo": EQUAL,
}
