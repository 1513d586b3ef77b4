"""The zoo's auxiliary phase, continuous PPO on one stream, and a teacher."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from recipes import phases as recipes
from recipes import policy_gradient as gradients
from recipes import value_based

import rlaxlib
from zoo import policy_gradient as zoo
from zoo import value_based as values
from zoo.networks import forward, mlp
from zoo.tasks import point
from zoo.training import Agent, Entry, begin, descend

CATCH, CORRIDOR, POINT = zoo.CATCH, zoo.CORRIDOR, point()
OPTIMIZER, EPOCHS = zoo.OPTIMIZER, zoo.EPOCHS


class Networks(NamedTuple):
    """Parameters of policy and value, and the logarithms of standard deviations."""

    policy: Any
    value: Any
    log_stddev: Any = None


def epochs(state, loss, key=None, number=EPOCHS):
    """Return the state after some steps down the gradient of `loss(params, key)`."""

    def one(index, state):
        own = None if key is None else jax.random.fold_in(key, index)
        return descend(state, lambda p: loss(p, own), OPTIMIZER)

    return jax.lax.fori_loop(0, number, one, state)


# --- PPG. ---


def ppg(task):
    """Return an agent of PPO, each of whose updates an auxiliary phase follows.

    The network of the policy has an auxiliary head of values beside its logits.
    """

    def apply(params, s):
        return forward(params.policy, s)[..., :-1], forward(params.value, s)[..., 0]

    def auxiliary(params, s):
        return zoo.policy_and_value(params.policy, s)

    def init(key):
        sizes, keys = (task.size, 32), jax.random.split(key)
        policy = mlp(keys[0], *sizes, task.actions + 1, scale=0.1)
        return begin(Networks(policy, mlp(keys[1], *sizes, 1)), OPTIMIZER)

    def update(state, key, batch):
        outputs = (apply(state.params, s) for s in (batch.s_tm1, batch.s_t))
        (logits, v_tm1), (_, v_t) = outputs
        batch = zoo.Stream(*batch, logits, v_tm1, v_t)
        _, target = gradients.advantages(batch, 0.95)
        state = epochs(state, lambda p, _: gradients.ppo(p, apply, batch))
        batch = batch._replace(logits_tm1=apply(state.params, batch.s_tm1)[0])
        inputs = auxiliary, batch, target
        return epochs(state, lambda p, _: recipes.ppg_auxiliary(p, *inputs))

    def act(state, key, s):
        return rlaxlib.softmax().sample(key, apply(state.params, s)[0])

    return Agent(init=init, act=act, best=act, update=update)


# --- Continuous PPO. ---


def gaussian(params, s):
    """Return mean, standard deviation and value."""
    mean = forward(params.policy, s)
    stddev = jnp.broadcast_to(jnp.exp(params.log_stddev), mean.shape)
    return mean, stddev, forward(params.value, s)[..., 0]


def continuous(loss):
    """Return an agent of one stream, with normalised observations and rewards.

    Args:
        loss: Function of parameters, batch, key, advantages and targets.
    """

    def normalized(s, moments):
        return jnp.clip((s - moments.mean) / jnp.sqrt(moments.variance + 1e-8), -10, 10)

    def init(key):
        sizes, keys = (POINT.size, 32), jax.random.split(key)
        policy = mlp(keys[0], *sizes, POINT.actions, scale=0.1)
        log_stddev = jnp.full(POINT.actions, -0.5)
        params = Networks(policy, mlp(keys[1], *sizes, 1), log_stddev)
        moments = rlaxlib.running_moments().init(jnp.zeros(POINT.size))
        scale = rlaxlib.reward_scale().init(jnp.zeros(1))
        return begin(params, OPTIMIZER), moments, scale

    def act(learner, key, s):
        state, moments, _ = learner
        mean, stddev, _ = gaussian(state.params, normalized(s, moments))
        return rlaxlib.gaussian_diagonal().sample(key, mean, stddev)

    def best(learner, key, s):
        return gaussian(learner[0].params, normalized(s, learner[1]))[0]

    def update(learner, key, batch):
        state, old, scale = learner
        mean, stddev, _ = gaussian(state.params, normalized(batch.s_tm1, old))
        log_prob = rlaxlib.gaussian_diagonal().logprob(batch.a_tm1, mean, stddev)
        inputs = batch.s_tm1[0], batch.r_t[0], batch.discount_t[0], old, scale
        s, r_t, moments, scale = recipes.normalize(*inputs)
        s_t = normalized(batch.s_t, moments)
        batch = batch._replace(s_tm1=s[None], r_t=r_t[None], s_t=s_t)
        outputs = (gaussian(state.params, s)[2] for s in (batch.s_tm1, batch.s_t))
        batch = zoo.Stream(*batch, None, *outputs)
        targets = gradients.advantages(batch, 0.95)
        batch = SimpleNamespace(**batch._asdict(), old_log_prob=log_prob)
        state = epochs(state, lambda p, k: loss(p, batch, k, *targets), key, 10)
        return state, moments, scale

    return Agent(init=init, act=act, best=best, update=update)


def gaussian_ppo(params, batch, key, *targets):
    return recipes.gaussian_ppo(params, gaussian, batch, *targets)


def rpo(params, batch, key, *targets):
    return recipes.rpo(params, gaussian, batch, key, *targets)


# --- QDagger. ---


def qdagger(params, target, batch, key):
    """Return the loss of a student whose teacher does not know the last step.

    The teacher goes right, but has no preference in the cell before the far end. The
    teacher's score is set to 0.5; that of the student is the mean of the replay.
    """
    right = jnp.where(jnp.arange(CORRIDOR.size) == 6, 0.0, 1.0)
    teacher = [(jnp.stack([-right, right], axis=-1), jnp.zeros(2))]
    score = jnp.sum(batch.r_t) / jnp.maximum(jnp.sum(batch.discount_t == 0), 1)
    weight = jnp.clip(1 - score / 0.5, 0, 1)

    def td_loss(params):
        return value_based.dqn(params, target, forward, batch)

    return recipes.qdagger(params, teacher, forward, batch, td_loss, weight, 1.0)


def entry(recipe, task, agent, fails=("reward", "bootstrap"), **options):
    """Return an entry that goes nine tenths of the way to the best."""
    entry = zoo.entry(recipe, task, agent, fails, **options)
    return entry._replace(recipe=f"phases.{recipe}")


def of_point(recipe, loss):
    """Return an entry on the point mass, on which no force returns -6.7."""
    options = {"num": 1, "steps": 400, "updates": 60}
    agent = continuous(loss)
    return entry(recipe, POINT, agent, ("reward",), **options)._replace(states=-1.0)


ENTRIES: dict[str, Entry] = {
    "ppg": entry("ppg_auxiliary", CATCH, ppg(CATCH), num=32),
    "gaussian_ppo": of_point("gaussian_ppo, normalize", gaussian_ppo),
    "rpo": of_point("rpo, normalize", rpo),
    "qdagger": entry(
        "qdagger",
        CORRIDOR,
        values.agent(qdagger, epsilon=0.2),
        ("reward",),
        **{"updates": values.UPDATES, "steps": 1, "replay": 64},
    ),
}
