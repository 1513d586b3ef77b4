"""Calls as users write them. A type checker reports the lines marked `# error`."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import rlaxlib
from rlaxlib import returns, softmax

key = jax.random.key(0)
x, logits = jnp.ones(5), jnp.zeros((5, 3))
actions, mask = jnp.zeros(5, int), jnp.ones(5, bool)
table, number = np.ones(5, np.float32), np.float32(0.5)
batch, valid = jnp.ones((2, 5)), jnp.ones((2, 5), bool)

# --- Arrays, NumPy arrays and Python numbers. ---

error: Array = rlaxlib.td_learning(1.0, 2.0, 0.5, 4.0)
error = rlaxlib.td_learning(1, 2, 0, number)
error = rlaxlib.td_learning(v_tm1=x[0], r_t=1.0, discount_t=number, v_t=table[0])
error = rlaxlib.q_learning(logits[0], actions[0], 1.0, 0.9, table[:3])
error = rlaxlib.q_learning(logits[0], 2, 1.0, 0.9, table[:3], True)
values: Array = rlaxlib.lambda_returns(x, table, x, 0.9, sample_mask=mask)
values = returns.lambda_returns(r_t=x, discount_t=x, v_t=x, lambda_=number)
values = rlaxlib.lambda_returns(x, x, x, stop_target_gradients=False, truncated_t=None)
estimates = rlaxlib.vtrace_td_error_and_advantage(x, x, x, x, x, truncated_t=mask)
advantages: Array = 2 * estimates.pg_advantage + estimates.errors
step: Array = jax.jit(rlaxlib.vtrace)(x, x, x, x, x)
gradient: Array = jax.grad(rlaxlib.td_learning)(1.0, 2.0, 0.5, 4.0)
mapped: Array = jax.vmap(rlaxlib.lambda_returns)(batch, batch, batch)

rlaxlib.td_learning(1.0, 2.0, 0.5)  # error
rlaxlib.td_learning(1.0, 2.0, 0.5, None)  # error
rlaxlib.td_learning(1.0, 2.0, 0.5, "4.0")  # error
rlaxlib.td_learning(1.0, 2.0, 0.5, 4.0, stop_gradients=True)  # error
rlaxlib.td_learning(1.0, 2.0, 0.5, 4.0, v_t=4.0)  # error
rlaxlib.lambda_returns([1.0, 2.0], x, x)  # error
rlaxlib.lambda_returns(x, x, x, lamda=0.9)  # error
rlaxlib.lambda_returns(x, x, x, 0.9, False, None, mask, mask)  # error
rlaxlib.lambda_return(x, x, x)  # error
returns.gae(x, x, x)  # error
print(estimates.advantages)  # error

# --- Options. ---

loss: Array = rlaxlib.kl_loss(x, table, "k1").mean()
loss = rlaxlib.kl_loss(x, x, kind="k3", sample_mask=mask)
loss = rlaxlib.aggregate_losses(batch, "sequence_mean_token_mean", sample_mask=valid)
loss = rlaxlib.dpo_loss(x, x, x, x, beta=0.1, kind="ipo")
shares: Array = rlaxlib.group_advantages(x, baseline="leave_one_out", scale="none")
shares = rlaxlib.group_advantages(x, "none", sample_mask=mask, axis_name=None)
estimate: Array = rlaxlib.pass_at_k(np.array([1, 2]), 10, k=4)
weights: Array = rlaxlib.importance_weights(x, "sequence", "mask", maximum=3)
priorities: Array = rlaxlib.importance_sampling_weights(x, 0.4)
clipped, diagnostics = rlaxlib.ppo_clip_loss(x, x, x, 0.2, sample_mask=mask)
share: Array = rlaxlib.masked_mean(diagnostics.clipped.astype(float), mask=mask)

rlaxlib.kl_loss(x, x, "k4")  # error
rlaxlib.kl_loss(x, x, kind="K1")  # error
rlaxlib.kl_loss(x, x, kind=3)  # error
rlaxlib.aggregate_losses(batch, "tokenmean", sample_mask=valid)  # error
rlaxlib.dpo_loss(x, x, x, x, kind="exo")  # error
rlaxlib.group_advantages(x, scale="std2")  # error
rlaxlib.group_advantages(x, baseline="median")  # error
rlaxlib.group_advantages(x, baseline=x)  # error
rlaxlib.importance_weights(x, sample_mask=mask, kind="clip")  # error
rlaxlib.pass_at_k(1, 4)  # error
rlaxlib.pass_at_k(1, 4, k=2.5)  # error
rlaxlib.ppo_clip_loss(x, x, x, clip_epsilon=0.2)  # error
print(diagnostics.ratios)  # error

# --- Distributions. ---

policy = softmax(temperature=0.5)
action: Array = policy.sample(key, logits, action_mask=jnp.ones(3, bool))
probs: Array = policy.probs(logits)
log_prob: Array = policy.log_prob(action, logits)
log_prob = policy.logprob(action, logits)
entropy: Array = policy.entropy(logits).mean()
divergence: Array = policy.kl(logits, logits).sum()
normal = rlaxlib.gaussian_diagonal(1.0)
chosen: Array = normal.sample(key, logits)
density: Array = normal.log_prob(chosen, logits)
bounded: Array = rlaxlib.squashed_gaussian().sample(key, x, x, minimum=-2.0, maximum=x)
any_policy: rlaxlib.DiscreteDistribution = policy
function = policy.probs
by_hand = rlaxlib.DiscreteDistribution(function, function, function, function, None)
temperature = rlaxlib.Softmax(0.5).temperature
pair: rlaxlib.TxPair = rlaxlib.SIGNED_HYPERBOLIC_PAIR
pair = rlaxlib.compose_tx(rlaxlib.TxPair(jnp.sqrt, jnp.square), pair)
encoded: Array = rlaxlib.twohot_pair(-1.0, 1.0, num_bins=5).apply(x)
greedy: Array = rlaxlib.epsilon_greedy(0.1).probs(logits)

policy.sample(logits)  # error
policy.sample(key)  # error
policy.probs(logits, mask=mask)  # error
policy.log_prob(logits=logits)  # error
policy.logprob(logits=logits)  # error
normal.log_prob(chosen, logits, maximum=1.0)  # error
rlaxlib.TxPair(jnp.sqrt)  # error
pair.invert(x)  # error
policy.kl(p_logits=logits, q_logit=logits)  # error
policy.entropies(logits)  # error
softmax(temprature=0.5)  # error
rlaxlib.epsilon_greedy(0.1).sample(logits)  # error

# --- States. ---

init, update = rlaxlib.running_moments()
state = init(jnp.zeros(5))
moments, state = update(state, batch, sample_mask=jnp.ones(2, bool))
running: rlaxlib.RunningMoments = rlaxlib.running_moments()
ema: rlaxlib.Ema = rlaxlib.create_ema(decay=0.99)
averages, average = ema.update(x, ema.init(x))
mean: Array = averages.mean
rescaled = rlaxlib.reward_scale(0.99)
memory = rescaled.init(x)

running.update(batch)  # error
running.update(state, batch, mask=mask)  # error
ema.update(x)  # error
ema.init()  # error
ema.upgrade(x, average)  # error
rlaxlib.create_ema(decay_rate=0.99)  # error
rescaled.update(1.0, 0.9)  # error
