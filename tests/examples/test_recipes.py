"""Test the recipes: their gradients, stopped paths, and that their losses fall."""

import ast
import inspect
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain_losses as plain
import pytest
from recipes import continuous, policy_gradient, value_based

# --- The recipes. ---


class Case(NamedTuple):
    """A recipe, the same loss in plain `jax.numpy`, and what gets no gradient."""

    loss: object
    plain: object
    params: tuple
    stopped: str = ""
    meaningless: bool = False


def of(recipe, apply, batch, *args, **kwargs):
    """Return the loss as a function of both parameters."""
    if "target_params" in inspect.signature(recipe).parameters:
        return lambda p, t: recipe(p, t, apply, batch, *args, **kwargs)
    return lambda p, t: recipe(p, apply, batch, *args, **kwargs)


V, P, C = value_based, policy_gradient, continuous


def temperature(recipe, apply, batch, *args):
    return lambda p, t: recipe(p, t, apply, batch, *args)


LOG_TEMPERATURE = jnp.float32(0.3)


def mean_of(axis):
    return lambda q: jnp.mean(q, axis=axis)


CASES = {
    "dqn": Case(of(V.dqn, plain.Q, plain.ONE), plain.plain_dqn, plain.Q_PARAMS),
    "double_dqn": Case(
        of(V.double_dqn, plain.Q, plain.ONE), plain.plain_double_dqn, plain.Q_PARAMS
    ),
    "duelling_dqn": Case(
        of(V.duelling_dqn, lambda w, s: plain.policy_and_value(w, s)[::-1], plain.ONE),
        lambda p, t: plain.plain_double_dqn(p, t, plain.duelling),
        plain.PAIR_PARAMS,
    ),
    "c51": Case(of(V.c51, plain.ATOMS, plain.ONE), plain.plain_c51, plain.ATOMS_PARAMS),
    "qr_dqn": Case(
        of(V.qr_dqn, plain.QUANTILES, plain.ONE),
        plain.plain_qr_dqn,
        plain.QUANTILES_PARAMS,
    ),
    "iqn": Case(
        of(V.iqn, plain.implicit, plain.ONE, plain.KEY, 6, 4),
        plain.plain_iqn,
        plain.Q_PARAMS,
    ),
    "fqf": Case(
        of(V.fqf, plain.FQF, plain.ONE), plain.plain_fqf, plain.FQF_PARAMS, "fractions"
    ),
    "fqf_fractions": Case(
        of(V.fqf_fractions, plain.FQF, plain.ONE),
        plain.plain_fqf_fractions,
        plain.FQF_PARAMS,
        "quantiles",
        meaningless=True,
    ),
    "rainbow": Case(
        of(V.rainbow, plain.ATOMS, plain.N_STEP),
        plain.plain_rainbow,
        plain.ATOMS_PARAMS,
    ),
    "munchausen_dqn": Case(
        of(V.munchausen_dqn, plain.Q, plain.ONE), plain.plain_munchausen, plain.Q_PARAMS
    ),
    "r2d2": Case(
        of(V.r2d2, plain.recurrent, plain.STREAM, 2, 2),
        plain.plain_r2d2,
        plain.Q_PARAMS,
    ),
    "ape_x": Case(
        of(V.ape_x, plain.Q, plain.STREAM), plain.plain_ape_x, plain.Q_PARAMS
    ),
    "pqn": Case(of(V.pqn, plain.Q, plain.STREAM), plain.plain_pqn, plain.Q_PARAMS),
    "reinforce": Case(
        of(P.reinforce, plain.Q, plain.STREAM), plain.plain_reinforce, plain.Q_PARAMS
    ),
    "a2c": Case(
        of(P.a2c, plain.policy_and_value, plain.STREAM),
        plain.plain_a2c,
        plain.PAIR_PARAMS,
    ),
    "impala": Case(
        of(P.impala, plain.policy_and_value, plain.STREAM),
        plain.plain_impala,
        plain.PAIR_PARAMS,
    ),
    "ppo": Case(
        of(P.ppo, plain.policy_and_value, plain.STREAM),
        plain.plain_ppo,
        plain.PAIR_PARAMS,
    ),
    "ppo_penalty": Case(
        of(P.ppo_penalty, plain.policy_and_value, plain.STREAM, 2.0),
        plain.plain_ppo_penalty,
        plain.PAIR_PARAMS,
    ),
    "decoupled_ppo": Case(
        of(P.decoupled_ppo, plain.policy_and_value, plain.STREAM),
        plain.plain_decoupled_ppo,
        plain.PAIR_PARAMS,
    ),
    "categorical_mpo": Case(
        of(P.categorical_mpo, plain.MPO_A, plain.STREAM),
        plain.plain_categorical_mpo,
        plain.MPO_A_PARAMS,
        "critic",
    ),
    "vmpo": Case(
        of(P.vmpo, plain.policy_and_value, plain.STREAM),
        plain.plain_vmpo,
        plain.VMPO_PARAMS,
    ),
    "muesli": Case(
        of(P.muesli, plain.policy_and_q, plain.STREAM),
        plain.plain_muesli,
        plain.TWO_Q_PARAMS,
    ),
    "gumbel_muzero": Case(
        of(P.gumbel_muzero, plain.model, plain.SEARCH),
        plain.plain_gumbel_muzero,
        (
            (
                plain.normal(plain.F, (plain.T + 1) * plain.A),
                plain.normal(plain.F, (plain.T + 1) * plain.M),
                plain.normal(plain.F, plain.T * plain.M),
            ),
            None,
        ),
    ),
    "dreamer_actor": Case(
        of(P.dreamer_actor, plain.Q, plain.STREAM, 2.0),
        plain.plain_dreamer_actor,
        plain.Q_PARAMS,
    ),
    "dreamer_critic": Case(
        of(P.dreamer_critic, plain.critic_logits, plain.STREAM),
        plain.plain_dreamer_critic,
        (0.1 * plain.normal(plain.F, plain.M), 0.1 * plain.normal(plain.F, plain.M)),
    ),
    "ddpg_critic": Case(
        of(C.ddpg_critic, plain.DPG, plain.ACTION),
        plain.plain_ddpg_critic,
        plain.DPG_PARAMS,
        "actor",
    ),
    "ddpg_actor": Case(
        of(C.ddpg_actor, plain.DPG, plain.ACTION),
        plain.plain_ddpg_actor,
        plain.DPG_PARAMS,
        "critic",
        True,
    ),
    "td3_critic": Case(
        of(C.td3_critic, plain.TD3, plain.ACTION, plain.KEY),
        plain.plain_td3_critic,
        plain.TD3_PARAMS,
        "actor",
    ),
    "td3_actor": Case(
        of(C.td3_actor, plain.TD3, plain.ACTION),
        plain.plain_td3_actor,
        plain.TD3_PARAMS,
        "critic",
    ),
    "d4pg_critic": Case(
        of(C.d4pg_critic, plain.D4PG, plain.ACTION),
        plain.plain_d4pg_critic,
        plain.D4PG_PARAMS,
        "actor",
    ),
    "d4pg_actor": Case(
        of(C.d4pg_actor, plain.D4PG, plain.ACTION),
        plain.plain_d4pg_actor,
        plain.D4PG_PARAMS,
        "critic",
        True,
    ),
    "sac_critic": Case(
        of(C.sac_critic, plain.SAC, plain.ACTION, plain.KEY, 0.2),
        plain.plain_sac_critic,
        plain.SAC_PARAMS,
        "actor",
    ),
    "sac_actor": Case(
        of(C.sac_actor, plain.SAC, plain.ACTION, plain.KEY, 0.2),
        plain.plain_sac_actor,
        plain.SAC_PARAMS,
        "critic",
    ),
    "sac_temperature": Case(
        temperature(C.sac_temperature, plain.SAC, plain.ACTION, plain.KEY, -2.0),
        plain.plain_sac_temperature,
        (LOG_TEMPERATURE, plain.SAC_PARAMS[0]),
    ),
    "discrete_sac_critic": Case(
        of(P.discrete_sac_critic, plain.DISCRETE, plain.ONE, 0.2),
        plain.plain_discrete_sac_critic,
        plain.DISCRETE_PARAMS,
        "actor",
    ),
    "discrete_sac_actor": Case(
        of(P.discrete_sac_actor, plain.DISCRETE, plain.ONE, 0.2),
        plain.plain_discrete_sac_actor,
        plain.DISCRETE_PARAMS,
        "critic",
    ),
    "discrete_sac_temperature": Case(
        temperature(P.discrete_sac_temperature, plain.DISCRETE, plain.ONE, 0.5),
        plain.plain_discrete_sac_temperature,
        (LOG_TEMPERATURE, plain.DISCRETE_PARAMS[0]),
    ),
    "redq_critic": Case(
        of(C.redq_critic, plain.SAC, plain.ACTION, plain.KEY, 0.2, 3),
        plain.plain_redq_critic,
        plain.SAC_PARAMS,
        "actor",
    ),
    "redq_actor": Case(
        of(C.redq_actor, plain.SAC, plain.ACTION, plain.KEY, 0.2),
        lambda p, t: plain.plain_sac_actor(p, t, plain.SAC, mean_of(-1)),
        plain.SAC_PARAMS,
        "critic",
    ),
    "tqc_critic": Case(
        of(C.tqc_critic, plain.TQC, plain.ACTION, plain.KEY, 0.2),
        plain.plain_tqc_critic,
        plain.TQC_PARAMS,
        "actor",
    ),
    "tqc_actor": Case(
        of(C.tqc_actor, plain.TQC, plain.ACTION, plain.KEY, 0.2),
        lambda p, t: plain.plain_sac_actor(p, t, plain.TQC, mean_of((1, 2))),
        plain.TQC_PARAMS,
        "critic",
    ),
    "mpo": Case(
        of(C.mpo, plain.MPO, plain.ACTION, plain.KEY, 6),
        plain.plain_mpo,
        plain.MPO_PARAMS,
    ),
}
# The value of one is not minimised, and the targets of the other move with the policy.
MAY_RISE = "fqf_fractions", "impala"
HELPERS = {
    *("log_probs", "entropy", "advantages", "retrace_errors", "sample_tanh_normal"),
    *("dreamer_pair", "dreamer_returns"),
}


def part(tree, name):
    return tree[name] if isinstance(tree, dict) else getattr(tree, name)


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_the_loss_in_plain_numpy_and_the_loss_falls(name):
    case = CASES[name]
    params, target_params = case.params
    adam = optax.adam(1e-3)

    @jax.jit
    def run(params, target_params):
        grad = jax.value_and_grad(case.loss, argnums=(0, 1), allow_int=True)
        plain = jax.value_and_grad(case.plain)(params, target_params)

        def step(state, _):
            params, moments = state
            updates, moments = adam.update(
                jax.grad(case.loss)(params, target_params), moments
            )
            return (optax.apply_updates(params, updates), moments), None

        state = params, adam.init(params)
        (learned, _), _ = jax.lax.scan(step, state, length=10)
        after = case.plain(learned, target_params)
        return grad(params, target_params), plain, after

    (loss, (gradient, stopped)), (plain, expected), after = run(params, target_params)
    if not case.meaningless:
        np.testing.assert_allclose(loss, plain, rtol=1e-4)
    for x, y in zip(*map(jax.tree.leaves, (gradient, expected)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
    assert any(np.any(x) for x in jax.tree.leaves(gradient))
    if name not in MAY_RISE:
        assert after < plain
    stopped = [stopped, part(gradient, case.stopped) if case.stopped else ()]
    assert not any(np.any(x) for x in jax.tree.leaves(stopped))


# --- What holds for all recipes. ---


def functions():
    for module in (V, P, C):
        source = inspect.getsource(module)
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                yield node, source.splitlines()


def test_every_recipe_is_tested():
    assert {node.name for node, _ in functions()} == {*CASES, *HELPERS}


def test_recipes_are_short_and_name_their_paper():
    for node, lines in functions():
        body = lines[node.body[0].end_lineno : node.end_lineno]
        assert len([line for line in body if line.strip()]) <= 15, node.name
        if node.name not in HELPERS:
            docstring = " ".join(ast.get_docstring(node).split())
            assert "https://" in docstring, node.name
            assert "Usual: " in docstring, node.name
