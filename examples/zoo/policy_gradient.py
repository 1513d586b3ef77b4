"""The zoo's policy gradients, on fresh streams of Catch and of the corridor."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import policy_gradient as recipes
from recipes.continuous import ActorCritic

import rlaxlib
from zoo import dreamer, recurrent
from zoo.networks import forward, mlp
from zoo.tasks import catch, corridor
from zoo.training import Agent, Entry, State, begin, descend, online

CATCH, CORRIDOR = catch(), corridor()
OPTIMIZER = optax.adam(3e-3)
ALL, REWARD = ("reward", "bootstrap", "gradient"), ("reward",)
EPOCHS = 4  # Updates on the same streams, for algorithms that allow several.


class Stream(NamedTuple):
    """Streams, [B, T], with the logits and the values of the policy that acted."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    s_t: jax.Array
    truncated_t: jax.Array
    sample_mask: Any
    logits_tm1: jax.Array
    v_tm1: jax.Array
    v_t: jax.Array


class Learner(NamedTuple):
    """State of a learner, and what it carries beside its parameters."""

    state: State
    extra: Any


class Network(NamedTuple):
    """Functions that make parameters, and that apply them to observations."""

    init: Callable[[jax.Array], Any]
    apply: Callable[..., Any]  # To logits, [..., A], and to values.


def policy_and_value(params, s):
    """Return logits, [..., A], and state values, [...]."""
    x = forward(params, s)
    return x[..., :-1], x[..., -1]


def policy_and_q(params, s):
    """Return logits and action values, both [..., A]."""
    return jnp.split(forward(params, s), 2, axis=-1)


def with_value(task):
    """Return a network of a policy and state values."""
    sizes = task.size, 32, task.actions + 1
    return Network(lambda key: mlp(key, *sizes, scale=0.1), policy_and_value)


def with_q(task):
    """Return a network of a policy and action values."""
    sizes = task.size, 32, 2 * task.actions
    return Network(lambda key: mlp(key, *sizes, scale=0.1), policy_and_q)


def agent(network, loss, period=1, rate=None, extra=None, after=None):
    """Return an agent that acts by its target network.

    With a period of the updates a round, that is the policy that acted in all epochs.

    Args:
        network: Network.
        loss: Function of parameters, target parameters, streams and extra.
        period: Updates from one copy of the target network to the next.
        rate: Step of the target network towards the other, in place of copies.
        extra: What the learner carries at first; or a function of the parameters.
        after: Function of extra, the next state and the streams, to the next extra.
    """
    init, apply = network

    def act(params, key, s):
        return rlaxlib.softmax().sample(key, apply(params, s)[0])

    def update(learner, key, batch):
        state, extra = learner
        outputs = (apply(state.target, s) for s in (batch.s_tm1, batch.s_t))
        (logits, v_tm1), (_, v_t) = outputs
        batch = Stream(*batch, logits, v_tm1, v_t)
        old = state.target
        state = descend(state, lambda p: loss(p, old, batch, extra), OPTIMIZER, period)
        if rate is not None:
            target = optax.incremental_update(state.params, old, rate)
            state = state._replace(target=target)
        return Learner(state, after(extra, state, batch) if after else extra)

    def first(key):
        state = begin(init(key), OPTIMIZER)
        return Learner(state, extra(state.params) if callable(extra) else extra)

    return Agent(
        init=first,
        act=lambda learner, key, s: act(learner.state.target, key, s),
        best=lambda learner, key, s: act(learner.state.params, key, s),
        update=update,
    )


def entry(recipe, task, agent, fails=("reward", "bootstrap"), without=None, **options):
    """Return an entry, whose sampled actions go nine tenths of the way to the best.

    `without` has agents that lack a part.
    """
    options, parts = {"updates": 300, "num": 32, "steps": 10} | options, without or {}
    return Entry(
        recipe=f"policy_gradient.{recipe}",
        run=online(task, agent, **options),
        about=task.about,
        random=task.random,
        best=task.best,
        states=task.random + 0.9 * (task.best - task.random),
        fails=fails,
        without={part: online(task, x, **options) for part, x in parts.items()},
    )


# --- Policy gradients. ---


def reinforce(params, target, batch, _):
    """Return the loss of the whole episodes in the streams."""
    ended = (batch.discount_t == 0) | batch.truncated_t
    whole = jnp.cumsum(ended[:, ::-1], axis=1)[:, ::-1] > 0
    batch = batch._replace(sample_mask=whole)
    return recipes.reinforce(params, lambda p, s: policy_and_value(p, s)[0], batch)


def a2c(params, target, batch, _):
    return recipes.a2c(params, policy_and_value, batch)


def impala(params, target, batch, _):
    return recipes.impala(params, policy_and_value, batch)


def acer():
    """Return an agent with a trust region around the average of its policies."""

    def loss(params, target, batch, average):
        return recipes.acer(params, average, policy_and_q, batch)

    def after(average, state, batch):
        return optax.incremental_update(state.params, average, 0.01)

    options = {"extra": lambda params: params, "after": after}
    return agent(with_q(CORRIDOR), loss, EPOCHS, **options)


# --- PPO and its variants. ---


def surrogate(recipe):
    """Return an agent for several epochs of a loss of parameters, `apply` and batch."""

    def loss(params, target, batch, _):
        return recipe(params, policy_and_value, batch)

    return agent(with_value(CATCH), loss, period=EPOCHS)


def ppo_penalty():
    """Return an agent whose coefficient changes after the last epoch of a batch."""

    def loss(params, target, batch, coefficient):
        return recipes.ppo_penalty(params, policy_and_value, batch, coefficient)

    def after(coefficient, state, batch):
        inputs = coefficient, state.params, policy_and_value, batch
        last = state.count % EPOCHS == 0
        return jnp.where(last, recipes.kl_coefficient(*inputs), coefficient)

    options = {"extra": jnp.ones(()), "after": after}
    return agent(with_value(CATCH), loss, period=EPOCHS, **options)


def decoupled_ppo():
    """Return an agent that acts by parameters 20 updates old, beside their average."""

    def loss(params, target, batch, average):
        return recipes.decoupled_ppo(params, average, policy_and_value, batch)

    def after(average, state, batch):
        return optax.incremental_update(state.params, average, 1 - 0.889)

    options = {"extra": lambda params: params, "after": after}
    return agent(with_value(CATCH), loss, period=20, **options)


# --- MPO, V-MPO, Muesli. ---


class Policy(NamedTuple):
    """Parameters of V-MPO."""

    policy: Any
    duals: Any


def categorical_mpo(params, target, batch, _):
    """Return the losses of the policy and, by Retrace, of the critic."""
    loss = recipes.categorical_mpo(
        params, target, ActorCritic(forward, forward), batch, (0.1, 0.01)
    )
    q_tm1 = forward(params.critic, batch.s_tm1)
    q_t, pi_t = forward(target.critic, batch.s_t), forward(target.actor, batch.s_t)
    mu = jnp.exp(recipes.log_probs(batch.logits_tm1, batch.a_tm1))
    inputs = q_tm1, q_t, jax.nn.softmax(pi_t), mu, batch
    errors = recipes.retrace_errors(*inputs, 0.95)
    return loss + jnp.mean(rlaxlib.l2_loss(errors))


def mpo_network(task):
    """Return the networks of MPO, and its dual variables."""

    def init(key):
        sizes = task.size, 32, task.actions
        networks = (mlp(k, *sizes, scale=0.1) for k in jax.random.split(key))
        return ActorCritic(*networks, duals=jnp.ones(2))

    def apply(params, s):
        return forward(params.actor, s), forward(params.critic, s)

    return Network(init, apply)


def vmpo(params, target, batch, _):
    return recipes.vmpo(params, target, policy_and_value, batch)


def vmpo_network(task):
    """Return the network of V-MPO, and its dual variables."""
    init, apply = with_value(task)
    return Network(
        lambda key: Policy(init(key), jnp.ones(2)),
        lambda params, s: apply(params.policy, s),
    )


# --- Discrete SAC. ---


def discrete_sac(task):
    """Return an agent that learns from replay, with a target entropy of 0.1 log A."""
    apply = ActorCritic(forward, jax.vmap(forward, (0, None), 1))

    def init(key):
        sizes = task.size, 32, task.actions
        actor_key, critic_key = jax.random.split(key)
        critics = jax.vmap(lambda k: mlp(k, *sizes))(jax.random.split(critic_key))
        actor = mlp(actor_key, *sizes, scale=0.1)
        return begin(ActorCritic(actor, critics, jnp.log(0.1)), OPTIMIZER)

    def update(state, key, batch):
        temperature = jnp.exp(state.params.duals)

        def loss(p):
            critic = recipes.discrete_sac_critic(
                p, state.target, apply, batch, temperature
            )
            actor = recipes.discrete_sac_actor(p, apply, batch, temperature)
            dual = recipes.discrete_sac_temperature(
                p.duals, p, apply, batch, 0.1 * jnp.log(task.actions)
            )
            return critic + actor + dual

        return descend(state, loss, OPTIMIZER, 20)

    def act(state, key, s):
        return rlaxlib.softmax().sample(key, forward(state.params.actor, s))

    return Agent(init=init, act=act, best=act, update=update)


# --- Muesli. ---


def muesli(task):
    """Return an agent, whose action values stand for those of a one-step model.

    It carries the scale of the advantages, and the moving average of their squares.
    """
    init, update = rlaxlib.create_ema(0.99)

    def loss(params, target, batch, extra):
        return recipes.muesli(params, target, policy_and_q, batch, extra[0])[0]

    def after(extra, state, batch):
        _, square = recipes.muesli(state.params, state.target, policy_and_q, batch)
        moments, average = update(square, extra[1])
        return jnp.sqrt(moments.mean + 1e-8), average

    extra = jnp.ones(()), init(jnp.zeros(()))
    return agent(with_q(task), loss, rate=0.1, extra=extra, after=after)


# --- A mask of legal actions: PPO on a corridor where most actions end the episode. ---


def trapped():
    """Return the corridor with 16 actions, of which each cell has two legal ones.

    These go back and on. An illegal action ends the episode.
    """

    def step(key, x, a):
        after, reward, over = CORRIDOR.step(key, x, a % 2)
        illegal = a // 2 != x
        return after, jnp.where(illegal, 0.0, reward), over | illegal

    return CORRIDOR._replace(
        about=f"{CORRIDOR.about}; 14 of 16 actions are illegal, and end the episode",
        step=step,
        actions=16,
        random=0.0,
    )


TRAPPED = trapped()


def legal(s):
    """Return which actions are legal, [..., A]."""
    return jnp.repeat(s > 0, 2, axis=-1)


def masked_ppo(has_mask=True):
    """Return an agent whose logits are masked when it acts, and by the recipe."""
    init, apply = with_value(TRAPPED)

    def mask(s):
        return legal(s) | (not has_mask)

    def acting(params, s):
        logits, v = apply(params, s)
        return jnp.where(mask(s), logits, jnp.finfo(logits.dtype).min), v

    def loss(params, target, batch, extra):
        batch = SimpleNamespace(**batch._asdict(), action_mask=mask(batch.s_tm1))
        return recipes.masked_ppo(params, apply, batch)

    return agent(Network(init, acting), loss, period=EPOCHS)


ENTRIES = {
    # Without a bootstrap, 7 of 25 runs reach the bar, too.
    "reinforce": entry(
        "reinforce", CORRIDOR, agent(with_value(CORRIDOR), reinforce), REWARD, steps=30
    ),
    "a2c": entry("a2c", CORRIDOR, agent(with_value(CORRIDOR), a2c)),
    "impala": entry(
        "impala", CORRIDOR, agent(with_value(CORRIDOR), impala, 20), fails=ALL
    ),
    # With the stopped gradients let through, 16 of 25 runs reach the bar, too.
    "acer": entry("acer", CORRIDOR, acer(), repeats=EPOCHS),
    # Without a bootstrap, half of the runs of the five on Catch have learned it, too.
    "ppo": entry("ppo", CATCH, surrogate(recipes.ppo), REWARD, repeats=EPOCHS),
    "masked_ppo": entry(
        "masked_ppo",
        TRAPPED,
        masked_ppo(),
        without={"the mask": masked_ppo(has_mask=False)},
        repeats=EPOCHS,
    ),
    "recurrent_ppo": recurrent.ENTRY,
    "ppo_penalty": entry(
        "ppo_penalty, kl_coefficient", CATCH, ppo_penalty(), REWARD, repeats=EPOCHS
    ),
    "decoupled_ppo": entry(
        "decoupled_ppo", CATCH, decoupled_ppo(), REWARD, repeats=EPOCHS, updates=600
    ),
    "spo": entry("spo", CATCH, surrogate(recipes.spo), REWARD, repeats=EPOCHS),
    "discovered_policy_optimization": entry(
        "discovered_policy_optimization",
        CATCH,
        surrogate(recipes.discovered_policy_optimization),
        REWARD,
        repeats=EPOCHS,
    ),
    "categorical_mpo": entry(
        "categorical_mpo",
        CORRIDOR,
        agent(mpo_network(CORRIDOR), categorical_mpo, 20),
        repeats=EPOCHS,
    ),
    "vmpo": entry(
        "vmpo", CORRIDOR, agent(vmpo_network(CORRIDOR), vmpo, 20), ALL, repeats=EPOCHS
    ),
    # With the stopped gradients let through, 13 of 25 runs reach the bar, too.
    "muesli": entry("muesli", CORRIDOR, muesli(CORRIDOR)),
    "dreamer": dreamer.ENTRY,
    "discrete_sac": entry(
        "discrete_sac_critic, discrete_sac_actor, discrete_sac_temperature",
        CORRIDOR,
        discrete_sac(CORRIDOR),
        ALL,
        **{"updates": 1000, "steps": 2, "replay": 64},
    ),
}
