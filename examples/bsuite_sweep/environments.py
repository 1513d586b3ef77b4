"""The environments of bsuite as pure functions, to train in one jitted loop.

Each has the dynamics, rewards and observations of the class of bsuite that it names;
tests compare them step by step. A state is a dict. `length` and thresholds may be
traced, so that one program serves all settings of an experiment; sizes are static.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from bsuite.utils import datasets

State = dict[str, jax.Array]


class Environment(NamedTuple):
    """An environment: the number of actions and three functions.

    Attributes:
        num_actions: Number of actions, A.
        reset: From a key to a state.
        step: From a key, a state and an action to a state, a reward and whether the
            episode ended.
        observe: From a state to an observation: float[D] or, if one-hot, the index.
        num_cells: Number of indices, if observations are one-hot.
    """

    num_actions: int
    reset: Callable[[jax.Array], State]
    step: Callable[[jax.Array, State, jax.Array], tuple[State, jax.Array, jax.Array]]
    observe: Callable[[State], jax.Array]
    num_cells: int | None = None


def bandit(mapping_seed: int) -> Environment:
    """Create `SimpleBandit`: one step, eleven rewards in an order of the seed."""
    order = np.random.RandomState(mapping_seed).choice(11, 11, replace=False)
    rewards = jnp.asarray(np.linspace(0, 1, 11)[order], jnp.float32)
    return Environment(
        11,
        lambda key: {},
        lambda key, state, action: (state, rewards[action], jnp.bool_(True)),
        lambda state: jnp.ones(1),
    )


def mnist() -> Environment:
    """Create `MNISTBandit`: one step, to name the digit of an image.

    Downloads the images at first, by bsuite, which reads pixels above 127 as negative
    numbers; here they are positive.
    """
    (images, labels), _ = datasets.load_mnist()
    images = jnp.asarray(images.astype(np.uint8).reshape(len(images), -1))
    labels = jnp.asarray(labels, jnp.int32)

    def step(key, state, action):
        right = action == labels[state["index"]]
        return state, jnp.where(right, 1.0, -1.0), jnp.bool_(True)

    return Environment(
        10,
        lambda key: {"index": jax.random.randint(key, (), 0, len(labels))},
        step,
        lambda state: images[state["index"]].astype(jnp.float32) / 255,
    )


def catch() -> Environment:
    """Create `Catch`: a ball falls through ten rows of five columns."""

    def reset(key):
        ball = jax.random.randint(key, (), 0, 5)
        return {"ball": ball, "row": jnp.int32(0), "paddle": jnp.int32(2)}

    def step(key, state, action):
        paddle = jnp.clip(state["paddle"] + action - 1, 0, 4)
        row = state["row"] + 1
        done = row == 9
        reward = jnp.where(done, jnp.where(paddle == state["ball"], 1.0, -1.0), 0.0)
        return {**state, "row": row, "paddle": paddle}, reward, done

    def observe(state):
        cells = jnp.arange(50)
        ball = cells == 5 * state["row"] + state["ball"]
        return 1.0 * (ball | (cells == 45 + state["paddle"]))

    return Environment(3, reset, step, observe)


def deep_sea(size: int, mapping_seed: int, stochastic: bool = False) -> Environment:
    """Create `DeepSea`: one row down per step; a reward at the end of all rights."""
    shape = size, size
    right = jnp.asarray(np.random.RandomState(mapping_seed).binomial(1, 0.5, shape))

    def reset(key):
        return {"row": jnp.int32(0), "column": jnp.int32(0), "bad": jnp.bool_(False)}

    def step(key, state, action):
        wind_key, noise_key = jax.random.split(key)
        row, column = state["row"], state["column"]
        to_right = action == right[row, column]
        last = row == size - 1
        reward = 1.0 * (to_right & (column == size - 1)) - 0.01 / size * to_right
        blown = jnp.bool_(False)
        if stochastic:
            noisy = last & ((column == 0) | (column == size - 1))
            reward += noisy * jax.random.normal(noise_key)
            blown = jax.random.uniform(wind_key) <= 1 / size
        move = jnp.where(to_right, jnp.where(blown, 0, 1), -1)
        bad = state["bad"] | (~to_right & (row == column))
        column = jnp.clip(column + move, 0, size - 1)
        return {"row": row + 1, "column": column, "bad": bad}, reward, last

    def observe(state):  # No agent uses the last, of row N, where bsuite has zeros.
        return jnp.minimum(state["row"] * size + state["column"], size**2 - 1)

    return Environment(2, reset, step, observe, size**2)


def discounting_chain(mapping_seed: jax.Array) -> Environment:
    """Create `DiscountingChain`: the first action selects when the reward comes."""
    times = jnp.array([1, 3, 10, 30, 100])
    rewards = jnp.where(jnp.arange(5) == mapping_seed % 5, 1.1, 1.0)

    def reset(key):
        return {"time": jnp.int32(0), "chain": jnp.int32(-1)}

    def step(key, state, action):
        chain = jnp.where(state["time"] == 0, action, state["chain"])
        time = state["time"] + 1
        reward = jnp.where(time == times[chain], rewards[chain], 0.0)
        return {"time": time, "chain": chain}, reward, time == 100

    def observe(state):
        return jnp.array([state["chain"], state["time"] / 100])

    return Environment(5, reset, step, observe)


def memory_chain(length: jax.Array, num_bits: int) -> Environment:
    """Create `MemoryChain`: recall a bit of the first observation at the end."""

    def reset(key):
        bits_key, query_key = jax.random.split(key)
        bits = jax.random.bernoulli(bits_key, 0.5, (num_bits,)).astype(jnp.int32)
        query = jax.random.randint(query_key, (), 0, num_bits)
        zero = jnp.int32(0)
        return {"bits": bits, "query": query, "time": zero, "shown": zero}

    def step(key, state, action):
        done = state["time"] == length
        right = action == state["bits"][state["query"]]
        reward = jnp.where(done, jnp.where(right, 1.0, -1.0), 0.0)
        # An observation is that of the time before the step: the first comes twice.
        later = {"time": state["time"] + 1, "shown": state["time"]}
        return {**state, **later}, reward, done

    def observe(state):
        time = state["shown"]
        query = jnp.where(time == length - 1, state["query"], 0)
        bits = jnp.where(time == 0, 2 * state["bits"] - 1, 0)
        return jnp.concatenate([jnp.array([1 - time / length, query]), bits])

    return Environment(2, reset, step, observe)


def umbrella_chain(length: jax.Array, num_distractors: int) -> Environment:
    """Create `UmbrellaChain`: the first action decides the last reward."""

    def distract(key):
        return 1.0 * jax.random.bernoulli(key, 0.5, (num_distractors,))

    def reset(key):
        needs_key, has_key, key = jax.random.split(key, 3)
        return {
            "needs": jax.random.randint(needs_key, (), 0, 2),
            "has": jax.random.randint(has_key, (), 0, 2),
            "time": jnp.int32(0),
            "distractors": distract(key),
        }

    def step(key, state, action):
        reward_key, key = jax.random.split(key)
        has = jnp.where(state["time"] == 0, action, state["has"])
        done = state["time"] + 1 == length
        right = jnp.where(done, has == state["needs"], jax.random.bernoulli(reward_key))
        later = {"has": has, "time": state["time"] + 1, "distractors": distract(key)}
        return {**state, **later}, jnp.where(right, 1.0, -1.0), done

    def observe(state):
        head = [state["needs"], state["has"], 1 - state["time"] / length]
        return jnp.concatenate([jnp.array(head), state["distractors"]])

    return Environment(2, reset, step, observe)


def mountain_car() -> Environment:
    """Create `MountainCar`: at most 1,000 steps of reward -1."""

    def reset(key):
        position = jax.random.uniform(key, (), minval=-0.6, maxval=-0.4)
        return {"x": position, "v": jnp.float32(0.0), "time": jnp.int32(0)}

    def step(key, state, action):
        force = 0.001 * (action - 1) - 0.0025 * jnp.cos(3 * state["x"])
        v = jnp.clip(state["v"] + force, -0.07, 0.07)
        x = jnp.clip(state["x"] + v, -1.2, 0.6)
        v = jnp.where(x == jnp.float32(-1.2), jnp.maximum(v, 0.0), v)
        time = state["time"] + 1
        done = (x >= 0.5) | (time >= 1000)
        return {"x": x, "v": v, "time": time}, jnp.float32(-1.0), done

    def observe(state):
        return jnp.array([state["x"], state["v"], state["time"] / 1000])

    return Environment(3, reset, step, observe)


def _swing(state: State, action: jax.Array) -> State:
    """Advance the cart and the pole by 0.01 s."""
    length, pole, total, gravity, seconds = 0.5, 0.1, 1.1, 9.8, 0.01
    x, x_dot, theta, theta_dot = (state[k] for k in ("x", "x_dot", "angle", "spin"))
    sin, cos = jnp.sin(theta), jnp.cos(theta)
    push = (10.0 * (action - 1) + pole * length * theta_dot**2 * sin) / total
    spin = (gravity * sin - cos * push) / (length * (4 / 3 - pole * cos**2 / total))
    return {
        "x": x + seconds * x_dot,
        "x_dot": x_dot + seconds * (push - pole * length * spin * cos / total),
        "angle": jnp.remainder(theta + seconds * theta_dot, 2 * jnp.pi),
        "spin": theta_dot + seconds * spin,
        "time": state["time"] + 1,
    }


def cartpole(
    height_threshold: jax.Array | None = None, x_threshold: jax.Array | None = None
) -> Environment:
    """Create `Cartpole`, or `CartpoleSwingup` where there are thresholds."""
    swing_up = height_threshold is not None

    def reset(key):
        values = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        state = dict(zip(("x", "x_dot", "angle", "spin"), values, strict=True))
        start = jnp.pi if swing_up else 0.0
        return {**state, "angle": start + state["angle"], "time": jnp.int32(0)}

    def step(key, state, action):
        state = _swing(state, action)
        height, away = jnp.cos(state["angle"]), jnp.abs(state["x"])
        late = state["time"] > 1000  # bsuite's sum of 0.01 exceeds 10 there.
        if not swing_up:
            upright = (height > 0.8) & (away < 3.0)
            return state, 1.0 * upright, late | ~upright
        still = jnp.abs(state["spin"]) < 1.0
        upright = (height > height_threshold) & still & (away < x_threshold)
        return state, upright - 0.1 * jnp.abs(action - 1), late | (away > 3.0)

    def observe(state):
        angle, spin = state["angle"], state["spin"]
        values = [state["x"] / 3, state["x_dot"] / 3, jnp.sin(angle), jnp.cos(angle)]
        values += [spin, state["time"] / 1000]
        if swing_up:
            values += [jnp.where(jnp.abs(state["x"]) < x_threshold, 1.0, -1.0)]
            values += [jnp.where(jnp.abs(spin) < 1.0, 1.0, -1.0)]
        return jnp.array(values)

    return Environment(3, reset, step, observe)


def make(name: str, setting: dict[str, Any]) -> Environment:
    """Create the environment of an experiment, without reward noise and scale."""
    if name == "bandit":
        return bandit(setting["mapping_seed"])
    if name.startswith("deep_sea"):
        size, seed = setting["size"], setting["mapping_seed"]
        return deep_sea(size, seed, stochastic=name == "deep_sea_stochastic")
    if name == "memory_len":
        return memory_chain(setting["memory_length"], 1)
    if name == "memory_size":
        return memory_chain(2, setting["num_bits"])
    if name.startswith("umbrella"):
        length = setting.get("chain_length", 20)
        return umbrella_chain(length, setting["n_distractor"])
    if name == "discounting_chain":
        return discounting_chain(setting["mapping_seed"])
    if name == "cartpole_swingup":
        return cartpole(setting["height_threshold"], setting["x_reward_threshold"])
    others = catch, cartpole, mnist, mountain_car
    return {make.__name__: make for make in others}[name]()
