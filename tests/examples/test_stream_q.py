"""Test the stream Q(λ) example: its update, its traces and its learning."""

import csv
import dataclasses
import functools

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stream_q as example

# --- Helpers. ---

SHORT = example.Config(
    train_steps=60, eval_interval=40, eval_episodes=2, hidden_units=16, sparsity=0.5
)
ENVIRONMENT, _ = gymnax.make("CartPole-v1")
NETWORK = example.make_network(ENVIRONMENT, SHORT)
STEP = example.Transition(
    observation_tm1=jnp.array([0.1, -0.2, 0.3, 0.4]),
    a_tm1=jnp.array(0),
    r_t=jnp.array(1.0),
    terminated=jnp.array(False),
    truncated=jnp.array(False),
    observation_t=jnp.array([-0.3, 0.2, 0.1, 0.5]),
)


@functools.cache
def make_agent():
    """Return an agent that has seen a few observations."""
    make = jax.jit(lambda key: example.make_agent(key, ENVIRONMENT, SHORT))
    agent = make(jax.random.key(0))
    for sign in (1, -1, 2):
        step = STEP._replace(observation_t=sign * STEP.observation_t)
        agent = learn(agent, step)
    return agent


@jax.jit
def learn(agent, transition):
    return example.learn(agent, transition, NETWORK, SHORT)


def values(agent, observation):
    return np.asarray(example.action_values(agent, NETWORK, observation))


def greedy_step(agent, **changes):
    """Return a transition with the greedy action."""
    action = jnp.argmax(values(agent, STEP.observation_tm1))
    return STEP._replace(a_tm1=action, **changes)


def norm(tree):
    return sum(float(jnp.sum(jnp.abs(x))) for x in jax.tree.leaves(tree))


# --- Updates and learning. ---


def test_an_update_keeps_the_types_of_the_agent():
    make = functools.partial(example.make_agent, environment=ENVIRONMENT, config=SHORT)
    agent = jax.eval_shape(make, jax.random.key(0))
    assert agent == jax.eval_shape(learn, agent, STEP)


def test_initial_weights_of_each_unit_are_sparse():
    init = example.sparse_init(jax.random.key(0), (20, 7), sparsity=0.9)
    np.testing.assert_array_equal(jnp.sum(init == 0, axis=0), 18)
    assert np.abs(init).max() < 20**-0.5
    assert len({tuple(column) for column in (np.asarray(init).T == 0)}) > 1


@pytest.mark.trust
def test_update_moves_along_the_trace_by_the_bounded_step():
    agent = make_agent()
    step = greedy_step(agent)
    new = learn(agent, step)
    at = agent._replace(observations=new.observations)  # The moments are updated first.
    gradient = jax.grad(
        lambda params: example.action_values(at, NETWORK, step.observation_tm1, params)[
            step.a_tm1
        ]
    )(agent.params)
    decay = 0.99 * 0.8
    trace = jax.tree.map(lambda z, g: decay * z + g, agent.trace, gradient)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6),
        new.trace,
        trace,
    )
    scale = np.sqrt(new.rewards.moments.variance)
    td_error = 1 / scale + 0.99 * values(at, step.observation_t).max()
    td_error -= values(at, step.observation_tm1)[step.a_tm1]
    step_size = 1 / max(1, 2 * max(abs(td_error), 1) * norm(trace))
    jax.tree.map(
        lambda old, z, x: np.testing.assert_allclose(
            x - old, step_size * td_error * z, rtol=1e-3, atol=1e-6
        ),
        agent.params,
        trace,
        new.params,
    )


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_trace_ends_with_an_episode(end):
    agent = make_agent()
    agent = learn(agent, greedy_step(agent, **{end: jnp.array(True)}))
    assert norm(agent.trace) > 0
    assert_starts_anew(agent, greedy_step(agent))


def test_trace_ends_before_an_exploratory_action():
    agent = make_agent()
    best = greedy_step(agent).a_tm1
    assert_starts_anew(agent, STEP._replace(a_tm1=1 - best))


def assert_starts_anew(agent, step):
    """Assert that a step does not depend on the trace."""
    zeros = jax.tree.map(jnp.zeros_like, agent.trace)
    with_trace, without = learn(agent, step), learn(agent._replace(trace=zeros), step)
    jax.tree.map(np.testing.assert_array_equal, with_trace.params, without.params)
    assert norm(with_trace.trace) > 0


def test_termination_stops_the_bootstrap_and_truncation_does_not():
    agent = make_agent()
    plain, truncated, terminated = (
        learn(agent, greedy_step(agent, **{name: jnp.array(True)} if name else {}))
        for name in ("", "truncated", "terminated")
    )
    jax.tree.map(np.testing.assert_array_equal, plain.params, truncated.params)
    assert norm(jax.tree.map(jnp.subtract, plain.params, terminated.params)) > 0


@pytest.mark.trust
def test_curve_is_written(tmp_path):
    example.main(dataclasses.replace(SHORT, output=str(tmp_path)))
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *points = csv.reader(file)
    assert header == ["step", "train_return", "eval_return"]
    assert [point[0] for point in points] == ["40", "60"]
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
def test_curve_depends_on_the_seed():
    first, again, other = (
        example.train(dataclasses.replace(SHORT, seed=seed)) for seed in (0, 0, 1)
    )
    assert str(first) == str(again)  # NaN if no episode ended.
    assert str(first) != str(other)


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return >= 400
