"""The zoo's streaming learners: control on the corridor, and prediction.

The score of a prediction is minus the root mean square of its errors.
"""

from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import streaming as recipes

import rlaxlib
from zoo.networks import forward, mlp
from zoo.tasks import corridor
from zoo.training import Agent, Entry, Run, online

# --- Control: stream Q(λ), one environment and one update a step. ---

TASK = corridor()
EPSILON = 0.5


def init(key):
    params = mlp(key, TASK.size, 32, TASK.actions)
    trace = jax.tree.map(jnp.zeros_like, params)
    return recipes.Learner(params, trace, jnp.zeros(()))


def act(learner, key, s):
    policy = rlaxlib.epsilon_greedy(EPSILON)
    return policy.sample(key, forward(learner.params, s))


def stream_q(learner, key, batch):
    step = jax.tree.map(lambda x: x[0, 0], batch)
    learner = recipes.stream_q(learner, forward, step)
    return learner._replace(discount=learner.discount * ~step.truncated_t)


STREAM_Q = Agent(
    init=init,
    act=act,
    best=lambda learner, key, s: jnp.argmax(forward(learner.params, s)),
    update=stream_q,
)

# --- Prediction off-policy: three states and two features, where TD diverges. ---

FEATURES = jnp.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
WEIGHTS = jnp.array([1.0, -0.5])  # Those of the true values.
VALUES = FEATURES @ WEIGHTS
DISCOUNT = 0.8
TARGET_RATE = 0.3  # How often the behaviour takes the target policy's action.
REWARDS = VALUES - DISCOUNT * VALUES[2]  # Of the target policy's action.
START = jnp.array([-1.0, 2.0])


class Step(NamedTuple):
    """A transition, or a batch of them."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    s_t: jax.Array
    rho: jax.Array


def off_policy(key, x, fault):
    """Return the next state and a step from state `x`.

    Action 1, the target policy's, leads to the third state; the other, to one of the
    other two.
    """
    keys = jax.random.split(key)
    a = jax.random.bernoulli(keys[0], TARGET_RATE)
    to = jnp.where(a, 2, jax.random.randint(keys[1], (), 0, 2))
    step = Step(
        *(FEATURES[x], a, fault.reward * REWARDS[x], fault.bootstrap * DISCOUNT),
        *(FEATURES[to], a / TARGET_RATE),
    )
    return to, step


@jax.jit
def error(values, true):
    return -jnp.sqrt(jnp.mean(jnp.square(values - true)))


def predict(process, update, score, first, steps):
    """Return a function to the run of a learner from a process.

    Args:
        process: Function of a key, a state and a fault to a state and a step.
        update: Function of a learner and a step to the next learner.
        score: Function of a learner.
        first: First learner and state.
        steps: Number of steps.
    """

    def run(key, fault):
        def one(carry, key):
            learner, x = carry
            x, step = process(key, x, fault)
            return update(learner, step), x

        keys = jax.random.split(key, steps)
        return Run(first, one, keys, lambda carry: score(carry[0]))

    return run


def linear(params, s):
    return s @ params


def emphatic(learner, step):
    args = *learner, linear, step, step.rho
    return recipes.emphatic_td(*args, step_size=EMPHATIC_STEP_SIZE)


def not_emphatic(learner, step):
    """Return the learner after TD: the followon trace begins anew at each step."""
    return emphatic((learner[0], EMPHATIC[1]), step)


def emphatic_run(update):
    def score_of(learner):
        return score(learner[0])

    return predict(off_policy, update, score_of, (EMPHATIC, jnp.array(0)), 20_000)


EMPHATIC = START, rlaxlib.emphatic_trace_init(START)

EMPHATIC_STEP_SIZE = 0.001
CORRECTED = SimpleNamespace(
    value=lambda params, s: s @ params["value"],
    correction=lambda params, s: s @ params["correction"],
)
BATCH = 32


def gradient_td(recipe, rate=0.3):
    """Return the run of TDC or GTD2, on batches, with the rate of the correction.

    Without it TDC is TD, and GTD2 has no gradient.
    """
    optimizer = optax.multi_transform(
        {"value": optax.sgd(0.1), "correction": optax.sgd(rate)},
        {"value": "value", "correction": "correction"},
    )

    def process(key, x, fault):
        return jax.vmap(off_policy, (0, 0, None))(
            jax.random.split(key, BATCH), x, fault
        )

    def update(learner, step):
        params, state = learner
        gradient = jax.grad(recipe)(params, CORRECTED, step)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state

    params = {"value": START, "correction": jnp.zeros(2)}
    first = (params, optimizer.init(params)), jnp.zeros(BATCH, int)
    return predict(process, update, lambda x: score(x[0]["value"]), first, 4000)


def score(weights):
    return error(FEATURES @ weights, VALUES)


# --- Prediction without discounts: a ring of five states. ---

RING = 5
FORWARD = 0.8  # Probability of a step forward; else the state stays.
RATE = FORWARD / RING  # One reward a round.
# Solves v(x) = r(x) - RATE + P v, with a mean of 0.
RING_VALUES = (jnp.arange(RING) - (RING - 1) / 2) / RING


def ring(key, x, fault):
    """Return the next state and a step: 1 for the step from the last to the first."""
    to = (x + jax.random.bernoulli(key, FORWARD)) % RING
    reward = 1.0 * ((x == RING - 1) & (to == 0))
    s_tm1, s_t = jax.nn.one_hot(jnp.stack([x, to]), RING)
    return to, Step(s_tm1, 0, fault.reward * reward, 1.0, s_t, 1.0)


def differential(eta):
    def update(learner, step):
        return recipes.differential_td(*learner, linear, step, 0.02, eta)

    first = (jnp.zeros(RING), jnp.zeros(())), jnp.array(0)
    return predict(ring, update, differential_score, first, 20_000)


def differential_score(learner):
    """Return minus the error of the values, up to a constant, and of the rate."""
    values, rate = learner
    found = jnp.append(values - jnp.mean(values), rate)
    return error(found, jnp.append(RING_VALUES, RATE))


def prediction(recipe, run, without, random, states, fails, about):
    """Return an entry whose score is minus an error."""
    scores = random, 0.0, states
    return Entry(f"streaming.{recipe}", run, about, *scores, fails, without)


def off_policy_prediction(recipe, run, without):
    about = "Off-policy prediction where TD diverges, minus the error of the values"
    inputs = float(score(START)), -0.1, ("reward", "bootstrap"), about
    return prediction(recipe, run, without, *inputs)


ENTRIES = {
    "stream_q": Entry(
        recipe="streaming.stream_q",
        run=online(TASK, STREAM_Q, updates=20_000, num=1, steps=1),
        about=TASK.about,
        random=TASK.random,
        best=TASK.best,
        states=0.95,
        fails=("reward", "bootstrap"),
    ),
    "emphatic_td": off_policy_prediction(
        "emphatic_td",
        emphatic_run(emphatic),
        {"the emphasis": emphatic_run(not_emphatic)},
    ),
    "tdc": off_policy_prediction(
        "tdc",
        gradient_td(recipes.tdc),
        {"the correction": gradient_td(recipes.tdc, rate=0.0)},
    ),
    "gtd2": off_policy_prediction(
        "gtd2",
        gradient_td(recipes.gtd2),
        {"the correction": gradient_td(recipes.gtd2, rate=0.0)},
    ),
    "differential_td": prediction(
        "differential_td",
        differential(0.1),
        {"the average reward": differential(0.0)},
        float(differential_score((jnp.zeros(RING), 0.0))),
        -0.06,
        ("reward",),
        "Average-reward prediction on a ring, minus the error of values and rate",
    ),
}
