"""Step the guide's corridor in each framework, and hold what it returns to the guide.

The guide (`docs/guide/environments.md`) shows what frameworks return as arrays. Here
they return it. What is not installed is passed over: brax is none of our extras.
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
ACTIONS = [WALK, WALK, WALK, WALK, STOP]  # Cut after three; then two that end.
WITH_RESET = [WALK, WALK, WALK, STOP, WALK, STOP]  # The fourth is ignored.


@pytest.fixture(scope="module")
def guide():
    """Return the names that each section of the guide defines, by its heading."""
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
    """Set JAX as it comes: what frameworks do with dtypes is their affair."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def walk_or_stop(s, action):
    """Return the next state, the reward, and whether the episode ends."""
    if action == STOP:
        return s, 2.0 * s + 4.0, True
    return s + 1, s + 1.0, False


# --- What frameworks return. ---


def test_dm_env_returns_what_the_guide_says(guide):
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
    said = guide["dm_env"]
    assert [step.step_type for step in steps] == said["step_type"].tolist()
    assert [step.observation for step in steps] == said["observation"].tolist()
    assert [step.reward or 0.0 for step in steps] == said["reward"].tolist()
    discounts = [1.0 if step.first() else step.discount for step in steps]
    assert discounts == said["discount"].tolist()


def make_gymnasium(mode):
    """Return a vector environment of Gymnasium, of one corridor."""
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
def test_gymnasium_returns_what_the_guide_says(mode, heading, actions, guide):
    said = guide[f"Gymnasium: {heading}"]
    envs = make_gymnasium(mode)
    obs, _ = envs.reset()
    steps = [envs.step(np.array([action])) for action in actions]
    assert [*obs, *(step[0][0] for step in steps)] == said["obs"].tolist()
    assert [step[1][0] for step in steps] == said["reward"].tolist()
    assert [step[2][0] for step in steps] == said["terminations"].tolist()
    assert [step[3][0] for step in steps] == said["truncations"].tolist()
    final_obs = [step[4].get("final_obs", [None])[0] for step in steps]
    expected = said["final_obs"].tolist() if mode == "SameStep" else [None] * 6
    assert final_obs == expected


def test_true_next_observations_are_found_among_many(guide):
    next_observation = guide["Gymnasium: same step"]["next_observation"]
    info = {"final_obs": np.array([None, np.full(2, 9.0), None], object)}
    found = next_observation(np.zeros((3, 2)), np.array([False, True, False]), info)
    np.testing.assert_array_equal(found, [[0, 0], [9, 9], [0, 0]])
    none = next_observation(np.ones((3, 2)), np.zeros(3, bool), {})
    np.testing.assert_array_equal(none, np.ones((3, 2)))


def test_gymnasium_lets_the_user_reset_as_the_guide_does(guide):
    said = guide["Gymnasium: disabled"]
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
    assert rows == [said[name].tolist() for name in names]


def test_gymnasium_sets_both_flags_where_a_time_limit_meets_an_end():
    envs = make_gymnasium("SameStep")
    envs.reset()
    *_, last = [envs.step(np.array([action])) for action in (WALK, WALK, STOP)]
    assert last[2] == [True]
    assert last[3] == [True]


def test_gymnax_returns_what_the_guide_says(guide):
    environment = pytest.importorskip("gymnax.environments.environment")
    if not hasattr(environment.Environment, "is_truncated"):
        pytest.skip("gymnax before 1.0")

    class Corridor(environment.Environment):
        def step_env(self, key, state, action, params):
            obs, reward, stopped = advance(state.time, action)
            return obs, state.replace(time=state.time + 1), reward, stopped, {}

        def reset_env(self, key, params):
            return jnp.zeros(()), environment.EnvState(time=jnp.array(0))

    def advance(time, action):  # Before one stops, the state is the time.
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
    said = guide["gymnax"]
    names = "reward", "terminated", "truncated", "final_observation"
    assert observations == said["obs"].tolist()
    assert rows == [said[name].tolist() for name in names]


@pytest.mark.filterwarnings("ignore")
def test_brax_returns_what_the_guide_says(guide, lenient):
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
    said = guide["brax"]
    names = "reward", "done", "truncation", "next_obs"
    assert observations == said["obs"].tolist()
    assert rows == [said[name].tolist() for name in names]


@pytest.mark.filterwarnings("ignore")
def test_brax_leaves_the_row_of_a_time_limit_out_as_the_guide_does(guide, lenient):
    losses = pytest.importorskip("brax.training.agents.ppo.losses")
    said = guide["brax"]
    columns = [
        jnp.asarray(said[name], jnp.float32)[:, None]
        for name in ("truncation", "terminated", "reward", "v_tm1")
    ]
    targets, advantages = losses.compute_gae(*columns, jnp.zeros(1), 0.5, 0.5)
    np.testing.assert_allclose(targets[:, 0], said["gae"] + said["v_tm1"])
    np.testing.assert_allclose(advantages[:, 0], [-0.25, -0.5, 0, 0, 1])
