"""Test streaming RL: forward views, limits, and Baird's counterexample."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import x64

import rlaxlib

STEPS, FEATURES = 30, 4
replacing_trace = functools.partial(rlaxlib.eligibility_trace, kind="replacing")


def episode(seed=0, ends=()):
    """Draw features, rewards and discounts of a stream."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(STEPS + 1, FEATURES))
    discounts = rng.uniform(0.8, 1.0, STEPS)
    discounts[list(ends)] = 0.0
    return x, rng.normal(size=STEPS), discounts


# --- Forward views. ---


def online_lambda_return_weights(x, r_t, discount_t, lambda_, step_size):
    """Recompute all updates at every step, towards the λ-returns seen by then.

    Van Seijen et al. 2015, section 3: the return of n steps bootstraps from the
    weights that the algorithm had when it saw its last state.
    """
    online = [np.zeros(FEATURES)]
    for horizon in range(1, len(r_t) + 1):
        w = online[0]
        for t in range(horizon):
            returns, weight, total = 0.0, 1.0, 0.0
            for n in range(1, horizon - t + 1):
                product = np.prod(discount_t[t : t + n - 1])
                returns += product * r_t[t + n - 1]
                value = online[t + n - 1] @ x[t + n]
                end = returns + product * discount_t[t + n - 1] * value
                last = n == horizon - t
                total += weight * (1.0 if last else 1 - lambda_) * end
                weight *= lambda_
            w = w + step_size * (total - w @ x[t]) * x[t]
        online.append(w)
    return np.array(online[1:])


@jax.jit
def run_true_online(x_tm1, r_t, discount_t, x_t, lambda_, step_size, state=None):
    def step(state, inputs):
        x_tm1, r_t, discount_t, x_t, cut = inputs
        state = rlaxlib.true_online_td_lambda(
            state, x_tm1, r_t, discount_t, x_t, lambda_, step_size, truncated_t=cut
        )
        return state, state.weights

    state = rlaxlib.true_online_td_init(FEATURES) if state is None else state
    cut = np.arange(len(r_t)) == len(r_t) - 1
    return jax.lax.scan(step, state, (x_tm1, r_t, discount_t, x_t, cut))


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_true_online_td_equals_the_online_lambda_return_algorithm(lambda_):
    x, r_t, discount_t = episode()
    expected = online_lambda_return_weights(x, r_t, discount_t, lambda_, 0.1)
    with x64(True):
        _, weights = run_true_online(x[:-1], r_t, discount_t, x[1:], lambda_, 0.1)
    np.testing.assert_allclose(weights, expected, 1e-9)


def test_true_online_td_begins_anew_after_an_end_and_after_a_cut():
    x, r_t, discount_t = episode()
    with x64(True):
        first, _ = run_true_online(x[:-1], r_t, discount_t, x[1:], 0.7, 0.1)
        again = rlaxlib.true_online_td_init(FEATURES)._replace(weights=first.weights)
        joined, separate = (
            run_true_online(-x[:-1], r_t, discount_t, -x[1:], 0.7, 0.1, state)[0]
            for state in (first, again)
        )
    np.testing.assert_allclose(joined.weights, separate.weights, 1e-12)
    x, r_t, discount_t = episode(ends=(12,))
    with x64(True):
        _, weights = run_true_online(x[:-1], r_t, discount_t, x[1:], 0.7, 0.1)
        state = rlaxlib.true_online_td_init(FEATURES)._replace(weights=weights[12])
        rest = (each[13:] for each in (x[:-1], r_t, discount_t, x[1:]))
        _, separate = run_true_online(*rest, 0.7, 0.1, state)
    np.testing.assert_allclose(weights[13:], separate, 1e-12)


def run_trace(update, x, decays):
    """Return the trace at every step."""

    @jax.jit
    def run(*inputs):
        def step(z, inputs):
            z = update(z, *inputs)
            return z, z

        return jax.lax.scan(step, jnp.zeros(FEATURES), inputs)[1]

    return np.asarray(run(x, decays))


def test_offline_td_lambda_with_accumulating_traces_equals_the_lambda_returns():
    x, r_t, discount_t = episode(ends=(12, STEPS - 1))
    values = x @ np.array([1.0, -0.5, 0.3, 0.2])
    decays = 0.7 * np.append(0.0, discount_t[:-1])
    with x64(True):
        traces = run_trace(rlaxlib.eligibility_trace, x[:-1], decays)
        returns = jax.jit(rlaxlib.lambda_returns)(r_t, discount_t, values[1:], 0.7)
    errors = r_t + discount_t * values[1:] - values[:-1]
    expected = (np.asarray(returns) - values[:-1]) @ x[:-1]
    np.testing.assert_allclose(errors @ traces, expected, 1e-10)


def test_replacing_traces_give_first_visit_and_accumulating_every_visit_returns():
    rng = np.random.default_rng(0)
    states, r_t = rng.integers(FEATURES, size=STEPS), rng.normal(size=STEPS)
    x = np.eye(FEATURES)[states]
    values = np.append(rng.normal(size=FEATURES)[states], 0.0)
    errors, returns = r_t + np.diff(values), np.cumsum(r_t[::-1])[::-1]
    decays = np.append(0.0, np.ones(STEPS - 1))
    with x64(True):
        first, every = (
            errors @ run_trace(update, x, decays)
            for update in (replacing_trace, rlaxlib.eligibility_trace)
        )
    for state in range(FEATURES):
        visits = np.flatnonzero(states == state)
        excess = (returns - values[:-1])[visits]
        np.testing.assert_allclose(first[state], excess[0], 1e-10)
        np.testing.assert_allclose(every[state], excess.sum(), 1e-10)


@pytest.mark.parametrize("update", [rlaxlib.eligibility_trace, replacing_trace])
def test_a_trace_of_a_pytree_is_that_of_all_its_entries(update):
    rng = np.random.default_rng(0)
    trace, gradient = np.float32(rng.normal(size=(2, 4)))
    update = jax.jit(update)

    def tree(x):
        return {"a": x[:1], "b": (x[1], x[2:].reshape(1, 2))}

    found = update(tree(trace), tree(gradient), 0.5)
    expected = tree(np.asarray(update(trace, gradient, 0.5)))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, 1e-6), found, expected)


def test_traces_name_the_leaf_that_does_not_fit():
    trace = {"a": np.zeros(2, np.float32)}
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"eligibility_trace: `gradient\['a'\]`"
    ):
        rlaxlib.eligibility_trace(trace, {"a": np.zeros(3, np.float32)}, 0.5)
    with pytest.raises(rlaxlib.ArgumentError, match="`trace` and `gradient`"):
        rlaxlib.eligibility_trace(trace, trace["a"], 0.5)
    with pytest.raises(rlaxlib.ArgumentError, match=r"`trace\['a'\]`"):
        rlaxlib.obgd_step_size({"a": np.zeros(2, int)}, 1.0)


# --- Emphatic traces. ---


@jax.jit
def run_emphatic(x, rho, discounts, lambda_, cut=None):
    cut = np.zeros(len(x), bool) if cut is None else cut

    def step(state, inputs):
        x, rho, discount, cut = inputs
        state = rlaxlib.emphatic_trace(
            state, x, rho, discount, lambda_, truncated_t=cut
        )
        return state, state

    state = rlaxlib.emphatic_trace_init(jnp.zeros(FEATURES))
    return jax.lax.scan(step, state, (x, rho, discounts, cut))[1]


def test_emphatic_traces_sum_over_the_past_with_the_ratios_of_past_actions():
    x, _, discounts = episode()
    rho = np.random.default_rng(1).uniform(0.0, 2.0, STEPS)
    with x64(True):
        states = run_emphatic(x[:-1], rho, discounts, 0.4)
    followons = np.asarray(states.followon)
    for t in (0, 1, STEPS - 1):
        reach = [np.prod((rho * discounts)[k:t]) for k in range(t + 1)]
        np.testing.assert_allclose(followons[t], np.sum(reach), 1e-10)
    trace = np.zeros(FEATURES)
    for t in range(STEPS):
        decay = discounts[t - 1] * 0.4 if t else 0.0
        trace = rho[t] * (decay * trace + (0.4 + 0.6 * followons[t]) * x[t])
    np.testing.assert_allclose(np.asarray(states.trace)[-1], trace, 1e-10)


def test_emphasis_is_constant_on_policy_and_irrelevant_with_lambda_of_1():
    x, _, _ = episode()
    ones, discounts = np.ones(STEPS), np.full(STEPS, 0.5)
    with x64(True):
        states = run_emphatic(x[:-1], ones, discounts, 1.0)
        decays = np.append(0.0, discounts[:-1])
        plain = run_trace(rlaxlib.eligibility_trace, x[:-1], decays)
    np.testing.assert_allclose(states.trace, plain, 1e-10)
    np.testing.assert_allclose(np.asarray(states.followon)[-1], 2.0, 1e-8)


def test_emphatic_traces_begin_anew_after_an_end_and_after_a_cut():
    x, _, discounts = episode(ends=(9,))
    rho = np.random.default_rng(1).uniform(0.5, 2.0, STEPS)
    cut = np.arange(STEPS) == 19
    with x64(True):
        joined = run_emphatic(x[:-1], rho, discounts, 0.4, cut)
        parts = [
            run_emphatic(x[s], rho[s], discounts[s], 0.4)
            for s in (slice(0, 10), slice(10, 20), slice(20, 30))
        ]
    for name in ("trace", "followon"):
        separate = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(getattr(joined, name), separate, 1e-12)


# --- Baird's counterexample (Sutton and Barto 2018, section 11.2). ---


GAMMA = 0.99
X = np.append(2 * np.eye(7)[:6], np.eye(7)[6:], axis=0)
X = np.append(X, np.append(np.ones(6), 2.0)[:, None], axis=1)
START = np.array([1.0, 1, 1, 1, 1, 1, 10, 1])
# The behaviour policy goes to one of the first six states with a probability of 6/7,
# and else to the last one, as the target policy always does.
PROBABILITY, RATIO = np.array([6 / 7, 1 / 7]), np.array([0.0, 7.0])
NEXT = np.stack([X[:6].mean(axis=0), X[6]])


def projected_error(w):
    """Return the root of the mean square of the projected Bellman error."""
    error = GAMMA * (X @ w)[6] - X @ w
    return np.sqrt(np.mean((X @ np.linalg.pinv(X) @ error) ** 2))


def expected(function):
    """Average a function of a state and an action over both, off-policy."""
    of_actions = jax.vmap(function, (None, 0))
    of_all = jax.vmap(of_actions, (0, None))
    weights = jnp.asarray(np.tile(PROBABILITY / 7, (7, 1)))
    outputs = of_all(jnp.arange(7), jnp.arange(2))
    return jax.tree.map(
        lambda x: jnp.sum(weights.reshape(7, 2, *[1] * (x.ndim - 2)) * x, (0, 1)),
        outputs,
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def learn(update, steps, state):
    def step(state, _):
        state = update(state)
        return state, state[0]

    return jax.lax.scan(step, state, None, steps)[1]


def td_step(state):
    (w,) = state

    def update(s, a):
        error = rlaxlib.td_learning(x[s] @ w, 0.0, GAMMA, after[a] @ w)
        return rho[a] * error * x[s]

    x, after, rho = (jnp.asarray(each) for each in (X, NEXT, RATIO))
    return (w + 0.01 * expected(update),)


def gradient_td_step(losses, state):
    w, h = state
    x, after, rho = (jnp.asarray(each) for each in (X, NEXT, RATIO))

    def update(s, a):
        def loss(w, h):
            inputs = x[s] @ w, x[s] @ h, 0.0, GAMMA, after[a] @ w
            return losses(*inputs, rho_tm1=rho[a])[0]

        return jax.grad(loss, (0, 1))(w, h)

    of_w, of_h = expected(update)
    return w - 0.005 * of_w, h - 0.05 * of_h


def emphatic_step(state):
    """Update the weights, and the expected followon traces of all states."""
    w, followon = state
    x, after, rho = (jnp.asarray(each) for each in (X, NEXT, RATIO))

    def update(s, a):
        # The action before was the second one if the state is the last one.
        before = rlaxlib.EmphaticTraceState(
            jnp.zeros(8), jnp.mean(followon), rho[(s == 6).astype(int)], GAMMA
        )
        found = rlaxlib.emphatic_trace(before, x[s], rho[a], GAMMA, lambda_=0.0)
        error = GAMMA * after[a] @ w - x[s] @ w
        return error * found.trace, found.followon * 7 * jax.nn.one_hot(s, 7)

    change, followon = expected(update)
    return w + 0.03 * change, followon


def test_td_diverges_on_bairds_counterexample():
    with x64(True):
        weights = np.asarray(learn(td_step, 3000, (START,)))
    assert np.linalg.norm(weights[-1]) > 1e3 * np.linalg.norm(START)


@pytest.mark.parametrize("losses", [rlaxlib.tdc_loss, rlaxlib.gtd2_loss])
def test_gradient_td_converges_on_bairds_counterexample(losses):
    update = functools.partial(gradient_td_step, losses)
    with x64(True):
        weights = learn(update, 5000, (START, np.zeros(8)))
    assert projected_error(np.asarray(weights)[-1]) < 1e-3 * projected_error(START)


def test_emphatic_td_converges_on_bairds_counterexample():
    with x64(True):
        weights = np.asarray(learn(emphatic_step, 3000, (START, np.zeros(7))))
    values = np.sqrt(np.mean((weights @ X.T) ** 2, axis=1))
    assert values[-1] < 1e-3 * values[0]


# --- ObGD. ---


obgd_step_size = jax.jit(rlaxlib.obgd_step_size)


def test_obgd_bounds_the_change_of_a_prediction():
    rng = np.random.default_rng(0)
    for scale in (1e-4, 1.0, 1e4):
        trace = np.float32(scale * rng.normal(size=8))
        for error in (0.5, -30.0):
            step_size = obgd_step_size(trace, error, 0.5, 3.0)
            change = float(step_size) * max(abs(error), 1) * np.abs(trace).sum()
            assert step_size <= 0.5
            assert change <= 1 / 3 * (1 + 1e-5)
            assert step_size == 0.5 or change > 1 / 3 * (1 - 1e-5)


def test_obgd_step_size_of_a_zero_trace_is_the_largest():
    assert obgd_step_size(np.zeros(8, np.float32), 1e6, 0.5) == 0.5
