"""PPO on MinAtar, with separate networks for policy and values.

    rlaxlib.softmax                            the policy,
    rlaxlib.generalized_advantage_estimation   the advantages (GAE),
    rlaxlib.standardize                        the standardised advantages,
    rlaxlib.ppo_clip_loss                      the loss of the policy,
    rlaxlib.ppo_value_loss                     the loss of the values.

The hyper-parameters are those of `agents/*-MinAtar/ppo.yaml` of
https://github.com/RobertTLange/gymnax-blines, for 10 million steps, and the published
returns are those that https://github.com/RobertTLange/gymnax lists for the checkpoints.
As there, an evaluation samples actions from the policy.

Reference:
    John Schulman and others, *Proximal Policy Optimization Algorithms*, 2017.
    https://arxiv.org/abs/1707.06347
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import rlaxlib
from minatar.games import Agent, Game, World

SOURCE = "https://github.com/RobertTLange/gymnax"
PUBLISHED = {"Breakout": 28, "Asterix": 15, "Freeway": 58, "SpaceInvaders": 131}

NUM_ENVS, NUM_STEPS = 64, 128
EPOCHS, MINIBATCHES = 4, 8
LEARNING_RATE, ADAM_EPSILON = 5e-4, 1e-5
MAX_NORM = 0.5  # Of gradients.
DISCOUNT, LAMBDA = 0.999, 0.95
CLIP = 0.2  # Of ratios, and of changes of values.
VALUE_COST, ENTROPY_COST = 0.5, 0.01
HIDDEN_UNITS = 256


class Network(nn.Module):
    """Two hidden layers each for the policy over A actions and for the value."""

    num_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return logits, [..., A], and values, [...]."""
        x = x.reshape(*x.shape[:-3], -1).astype(jnp.float32)
        init = nn.initializers.uniform(0.05)

        def mlp(outputs):
            y = x
            for _ in range(2):
                y = nn.relu(nn.Dense(HIDDEN_UNITS, bias_init=init)(y))
            return nn.Dense(outputs, bias_init=init)(y)

        return mlp(self.num_actions), mlp(1)[..., 0]


class State(NamedTuple):
    """State of a training run."""

    params: Any
    optimizer: optax.OptState
    world: World


class Batch(NamedTuple):
    """Time steps to learn from, [B, ...]."""

    s: jax.Array
    a: jax.Array
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array


def make(game: Game, steps: int) -> Agent:
    """Create a PPO agent for a game; no hyper-parameter depends on the steps."""
    network, policy = Network(game.num_actions), rlaxlib.softmax()
    round_steps = NUM_ENVS * NUM_STEPS
    optimizer = optax.flatten(
        optax.chain(
            optax.clip_by_global_norm(MAX_NORM),
            optax.adam(LEARNING_RATE, eps=ADAM_EPSILON),
        )
    )

    def init(key):
        init_key, reset_key = jax.random.split(key)
        world = game.reset(reset_key, NUM_ENVS)
        params = network.init(init_key, world.observation)
        return State(params, optimizer.init(params), world)

    def act(state, key, s):
        return policy.sample(key, network.apply(state.params, s)[0])

    def update(state, key):
        collect_key, shuffle_key = jax.random.split(key)
        world, rollout = game.collect(
            collect_key, state.world, lambda *inputs: act(state, *inputs), NUM_STEPS
        )
        logits, value = network.apply(state.params, rollout.s_tm1)
        next_value = network.apply(state.params, rollout.s_t)[1]
        batch = Batch(
            s=rollout.s_tm1,
            a=rollout.a_tm1,
            log_prob=policy.logprob(rollout.a_tm1, logits),
            value=value,
            advantage=jax.vmap(advantage, in_axes=1, out_axes=1)(
                rollout, value, next_value
            ),
        )
        batch = jax.tree.map(lambda x: x.reshape(round_steps, *x.shape[2:]), batch)

        def step(carry, rows):
            params, optimizer_state = carry
            gradient = jax.grad(loss)(params, jax.tree.map(lambda x: x[rows], batch))
            updates, optimizer_state = optimizer.update(gradient, optimizer_state)
            return (optax.apply_updates(params, updates), optimizer_state), None

        order = jax.vmap(jax.random.permutation, (0, None))(
            jax.random.split(shuffle_key, EPOCHS), round_steps
        )
        (params, optimizer_state), _ = jax.lax.scan(
            step,
            (state.params, state.optimizer),
            order.reshape(EPOCHS * MINIBATCHES, -1),
        )
        return State(params, optimizer_state, world)

    def loss(params, batch):
        logits, value = network.apply(params, batch.s)
        policy_loss, _ = rlaxlib.ppo_clip_loss(
            log_prob=policy.logprob(batch.a, logits),
            old_log_prob=batch.log_prob,
            adv=rlaxlib.standardize(batch.advantage),
            epsilon=CLIP,
        )
        value_loss, _ = rlaxlib.ppo_value_loss(
            v=value,
            old_v=batch.value,
            targets=batch.value + batch.advantage,
            epsilon=CLIP,
        )
        bonus = ENTROPY_COST * policy.entropy(logits)
        return jnp.mean(policy_loss + VALUE_COST * value_loss - bonus)

    return Agent(round_steps, init, update, act)


def advantage(rollout, value, next_value):
    """Estimate the advantages of one environment by GAE, [T]."""
    return rlaxlib.generalized_advantage_estimation(
        v_tm1=value,
        v_t=next_value,
        r_t=rollout.r_t,
        discount_t=DISCOUNT * rollout.discount_t,
        lambda_=LAMBDA,
        truncated_t=rollout.truncated_t,
    )
