"""Compare the outputs of environment frameworks with the arrays in the guide.

`docs/guide/environments.md` shows the outputs of each framework for a corridor. These
tests run the same corridor in each framework. Frameworks that are not installed are
skipped; brax is not in any extra.
"""

import contextlib
import doctest
import io
import re
from pathlib import Path

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "environments.md"
LIMIT = 3
WALK, STOP = 0, 1
ACTIONS = [WALK, WALK, WALK, WALK, STOP]  # Time limit after three, then termination.
WITH_RESET = [WALK, WALK, WALK, STOP, WALK, STOP]  # The reset ignores the fourth.


@pytest.fixture(scope="module")
def guide():
    """Return the variables defined in each section of the guide, by heading."""
    names, sections = {"__name__": "guide"}, {}
    for section in re.split(r"^#+ ", PAGE.read_text(encoding="utf-8"), flags=re.M):
        for block in re.findall(r"^```python\n(.*?)^```", section, re.M | re.S):
            parsed = doctest.DocTestParser().get_doctest(block, names, "", "", 0)
            runner = doctest.DocTestRunner(verbose=False)
            with contextlib.redirect_stdout(io.StringIO()):
                runner.run(parsed, clear_globs=False)
            names |= parsed.globs
        sections[section.partition("\n")[0]] = dict(names)
    return sections


@pytest.fixture
def lenient():
    """Use the default settings of JAX, since frameworks may promote dtypes."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def walk_or_stop(s, action):
    """Return next state, reward, and whether the episode terminates."""
    if action == STOP:
        return s, 2.0 * s + 4.0, True
    return s + 1, s + 1.0, False


# --- Outputs of frameworks. ---


def test_dm_env_returns_the_arrays_of_the_guide(guide):
    class Corridor(dm_env.Environment):
        def reset(self):
            self.s, self.time, self.over = 0, 0, False
            return dm_env.restart(self.s)

        def step(self, action):
            if self.over:
                return self.reset()
            self.s, reward, stopped = walk_or_stop(self.s, action)
            self.time += 1
            self.over = stopped or self.time == LIMIT
            if stopped:
                return dm_env.termination(reward, self.s)
            if self.over:
                return dm_env.truncation(reward, self.s)
            return dm_env.transition(reward, self.s)

        def observation_spec(self):
            return dm_env.specs.Array((), int)

        def action_spec(self):
            return dm_env.specs.DiscreteArray(2)

    environment = Corridor()
    steps = [environment.reset(), *map(environment.step, WITH_RESET)]
    expected = guide["dm_env"]
    assert [step.step_type for step in steps] == expected["step_type"].tolist()
    assert [step.observation for step in steps] == expected["observation"].tolist()
    assert [step.reward or 0.0 for step in steps] == expected["reward"].tolist()
    discounts = [1.0 if step.first() else step.discount for step in steps]
    assert discounts == expected["discount"].tolist()


def make_gymnasium(mode):
    """Return a vector environment of Gymnasium with one corridor."""
    gymnasium = pytest.importorskip("gymnasium", minversion="1.1")

    class Corridor(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 100, (), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.s = 0
            return np.float32(self.s), {}

        def step(self, action):
            self.s, reward, stopped = walk_or_stop(self.s, action)
            return np.float32(self.s), reward, stopped, False, {}

    return gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.wrappers.TimeLimit(Corridor(), LIMIT)],
        autoreset_mode=gymnasium.vector.AutoresetMode(mode),
    )


@pytest.mark.parametrize(
    ("mode", "heading", "actions"),
    [("NextStep", "next step", WITH_RESET), ("SameStep", "same step", ACTIONS)],
)
def test_gymnasium_returns_the_arrays_of_the_guide(mode, heading, actions, guide):
    expected = guide[f"Gymnasium: {heading}"]
    envs = make_gymnasium(mode)
    obs, _ = envs.reset()
    steps = [envs.step(np.array([action])) for action in actions]
    assert [*obs, *(step[0][0] for step in steps)] == expected["obs"].tolist()
    assert [step[1][0] for step in steps] == expected["reward"].tolist()
    assert [step[2][0] for step in steps] == expected["terminations"].tolist()
    assert [step[3][0] for step in steps] == expected["truncations"].tolist()
    final_obs = [step[4].get("final_obs", [None])[0] for step in steps]
    same_step = mode == "SameStep"
    assert final_obs == (expected["final_obs"].tolist() if same_step else [None] * 6)


def test_next_observation_replaces_resets_in_a_batch(guide):
    next_observation = guide["Gymnasium: same step"]["next_observation"]
    info = {"final_obs": np.array([None, np.full(2, 9.0), None], object)}
    mixed = next_observation(np.zeros((3, 2)), np.array([False, True, False]), info)
    np.testing.assert_array_equal(mixed, [[0, 0], [9, 9], [0, 0]])
    without_ends = next_observation(np.ones((3, 2)), np.zeros(3, bool), {})
    np.testing.assert_array_equal(without_ends, np.ones((3, 2)))


def test_gymnasium_with_manual_resets_returns_the_arrays_of_the_guide(guide):
    expected = guide["Gymnasium: disabled"]
    envs = make_gymnasium("Disabled")
    obs, _ = envs.reset()
    rows = []
    for action in ACTIONS:
        next_obs, reward, terminations, truncations, _ = envs.step(np.array([action]))
        rows.append((obs, next_obs, reward, terminations, truncations))
        done, obs = terminations | truncations, next_obs
        if done.any():
            obs, _ = envs.reset(options={"reset_mask": done})
    rows = [np.ravel(each).tolist() for each in zip(*rows, strict=True)]
    names = "obs", "next_obs", "reward", "terminations", "truncations"
    assert rows == [expected[name].tolist() for name in names]


def test_gymnasium_sets_both_flags_if_termination_coincides_with_a_time_limit():
    envs = make_gymnasium("SameStep")
    envs.reset()
    *_, last = [envs.step(np.array([action])) for action in (WALK, WALK, STOP)]
    assert last[2] == [True]
    assert last[3] == [True]


def test_gymnax_returns_the_arrays_of_the_guide(guide):
    environment = pytest.importorskip("gymnax.environments.environment")
    if not hasattr(environment.Environment, "is_truncated"):
        pytest.skip("gymnax before 1.0")

    class Corridor(environment.Environment):
        def step_env(self, key, state, action, params):
            obs, reward, stopped = advance(state.time, action)
            return obs, state.replace(time=state.time + 1), reward, stopped, {}

        def reset_env(self, key, params):
            return jnp.zeros(()), environment.EnvState(time=jnp.array(0))

    def advance(time, action):  # Until the agent stops, the state is the time.
        s = time.astype(float)
        stopped = jnp.asarray(action == STOP)
        reward = jnp.where(stopped, 2.0 * s + 4.0, s + 1.0)
        return jnp.where(stopped, s, s + 1.0), reward, stopped

    env, params = Corridor(), environment.EnvParams(max_steps_in_episode=LIMIT)
    key = jax.random.key(0)
    obs, state = env.reset(key, params)
    observations, rows = [float(obs)], []
    for action in ACTIONS:
        obs, state, *row, info = env.step(key, state, action, params)
        observations.append(float(obs))
        rows.append([*row, info["final_observation"]])
    rows = [np.array(each).tolist() for each in zip(*rows, strict=True)]
    expected = guide["gymnax"]
    names = "reward", "terminated", "truncated", "final_observation"
    assert observations == expected["obs"].tolist()
    assert rows == [expected[name].tolist() for name in names]


@pytest.mark.filterwarnings("ignore")
def test_brax_returns_the_arrays_of_the_guide(guide, lenient):
    base = pytest.importorskip("brax.envs.base")
    training = pytest.importorskip("brax.envs.wrappers.training")

    class Corridor(base.Env):
        observation_size, action_size, backend = 1, 1, "none"

        def reset(self, rng):
            zero = jnp.zeros(())
            return base.State(zero, zero, zero, zero)

        def step(self, state, action):
            s, stopped = state.pipeline_state, action == STOP
            reward = jnp.where(stopped, 2.0 * s + 4.0, s + 1.0)
            s = jnp.where(stopped, s, s + 1.0)
            done = stopped.astype(float)
            return state.replace(pipeline_state=s, obs=s, reward=reward, done=done)

    shown = re.search(r"^(class KeepNext.*?)\n\n\n", PAGE.read_text(), re.M | re.S)
    names = {"brax": type("brax", (), {"envs": base})}
    exec(shown[1], names)
    env = training.EpisodeWrapper(training.VmapWrapper(Corridor()), LIMIT, 1)
    env = training.AutoResetWrapper(names["KeepNextObservation"](env))
    state = env.reset(jax.random.PRNGKey(0)[None])
    observations, rows = [float(state.obs[0])], []
    for action in ACTIONS:
        state = env.step(state, jnp.array([action]))
        observations.append(float(state.obs[0]))
        info = state.info
        rows.append((state.reward, state.done, info["truncation"], info["next_obs"]))
    rows = [np.ravel(each).tolist() for each in zip(*rows, strict=True)]
    expected = guide["brax"]
    names = "reward", "done", "truncation", "next_obs"
    assert observations == expected["obs"].tolist()
    assert rows == [expected[name].tolist() for name in names]


@pytest.mark.filterwarnings("ignore")
def test_brax_ppo_masks_truncated_steps_like_the_guide(guide, lenient):
    losses = pytest.importorskip("brax.training.agents.ppo.losses")
    expected = guide["brax"]
    columns = [
        jnp.asarray(expected[name], jnp.float32)[:, None]
        for name in ("truncation", "terminated", "reward", "v_tm1")
    ]
    targets, advantages = losses.compute_gae(*columns, jnp.zeros(1), 0.5, 0.5)
    np.testing.assert_allclose(targets[:, 0], expected["gae"] + expected["v_tm1"])
    np.testing.assert_allclose(advantages[:, 0], [-0.25, -0.5, 0, 0, 1])
