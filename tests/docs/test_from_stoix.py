"""Test the functions of the page for users of Stoix, by their equations.

Those of EdanToledo/Stoix@8fff19c, stoix/utils/loss.py and stoix/utils/multistep.py.
"""

import re
import types
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows.returns import multistep, off_policy

PAGE = (Path(__file__).parents[2] / "docs/from/stoix.md").read_text(encoding="utf-8")
RANDOM = np.random.default_rng(0)
B, T, A, M = 4, 5, 3, 7


def load():
    """Return the functions of the page."""
    module = types.ModuleType("stoix_page")
    for code in re.findall(r"```python\n((?!>>>).*?)```", PAGE, re.S):
        exec(code, vars(module))
    return module


page = load()


def close(x, y):
    np.testing.assert_allclose(x, y, 1e-4, 1e-5)


def normal(*shape):
    return jnp.asarray(RANDOM.normal(size=shape), jnp.float32)


@pytest.fixture(autouse=True)
def _default_jax_settings():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


LOG_PROB, OLD, ADV = normal(B, T), normal(B, T), normal(B, T)
RATIO = np.exp(LOG_PROB - OLD)
R_T, D_T = normal(B), jnp.array([0.9, 0.0, 0.5, 0.9])
Q_TM1, Q_T, SELECTOR = normal(B, A), normal(B, A), normal(B, A)
A_TM1, ROWS = jnp.array([0, 2, 1, 1]), np.arange(B)


def huber(x, delta):
    x = np.abs(x)
    return (
        np.where(x <= delta, x**2 / 2, delta * (x - delta / 2)) if delta else x**2 / 2
    )


def test_policy_losses():
    loss = np.minimum(RATIO * ADV, np.clip(RATIO, 0.8, 1.2) * ADV)
    close(page.ppo_clip_loss(LOG_PROB, OLD, ADV, 0.2), -np.mean(loss))
    kl = np.abs(normal(B, T))
    old_policy = SimpleNamespace(kl_divergence=lambda policy: kl)
    loss, mean = page.ppo_penalty_loss(LOG_PROB, OLD, ADV, 0.5, None, old_policy)
    close(mean, np.mean(kl))
    close(loss, -np.mean(RATIO * ADV) + 0.5 * np.mean(kl))
    x, y = (RATIO - 1) * ADV, (LOG_PROB - OLD) * ADV
    drift = np.where(ADV >= 0, x - 2 * np.tanh(x / 2), y - 0.6 * np.tanh(y / 0.6))
    loss = page.dpo_loss(LOG_PROB, OLD, ADV, 2.0, 0.6)
    close(loss, -np.mean(RATIO * ADV - np.maximum(drift, 0)))
    clipped = OLD + np.clip(LOG_PROB - OLD, -0.2, 0.2)
    loss = np.maximum((LOG_PROB - ADV) ** 2, (clipped - ADV) ** 2) / 2
    close(page.clipped_value_loss(LOG_PROB, OLD, ADV, 0.2), np.mean(loss))


@pytest.mark.parametrize("delta", [0.0, 0.5])
def test_td_learning(delta):
    chosen = Q_TM1[ROWS, A_TM1]
    errors = R_T + D_T * np.max(Q_T, axis=-1) - chosen
    found = page.q_learning(Q_TM1, A_TM1, R_T, D_T, Q_T, delta)
    close(found, np.mean(huber(errors, delta)))
    errors = R_T + D_T * Q_T[ROWS, np.argmax(SELECTOR, -1)] - chosen
    found = page.double_q_learning(Q_TM1, Q_T, A_TM1, R_T, D_T, SELECTOR, delta)
    close(found, np.mean(huber(errors, delta)))
    errors = R_T + D_T * Q_T[:, 0] - Q_TM1[:, 0]
    found = page.td_learning(Q_TM1[:, 0], R_T, D_T, Q_T[:, 0], delta)
    close(found, np.mean(huber(errors, delta)))
    log_pi = jax.nn.log_softmax(SELECTOR / 0.5)[ROWS, A_TM1]
    bonus = 0.8 * np.clip(0.5 * log_pi, -1, 0)
    soft = 0.5 * jax.nn.logsumexp(Q_T / 0.5, axis=-1)
    errors = R_T + bonus + D_T * soft - chosen
    found = page.munchausen_q_learning(
        Q_TM1, SELECTOR, A_TM1, R_T, D_T, Q_T, 0.5, 0.8, -1.0, delta
    )
    close(found, np.mean(huber(errors, delta)))


def project(z, probs, atoms):
    width = atoms[1] - atoms[0]
    distance = np.abs(np.clip(z, atoms[0], atoms[-1])[:, None] - atoms) / width
    return np.sum(probs[:, None] * np.clip(1 - distance, 0, 1), axis=0)


def test_categorical_losses():
    atoms = jnp.linspace(-2.0, 2.0, M)
    logits_tm1, logits_t, every = (
        normal(B, A, M),
        normal(B, A, M),
        jnp.tile(atoms, (B, 1)),
    )
    best = np.argmax(SELECTOR, -1)
    losses = []
    for i in range(B):
        probs = np.asarray(jax.nn.softmax(logits_t[i, best[i]]))
        target = project(R_T[i] + D_T[i] * atoms, probs, np.asarray(atoms))
        log_p = jax.nn.log_softmax(logits_tm1[i, A_TM1[i]])
        losses.append(-np.sum(target * log_p))
    found = page.categorical_double_q_learning(
        logits_tm1, every, A_TM1, R_T, D_T, logits_t, every, SELECTOR
    )
    close(found, losses)
    found = page.categorical_td_learning(
        logits_tm1[ROWS, A_TM1], every, R_T, D_T, logits_t[ROWS, best], every
    )
    close(found, np.mean(losses))


def test_quantile_losses():
    source, tau, target = (
        normal(B, M),
        jnp.asarray(RANDOM.uniform(size=(B, M))),
        normal(B, M),
    )
    u = target[:, None, :] - source[:, :, None]
    weight = np.abs(tau[:, :, None] - (u < 0))
    expected = np.sum(np.mean(weight * huber(u, 1.0), axis=2), axis=1)
    tau = tau.astype(jnp.float32)
    close(page.quantile_regression_loss(source, tau, target, 1.0), expected)
    rate = jax.grad(
        lambda y: jnp.sum(page.quantile_regression_loss(source, tau, y, 1.0))
    )
    assert np.any(rate(target))  # Stoix does not stop it.
    quantiles, selector = normal(B, M, A), normal(B, M, A)
    best = np.argmax(np.mean(selector, axis=1), -1)
    y = R_T[:, None] + D_T[:, None] * quantiles[ROWS, :, best]
    expected = page.quantile_regression_loss(source, tau, y, 1.0)
    online = jnp.zeros((B, M, A)).at[ROWS, :, A_TM1].set(source)
    found = page.quantile_q_learning(
        online, tau, A_TM1, R_T, D_T, selector, quantiles, 1.0
    )
    close(found, np.mean(expected))


R, D = normal(B, T), jnp.asarray(RANDOM.choice([0.9, 0.0, 0.9], (B, T)), jnp.float32)
V_TM1, V_T = normal(B, T), normal(B, T)
LAMBDA = np.full(T, 0.8)


def each(function, *arrays):
    return np.stack(
        [function(*(np.asarray(x) for x in row)) for row in zip(*arrays, strict=True)]
    )


def test_advantages_reset_at_truncations():
    cut = jnp.zeros((B, T)).at[:, 2].set(1.0)
    gae = multistep.generalized_advantage_estimation

    def of_part(part):
        arrays = (x[:, part] for x in (V_TM1, V_T, R, D))
        return each(lambda *x: gae(*x, LAMBDA[part]), *arrays)

    expected = np.concatenate([of_part(slice(3)), of_part(slice(3, T))], axis=1)
    inputs = R, D, 0.8, V_TM1, V_T
    estimate = page.batch_truncated_generalized_advantage_estimation
    adv_t, target = estimate(*inputs, truncation_t=cut)
    close(adv_t, expected)
    close(target, expected + V_TM1)
    swapped = (R.T, D.T, 0.8, V_TM1.T, V_T.T)
    adv_t, _ = estimate(*swapped, time_major=True, truncation_t=cut.T)
    close(adv_t.T, expected)
    adv_t, _ = estimate(*inputs, standardize_advantages=True, truncation_t=cut)
    close(adv_t, (expected - np.mean(expected)) / np.std(expected))


def test_returns():
    expected = each(lambda *x: multistep.lambda_returns(*x, LAMBDA), R, D, V_T)
    close(page.batch_lambda_returns(R, D, V_T, 0.8), expected)
    close(page.batch_lambda_returns(R.T, D.T, V_T.T, 0.8, time_major=True).T, expected)
    q_t = normal(B, T, A)
    expected = page.batch_lambda_returns(R, D, jnp.max(q_t, axis=-1), 0.8)
    close(page.batch_q_lambda(R, D, q_t, 0.8), expected)
    expected = page.batch_lambda_returns(R, D, jnp.full((B, T), 2.0))
    close(page.batch_discounted_returns(R, D, 2.0), expected)
    n_step = multistep.n_step_bootstrapped_returns
    expected = each(lambda *x: np.array(n_step(*x, LAMBDA, 3)), R, D, V_T)
    close(page.batch_n_step_bootstrapped_returns(R, D, V_T, 3, 0.8), expected)


def test_off_policy_returns_and_errors():
    q_t, c_t = (
        normal(B, T - 1),
        jnp.asarray(RANDOM.uniform(size=(B, T - 1)), jnp.float32),
    )
    general = off_policy.general_off_policy_returns_from_q_and_v
    expected = each(general, q_t, V_T, R, D, c_t)
    found = page.batch_general_off_policy_returns_from_q_and_v(q_t, V_T, R, D, c_t)
    close(found, expected)
    found = page.batch_retrace_continuous(V_TM1, q_t, V_T, R, D, jnp.log(c_t), 0.8)
    close(found, each(general, q_t, V_T, R, D, 0.8 * c_t) - V_TM1)
    rho, values = jnp.exp(normal(T)), normal(T + 1)
    found = page.importance_corrected_td_errors(R[0], D[0], rho, 0.8, values)
    corrected = off_policy.importance_corrected_td_errors
    close(found, corrected(*map(np.asarray, (R[0], D[0], rho, LAMBDA, values))))
    cut = jnp.zeros(T).at[2].set(1.0)
    first = page.importance_corrected_td_errors(R[0], D[0], rho, 0.8, values, cut)[:3]
    arrays = (R[0], D[0], rho)
    expected = corrected(
        *(np.asarray(x)[:3] for x in arrays), LAMBDA[:3], np.asarray(values)[:4]
    )
    close(first, expected)
