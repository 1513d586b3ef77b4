"""The zoo's constrained policies, on two lanes with a toll, and trust regions."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import constraints as recipes
from recipes import policy_gradient as gradients

import rlaxlib
from zoo import policy_gradient as zoo
from zoo.networks import forward, mlp
from zoo.tasks import Task
from zoo.training import Agent, Entry, begin, descend, online, play

OPTIMIZER, EPOCHS = optax.adam(1e-3), zoo.EPOCHS
CATCH, CORRIDOR = zoo.CATCH, zoo.CORRIDOR
LIMIT = 3.0  # Of the cost of an episode.
STEPS = 6  # Of an episode on the road.


def road():
    """Return a road of 5 cells with a fast lane; reward and toll come a step later.

    The fast lane pays 1, 0.8, 0.6, 0.4, 0.2 in these cells, and costs 2 in each. Under
    the limit the best policy takes it in the first cell, and half of the time in the
    second: a return of 1.4.
    """
    rewards = jnp.array([0, 1, 0.8, 0.6, 0.4, 0.2])

    def step(_, state, a):
        cell, fast = state
        after = jnp.stack([cell + 1, a])
        return after, rewards[cell] * fast, cell == STEPS - 1

    return Task(
        about="Road with a toll of 2 a cell: costs above 3 are taken from the return",
        reset=lambda _: jnp.zeros(2, int),
        observe=lambda x: jnp.append(jax.nn.one_hot(x[0], STEPS), x[1]),
        step=step,
        limit=10,
        actions=2,
        random=-0.5,  # 1.5, and a cost of 5.
        best=1.4,
        discount=0.99,
    )


def cost(batch):
    """Return the toll of the lane taken before, [B, T]."""
    return 2 * batch.s_tm1[..., -1]


def score(task, act, key):
    """Return the mean return minus the excess of the mean cost."""
    batch = play(task, act, key, 1024, STEPS)
    excess = jnp.mean(jnp.sum(cost(batch), axis=1)) - LIMIT
    return jnp.mean(jnp.sum(batch.r_t, axis=1)) - jax.nn.relu(excess)


class Networks(NamedTuple):
    """Parameters of the policy, and of the values of rewards and costs."""

    policy: Any
    values: Any


class Constrained(NamedTuple):
    """Streams as `Stream` has them, with the costs and their values, [B, T]."""

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
    c_t: jax.Array
    cost_v_tm1: jax.Array
    cost_v_t: jax.Array


class Inputs(NamedTuple):
    """What the updates of a round share."""

    batch: Constrained
    adv_t: jax.Array
    cost_adv_t: jax.Array
    targets: jax.Array  # Of both values, [B, T, 2].
    excess: jax.Array  # Cost of an episode minus its limit.
    multiplier: jax.Array


def inputs_of(params, batch, multiplier, weight):
    """Return advantages and targets of rewards and of costs, which have a weight."""
    v_tm1, v_t = (forward(params.values, s) for s in (batch.s_tm1, batch.s_t))
    logits = forward(params.policy, batch.s_tm1)
    values = (
        v_tm1[..., 0],
        v_t[..., 0],
        weight * cost(batch),
        v_tm1[..., 1],
        v_t[..., 1],
    )
    batch = Constrained(*batch, logits, *values)
    costs = {"r_t": batch.c_t, "v_tm1": batch.cost_v_tm1, "v_t": batch.cost_v_t}
    adv_t, target = gradients.advantages(batch, 0.95)
    cost_adv_t, cost_target = gradients.advantages(batch._replace(**costs), 0.95)
    targets = jnp.stack([target, cost_target], axis=-1)
    excess = STEPS * jnp.mean(batch.c_t) - LIMIT
    return Inputs(batch, adv_t, cost_adv_t, targets, excess, multiplier)


def values_loss(params, x):
    return jnp.mean(rlaxlib.l2_loss(forward(params.values, x.batch.s_tm1), x.targets))


def epochs(loss, optimizer=OPTIMIZER):
    """Return a function that takes some steps down a loss of networks and inputs."""

    def update(state, x):
        def one(_, state):
            return descend(state, lambda p: loss(p, x), optimizer)

        return jax.lax.fori_loop(0, EPOCHS, one, state)

    return update


def agent(task, update, optimizer=OPTIMIZER, weight=1.0):
    """Return an agent with a multiplier of the cost, if the task has one.

    Args:
        task: Environment.
        update: Function of a state and inputs to the next state.
        optimizer: Optimizer.
        weight: Weight of the costs that the learner sees.
    """
    controller = rlaxlib.pid_lagrangian(LIMIT, 0.1, 0.01, 0.01)

    def init(key):
        policy_key, key = jax.random.split(key)
        policy = mlp(policy_key, task.size, 32, task.actions, scale=0.1)
        values = mlp(key, task.size, 32, 2, scale=0.1)
        state = begin(Networks(policy, values), optimizer)
        return state, controller.init(), jnp.zeros(())

    def learn(learner, key, batch):
        state, integral, multiplier = learner
        x = inputs_of(state.params, batch, multiplier, weight)
        episode = x.excess + LIMIT
        return update(state, x), *lagrange(episode, integral)

    def lagrange(episode, integral):
        multiplier, integral = gradients.lagrange_multiplier(episode, integral, LIMIT)
        return integral, multiplier

    def act(learner, key, s):
        return rlaxlib.softmax().sample(key, forward(learner[0].params.policy, s))

    return Agent(init=init, act=act, best=act, update=learn)


# --- First-order updates. ---


def both_values(params, s):
    """Return logits, and the values of rewards and of costs."""
    v = forward(params.values, s)
    return forward(params.policy, s), v[..., 0], v[..., 1]


def ppo_lagrangian(params, x):
    # Advantages of rewards, which are standardised here, are small.
    return gradients.ppo_lagrangian(
        params, both_values, x.batch, 4 * x.multiplier, epsilon=0.05
    )


def focops(params, x):
    inputs = x.batch, x.adv_t, x.cost_adv_t, x.multiplier
    return recipes.focops(params.policy, forward, *inputs) + values_loss(params, x)


def p3o(params, x):
    inputs = x.batch, x.adv_t, x.cost_adv_t, x.excess
    return recipes.p3o(params.policy, forward, *inputs, kappa=2.0) + values_loss(
        params, x
    )


def ppo(params, x):
    """Return the loss of PPO, in which the cost has no part."""
    log_prob, old = (
        gradients.log_probs(logits, x.batch.a_tm1)
        for logits in (forward(params.policy, x.batch.s_tm1), x.batch.logits_tm1)
    )
    adv_t = rlaxlib.standardize(x.adv_t)
    loss, _ = rlaxlib.ppo_clip_loss(log_prob, old, adv_t, 0.2)
    return jnp.mean(loss) + values_loss(params, x)


def cup(state, x):
    """Return the state after PPO, and then a projection that lowers the cost."""
    state = epochs(ppo)(state, x)
    ppo_logits = forward(state.params.policy, x.batch.s_tm1)

    def loss(params, x):
        inputs = x.batch, ppo_logits, x.cost_adv_t, x.multiplier
        return recipes.cup(params.policy, forward, *inputs)

    return epochs(loss)(state, x)


# --- Trust regions. ---


def cpo(state, x):
    """Return the state after a step of CPO, and after some of the values."""
    inputs = x.batch, x.adv_t, x.cost_adv_t, x.excess / STEPS
    policy, _ = recipes.cpo(state.params.policy, forward, *inputs)
    state = epochs(values_loss)(state, x)
    return state._replace(params=state.params._replace(policy=policy))


def trpo(state, x, max_kl=0.01):
    """Return the state after a step of TRPO, and after some of the values."""
    inputs = forward, x.batch, x.adv_t, max_kl
    policy, _ = recipes.trpo(state.params.policy, *inputs)
    state = epochs(values_loss)(state, x)
    return state._replace(params=state.params._replace(policy=policy))


SET_RATE = optax.inject_hyperparams(optax.adam)(1e-3)


def adaptive(state, x):
    """Return the state after PPO, with the next learning rate in its optimizer."""
    state = epochs(ppo, SET_RATE)(state, x)
    kl = recipes.kl_from_old(state.params.policy, forward, x.batch)
    rates = state.optimizer.hyperparams
    rate = recipes.adaptive_learning_rate(rates["learning_rate"], kl)
    rates = rates | {"learning_rate": rate}
    optimizer = state.optimizer._replace(hyperparams=rates)
    return state._replace(optimizer=optimizer)


# --- Entries. ---


def entry(recipe, update, fails=("reward", "bootstrap")):
    """Return an entry on the road, that beats all deterministic policies, by 0.1."""
    task = road()
    options = {"updates": 300, "num": 32, "steps": 12, "score": score}
    return Entry(
        recipe=recipe,
        run=online(task, agent(task, update), **options),
        about=task.about,
        random=task.random,
        best=task.best,
        states=1.1,
        fails=fails,
        without={"the cost": online(task, agent(task, update, weight=0.0), **options)},
    )


def free(recipe, task, agent, fails=("reward", "bootstrap"), **options):
    """Return an entry on a task without costs."""
    entry = zoo.entry(recipe, task, agent, fails, **options)
    return entry._replace(recipe=f"constraints.{recipe}")


def trpo_entry(**settings):
    step = agent(CORRIDOR, partial(trpo, **settings))
    return free("trpo", CORRIDOR, step, updates=200)


ENTRIES = {
    "ppo_lagrangian": entry(
        "policy_gradient.ppo_lagrangian, lagrange_multiplier",
        epochs(ppo_lagrangian),
    ),
    "trpo": trpo_entry()._replace(
        without={"the trust region": trpo_entry(max_kl=1e3).run}
    ),
    "cpo": entry("constraints.cpo", cpo),
    "focops": entry("constraints.focops", epochs(focops)),
    "cup": entry("constraints.cup", cup),
    "p3o": entry("constraints.p3o", epochs(p3o)),
    "adaptive_learning_rate": free(
        "adaptive_learning_rate", CATCH, agent(CATCH, adaptive, SET_RATE), num=32
    ),
}
