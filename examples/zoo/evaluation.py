"""The zoo's evaluations: of policies on logged data, and of runs by intervals.

The score of an estimate is minus its error, that of an interval its coverage: how often
it holds the true value.
"""

from collections import namedtuple
from functools import partial

import jax
import jax.numpy as jnp
import optax
from recipes import evaluation as recipes

import rlaxlib
from zoo.networks import forward, mlp
from zoo.tasks import corridor
from zoo.training import POINTS, Batch, Entry, Run, begin, descend, evaluate, play

TASK = corridor()
A = TASK.actions
CELLS = TASK.size
STREAMS = 64  # Logged streams of 30 steps.
UPDATES = 1000
OPTIMIZER = optax.adam(optax.linear_schedule(5e-3, 0.0, UPDATES))
PERIOD = 20


def act(key, s):
    """Sample the behaviour's action, of which both are as likely."""
    return jax.random.randint(key, (), 0, A)


def logged(key, fault):
    """Return transitions of the behaviour."""
    data = play(TASK, act, key, STREAMS, TASK.limit)
    data = data._replace(
        r_t=fault.reward * data.r_t, discount_t=fault.bootstrap * data.discount_t
    )
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), data)


def fit(loss, outputs, score):
    """Return a function of a key and a fault to a run on logged data.

    Args:
        loss: Function of parameters, target parameters and batch.
        outputs: Size of the network's output.
        score: Function of parameters and a key.
    """

    def run(key, fault):
        init_key, data_key, run_key, score_key = jax.random.split(key, 4)
        data = logged(data_key, fault)
        learner = begin(mlp(init_key, TASK.size, 32, outputs), OPTIMIZER)

        def update(learner, key):
            rows = jax.random.randint(key, (64,), 0, len(data.r_t))
            batch = jax.tree.map(lambda x: x[rows], data)
            return descend(
                learner, lambda p: loss(p, learner.target, batch), OPTIMIZER, PERIOD
            )

        return Run(
            *(learner, update, jax.random.split(run_key, UPDATES)),
            lambda learner: score(learner.params, score_key),
        )

    return run


# --- FQE: the values of a policy that mostly goes right. ---

RIGHT = 0.8
INNER = jnp.arange(1, 7)  # Cells that are not an end.


def policy(s, right=RIGHT):
    return jnp.broadcast_to(jnp.array([1 - right, right]), (*s.shape[:-1], A))


@jax.jit
def values(steps, right=RIGHT):
    """Return the exact action values of the cells for a number of steps, [8, A]."""
    reward = jnp.zeros(CELLS).at[0].set(0.3).at[-1].set(1.0)
    go_on = jnp.zeros(CELLS).at[INNER].set(TASK.discount)
    pi = jnp.array([1 - right, right])

    def back(_, q):
        after = reward + go_on * (q @ pi)  # Of a step to each cell.
        return jnp.stack([jnp.roll(after, 1), jnp.roll(after, -1)], axis=1)

    return jax.lax.fori_loop(0, steps, back, jnp.zeros((CELLS, A)))


def fqe(params, target, batch, right=RIGHT):
    return recipes.fqe(params, target, forward, partial(policy, right=right), batch)


def fqe_score(params, _):
    q = forward(params, jnp.eye(CELLS))
    return -jnp.sqrt(jnp.mean(jnp.square(q - values(500))[INNER]))


# --- Successor features: which end an episode reaches, and a task of both. ---

TASKS = jnp.eye(2)  # Of the policies: only the near end, and only the far one.
NEW_TASK = jnp.array([0.3, 1.0])  # That of the corridor.
FeatureBatch = namedtuple("FeatureBatch", (*Batch._fields, "phi_t"))


def psi(params, s):
    """Return the features of each policy and action, [..., N, A, K]."""
    x = forward(params, s)
    return x.reshape(*x.shape[:-1], 2, A, 2)


def successor_features(params, target, batch):
    # A reward of 0.3 is one of the near end, one of 1 of the far end.
    sign, size = jnp.sign(batch.r_t), jnp.abs(batch.r_t)
    phi_t = sign[:, None] * jnp.stack([(size > 0) & (size < 1), size == 1], axis=-1)
    batch = FeatureBatch(*batch, phi_t)
    return sum(
        recipes.successor_features(
            *(params, target, lambda p, s, n=n: psi(p, s)[..., n, :, :]),
            *(batch, TASKS[n]),
        )
        for n in range(2)
    )


def successor_score(params, key, task=NEW_TASK):
    """Return the return of generalised policy improvement in the new task."""
    return evaluate(TASK, lambda _, s: recipes.gpi_action(psi(params, s), task), key)


# --- Estimates of a value, and intervals: how often they hold the true value. ---

REPLICATES = 2  # Data sets a point.


def covered(interval, true):
    _, low, high = interval
    return (low <= true) & (true <= high)


def averaged(score, first=0.0):
    """Return a function to a run whose score is the mean over its data sets so far.

    Args:
        score: Function of a key and a fault to the score of a data set, such as whether
            an interval holds the true value.
        first: Score without data.
    """

    def run(key, fault):
        def update(state, keys):
            mean, count = state
            found = jnp.mean(jax.vmap(lambda key: score(key, fault))(keys))
            return mean + (found - mean) / (count + 1), count + 1

        keys = jax.random.split(key, (POINTS, REPLICATES))
        return Run((first, 0), update, keys, lambda state: state[0])

    return run


EVALUATED = jnp.array([0.4, 0.6])  # Probabilities of the policy that is evaluated.
STEPS = 12
START = 2
VALUE = EVALUATED @ values(STEPS, EVALUATED[1])[START]
MODEL = jnp.stack([values(STEPS - t, 0.5) for t in range(STEPS)])  # [T, 8, A]
MODEL_ERROR = float(jnp.abs(EVALUATED @ MODEL[0, START] - VALUE))


def streams(key, fault):
    """Return 32 streams of 12 steps: observations, actions, and those of estimates."""
    data = play(TASK, act, key, 32, STEPS)
    given = {
        "rho_tm1": EVALUATED[data.a_tm1] * A,
        "r_t": fault.reward * data.r_t,
        "discount_t": fault.bootstrap * data.discount_t,
    }
    return data.s_tm1, data.a_tm1, given


def value_holds(key, fault, has_ratios=True):
    """Return whether the interval of some streams holds the value."""
    data_key, key = jax.random.split(key)
    *_, data = streams(data_key, fault)
    if not has_ratios:
        data["rho_tm1"] = jnp.ones_like(data["rho_tm1"])
    return covered(recipes.value_interval(key, data), VALUE)


def magic_score(key, fault, weight=1.0):
    """Return minus the error of MAGIC, whose model has the behaviour's values.

    `weight` is a factor of these values.
    """
    data_key, key = jax.random.split(key)
    s, a, data = streams(data_key, fault)
    q = weight * jnp.einsum("nts, tsa -> nta", s, MODEL)
    model = {"q_tm1": rlaxlib.batched_index(q, a), "v_tm1": q @ EVALUATED}
    estimate, _ = recipes.magic(key, data | model)
    return -jnp.abs(estimate - VALUE)


RUNS, DEVIATION, GAIN = 10, 0.2, 0.1
MEANS = jnp.linspace(0.2, 1.0, 5)  # Of the tasks' scores.


def scores(key, runs):
    return MEANS + DEVIATION * jax.random.normal(key, (runs, len(MEANS)))


def scores_hold(key, fault):
    """Return how many of three intervals hold the true value."""
    keys = jax.random.split(key, 4)
    many = scores(jax.random.key(0), 10_000)
    x, y = fault.reward * scores(keys[0], RUNS), scores(keys[1], RUNS) - GAIN
    found = recipes.score_intervals(keys[2], x)
    better = jax.scipy.stats.norm.cdf(GAIN / DEVIATION / 2**0.5)
    held = [
        covered(found["interquartile_mean"], rlaxlib.interquartile_mean(many)),
        covered(found["optimality_gap"], jnp.mean(jax.nn.relu(1 - many))),
        covered(recipes.improvement_interval(keys[3], x, y), better),
    ]
    return jnp.mean(jnp.stack(held))


def entry(recipe, run, about, scale, states, fails, **without):
    """Return an entry; `scale` are the scores of no learning and of the best."""
    recipe = ", ".join(f"evaluation.{name}" for name in recipe.split())
    return Entry(recipe, run, about, *scale, states, fails, without)


BOTH = ("reward", "bootstrap")
ENTRIES = {
    "fqe": entry(
        "fqe",
        fit(fqe, A, fqe_score),
        "The values of a policy in the corridor, minus their error",
        (-float(jnp.sqrt(jnp.mean(jnp.square(values(500)[INNER])))), 0.0),
        -0.06,
        BOTH,
        **{"the policy": fit(partial(fqe, right=0.5), A, fqe_score)},
    ),
    "successor_features": entry(
        "successor_features gpi_action",
        fit(successor_features, 2 * A * 2, successor_score),
        f"{TASK.about}, from policies for one end each",
        (TASK.random, TASK.best),
        0.95,
        BOTH,
        **{
            "the weights of the task": fit(
                *(successor_features, 2 * A * 2),
                partial(successor_score, task=jnp.ones(2)),
            )
        },
    ),
    "value_interval": entry(
        "value_interval",
        averaged(value_holds),
        "How often the interval of 95% holds the value of a policy",
        (0.0, 0.95),
        0.8,
        BOTH,
        **{"the ratios": averaged(partial(value_holds, has_ratios=False))},
    ),
    "magic": entry(
        "magic",
        averaged(magic_score, -MODEL_ERROR),
        "The value of a policy, minus the error, from streams and an inexact model",
        (-MODEL_ERROR, 0.0),
        -0.03,
        BOTH,
        **{"the model": averaged(partial(magic_score, weight=0.0), -MODEL_ERROR)},
    ),
    "score_intervals": entry(
        "score_intervals improvement_interval",
        averaged(scores_hold),
        "How often intervals of 95% hold the true value, from ten runs",
        (0.0, 0.95),
        0.8,
        ("reward",),
    ),
}
