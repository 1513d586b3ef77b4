"""Learner steps of whole agents: network, loss, gradient and Adam.

Each loss takes the library as an argument and calls the same names of rlaxlib and rlax,
so the two steps differ in nothing but the library.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

Params = Any
Batch = dict[str, Array]
Loss = Callable[[Any, Params, Batch], Array]

OBSERVATION, HIDDEN = 64, 256
LAMBDA, COST = 0.95, 0.01


class Step(NamedTuple):
    """A learner step.

    Attributes:
        name: Name of the algorithm.
        loss: Function of library, parameters and batch.
        outputs: Sizes of the outputs of each network, under its name.
        batch: Shapes of the arrays of a batch, each under its name.
        actions: Number of actions, or of dimensions of an action.
    """

    name: str
    loss: Loss
    outputs: dict[str, int]
    batch: dict[str, tuple[int, ...]]
    actions: int

    def inputs(self, seed: int = 0) -> tuple[Params, Batch]:
        """Return random parameters and a random batch."""
        rng = np.random.default_rng(seed)
        params = {
            name: _layers(rng, (OBSERVATION, HIDDEN, HIDDEN, size))
            for name, size in self.outputs.items()
        }
        batch = {name: self._draw(rng, name, x) for name, x in self.batch.items()}
        return params, batch

    def _draw(
        self, rng: np.random.Generator, name: str, shape: tuple[int, ...]
    ) -> Array:
        if name.startswith("a_"):
            return jnp.asarray(rng.integers(self.actions, size=shape))
        if name.startswith("discount"):
            return jnp.asarray(0.99 * (rng.uniform(size=shape) > 0.02), jnp.float32)
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def program(self, library: Any) -> Callable[..., tuple[Params, Any, Array]]:
        """Return the step: it takes and returns parameters and optimiser state."""
        optimizer = optax.adam(1e-4)

        def step(params: Params, state: Any, batch: Batch) -> Any:
            loss_of = functools.partial(self.loss, library)
            loss, gradient = jax.value_and_grad(loss_of)(params, batch)
            updates, state = optimizer.update(gradient, state)
            return optax.apply_updates(params, updates), state, loss

        return step


def _layers(rng: np.random.Generator, sizes: tuple[int, ...]) -> list[Array]:
    """Return the weights of a network."""
    return [
        jnp.asarray(rng.normal(size=pair) / pair[0] ** 0.5, jnp.float32)
        for pair in itertools.pairwise(sizes)
    ]


def apply(layers: list[Array], x: Array) -> Array:
    """Return the output of a network with ReLUs between its layers."""
    *hidden, last = layers
    for layer in hidden:
        x = jax.nn.relu(x @ layer)
    return x @ last


# --- Losses. ---


def dqn(library: Any, params: Params, batch: Batch) -> Array:
    """Double DQN, whose target network is a constant of the step."""
    q_tm1, q_t = apply(params["q"], batch["s_tm1"]), apply(params["q"], batch["s_t"])
    target = jax.lax.stop_gradient(params["q"])
    q_target = apply(target, batch["s_t"])
    errors = jax.vmap(library.double_q_learning)(
        q_tm1, batch["a_tm1"], batch["r_t"], batch["discount_t"], q_target, q_t
    )
    return jnp.mean(library.huber_loss(errors))


def c51(library: Any, params: Params, batch: Batch) -> Array:
    """C51, with the online network as selector."""
    atoms = jnp.linspace(-10.0, 10.0, 51)
    shape = (*batch["r_t"].shape, -1, 51)
    logits_tm1 = apply(params["q"], batch["s_tm1"]).reshape(shape)
    logits_t = apply(params["q"], batch["s_t"]).reshape(shape)
    q_t = jnp.sum(jax.nn.softmax(logits_t) * atoms[None, None], axis=-1)
    losses = jax.vmap(
        library.categorical_double_q_learning, (None, 0, 0, 0, 0, None, 0, 0)
    )(
        atoms,
        logits_tm1,
        batch["a_tm1"],
        batch["r_t"],
        batch["discount_t"],
        atoms,
        logits_t,
        q_t,
    )
    return jnp.mean(losses)


def qr_dqn(library: Any, params: Params, batch: Batch) -> Array:
    """QR-DQN with 200 quantiles."""
    shape = (*batch["r_t"].shape, 200, -1)
    dist_tm1 = apply(params["q"], batch["s_tm1"]).reshape(shape)
    dist_t = apply(params["q"], batch["s_t"]).reshape(shape)
    tau = (jnp.arange(200, dtype=jnp.float32) + 0.5) / 200
    losses = jax.vmap(
        functools.partial(library.quantile_q_learning, huber_param=1.0),
        (0, None, 0, 0, 0, 0, 0),
    )(
        dist_tm1,
        tau,
        batch["a_tm1"],
        batch["r_t"],
        batch["discount_t"],
        dist_t,
        dist_t,
    )
    return jnp.mean(losses)


def impala(library: Any, params: Params, batch: Batch) -> Array:
    """IMPALA: V-trace, policy gradient, entropy."""

    def loss(s, mu_tm1, a_tm1, r_t, discount_t):
        logits, v = apply(params["policy"], s)[:-1], apply(params["value"], s)[:, 0]
        rho_tm1 = library.categorical_importance_sampling_ratios(logits, mu_tm1, a_tm1)
        vtrace = library.vtrace_td_error_and_advantage(
            v[:-1], v[1:], r_t, discount_t, rho_tm1, LAMBDA
        )
        weights = jnp.ones_like(r_t)
        policy = library.policy_gradient_loss(
            logits, a_tm1, vtrace.pg_advantage, weights
        )
        entropy = library.entropy_loss(logits, weights)
        return policy + 0.5 * jnp.mean(vtrace.errors**2) + COST * entropy

    return jnp.mean(
        jax.vmap(loss)(
            batch["s"], batch["mu"], batch["a_tm1"], batch["r_t"], batch["discount_t"]
        )
    )


def ppo(library: Any, params: Params, batch: Batch) -> Array:
    """PPO: GAE and the clipped surrogate objective."""

    def loss(s, mu_tm1, a_tm1, r_t, discount_t):
        logits, v = apply(params["policy"], s)[:-1], apply(params["value"], s)[:, 0]
        advantages = library.truncated_generalized_advantage_estimation(
            r_t, discount_t, LAMBDA, jax.lax.stop_gradient(v)
        )
        targets = jax.lax.stop_gradient(advantages + v[:-1])
        ratios = library.categorical_importance_sampling_ratios(logits, mu_tm1, a_tm1)
        policy = library.clipped_surrogate_pg_loss(ratios, advantages, 0.2)
        entropy = library.entropy_loss(logits, jnp.ones_like(r_t))
        value = jnp.mean(library.l2_loss(v[:-1], targets))
        return policy + 0.5 * value + COST * entropy

    return jnp.mean(
        jax.vmap(loss)(
            batch["s"], batch["mu"], batch["a_tm1"], batch["r_t"], batch["discount_t"]
        )
    )


def r2d2(library: Any, params: Params, batch: Batch) -> Array:
    """R2D2: transformed 5-step Q-learning, without the recurrent core."""
    q = apply(params["q"], batch["s"])
    errors = jax.vmap(
        functools.partial(
            library.transformed_n_step_q_learning,
            n=5,
            tx_pair=library.SIGNED_HYPERBOLIC_PAIR,
        )
    )(
        q[:, :-1],
        batch["a_tm1"],
        q[:, 1:],
        jnp.argmax(q[:, 1:], axis=-1),
        batch["r_t"],
        batch["discount_t"],
    )
    return jnp.mean(library.l2_loss(errors))


def q_lambda(library: Any, params: Params, batch: Batch) -> Array:
    """Q(λ), as in PQN."""
    q = apply(params["q"], batch["s"])
    errors = jax.vmap(library.q_lambda, (0, 0, 0, 0, 0, None))(
        q[:, :-1],
        batch["a_tm1"],
        batch["r_t"],
        batch["discount_t"],
        q[:, 1:],
        jnp.float32(LAMBDA),
    )
    return jnp.mean(library.l2_loss(errors))


def retrace(library: Any, params: Params, batch: Batch) -> Array:
    """Retrace with a softmax target policy."""
    q = apply(params["q"], batch["s"])
    pi = jax.nn.softmax(q)
    mu = jax.nn.softmax(batch["mu"])
    mu_a = jnp.take_along_axis(mu, batch["a_t"][..., None], axis=-1)[..., 0]
    errors = jax.vmap(functools.partial(library.retrace, lambda_=LAMBDA))(
        q[:, :-1],
        q[:, 1:],
        batch["a_tm1"],
        batch["a_t"],
        batch["r_t"],
        batch["discount_t"],
        pi[:, 1:],
        mu_a,
    )
    return jnp.mean(library.l2_loss(errors))


def mpo(library: Any, params: Params, batch: Batch) -> Array:
    """MPO of a diagonal Gaussian, with 20 actions sampled in each state."""
    mu, log_sigma = jnp.split(apply(params["policy"], batch["s"]), 2, axis=-1)
    sigma = jnp.exp(jnp.clip(log_sigma, -4.0, 0.0))
    old_mu, old_sigma = jax.lax.stop_gradient((mu + 0.1, sigma * 1.1))
    actions = old_mu[None] + old_sigma[None] * batch["noise"]
    q = apply(params["q"], jnp.concatenate([batch["s"]] * 20))[:, 0]
    log_probs = jax.vmap(library.gaussian_diagonal().logprob, (0, None, None))(
        actions, mu, sigma
    )
    kl = jax.vmap(library.multivariate_normal_kl_divergence)(
        old_mu, old_sigma, mu, sigma
    )
    loss, _ = library.mpo_loss(
        log_probs,
        jax.lax.stop_gradient(q).reshape(20, -1),
        library.LagrangePenalty(jnp.float32(1.0), 0.1),
        [(kl, library.LagrangePenalty(jnp.float32(1.0), 0.01))],
    )
    return jnp.mean(loss) + 0.0 * jnp.sum(q)


def ddpg(library: Any, params: Params, batch: Batch) -> Array:
    """DDPG: the deterministic policy gradient and the critic's TD error."""

    def critic(layers: list[Array], s: Array, a: Array) -> Array:
        return apply(layers, s.at[..., : a.shape[-1]].add(a))[..., 0]

    a_t = jnp.tanh(apply(params["policy"], batch["s_t"]))
    q_tm1 = critic(params["q"], batch["s_tm1"], batch["action"])
    q_t = critic(params["q"], batch["s_t"], jax.lax.stop_gradient(a_t))
    errors = jax.vmap(library.td_learning)(
        q_tm1, batch["r_t"], batch["discount_t"], q_t
    )
    a_tm1 = jnp.tanh(apply(params["policy"], batch["s_tm1"]))
    dqda = jax.vmap(jax.grad(critic, 2), (None, 0, 0))(
        jax.lax.stop_gradient(params["q"]), batch["s_tm1"], a_tm1
    )
    policy = jax.vmap(functools.partial(library.dpg_loss, dqda_clipping=1.0))(
        a_tm1, dqda
    )
    return jnp.mean(policy) + jnp.mean(library.l2_loss(errors))


def sac(library: Any, params: Params, batch: Batch) -> Array:
    """SAC with two critics and a squashed Gaussian policy, at a fixed temperature."""
    spec = _Bounded(-1.0, 1.0)
    policy = library.squashed_gaussian(-4.0, 0.0)

    def act(layers: list[Array], s: Array, seed: int) -> tuple[Array, Array]:
        mu, sigma = jnp.split(apply(layers, s), 2, axis=-1)
        a = policy.sample(jax.random.key(seed), mu, sigma, spec)
        return a, policy.logprob(a, mu, sigma, spec)

    def critics(params: Params, s: Array, a: Array) -> Array:
        x = s.at[..., : a.shape[-1]].add(a)
        return jnp.stack([apply(params[name], x)[..., 0] for name in ("q_1", "q_2")])

    a_t, log_prob_t = act(params["policy"], batch["s_t"], 0)
    v_t = jnp.min(critics(params, batch["s_t"], a_t), axis=0) - 0.1 * log_prob_t
    errors = jax.vmap(jax.vmap(library.td_learning), (0, None, None, None))(
        critics(params, batch["s_tm1"], batch["action"]),
        batch["r_t"],
        batch["discount_t"],
        v_t,
    )
    a, log_prob = act(params["policy"], batch["s_tm1"], 1)
    q = jnp.min(critics(jax.lax.stop_gradient(params), batch["s_tm1"], a), axis=0)
    return jnp.mean(0.1 * log_prob - q) + jnp.mean(library.l2_loss(errors))


class _Bounded(NamedTuple):
    """Bounds of an action, as dm_env's specs have them."""

    minimum: float
    maximum: float


def _transitions(size: int) -> dict[str, tuple[int, ...]]:
    s = (size, OBSERVATION)
    return {"s_tm1": s, "s_t": s, "r_t": (size,), "discount_t": (size,)}


def _streams(
    streams: int, steps: int, actions: int, **more: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    size = (streams, steps)
    return {
        "s": (streams, steps + 1, OBSERVATION),
        "a_tm1": size,
        "r_t": size,
        "discount_t": size,
        "mu": (*size, actions),
        **more,
    }


STEPS = (
    Step("DQN", dqn, {"q": 18}, {**_transitions(256), "a_tm1": (256,)}, 18),
    Step("C51", c51, {"q": 18 * 51}, {**_transitions(256), "a_tm1": (256,)}, 18),
    Step("QR-DQN", qr_dqn, {"q": 18 * 200}, {**_transitions(64), "a_tm1": (64,)}, 18),
    Step("IMPALA", impala, {"policy": 18, "value": 1}, _streams(64, 20, 18), 18),
    Step("PPO", ppo, {"policy": 18, "value": 1}, _streams(16, 128, 18), 18),
    Step("R2D2", r2d2, {"q": 18}, _streams(32, 80, 18), 18),
    Step("Q(λ)", q_lambda, {"q": 18}, _streams(64, 32, 18), 18),
    Step("Retrace", retrace, {"q": 18}, _streams(64, 20, 18, a_t=(64, 20)), 18),
    Step(
        "MPO",
        mpo,
        {"policy": 16, "q": 1},
        {"s": (256, OBSERVATION), "noise": (20, 256, 8)},
        8,
    ),
    Step(
        "DDPG",
        ddpg,
        {"policy": 8, "q": 1},
        {**_transitions(256), "action": (256, 8)},
        8,
    ),
    Step(
        "SAC",
        sac,
        {"policy": 16, "q_1": 1, "q_2": 1},
        {**_transitions(256), "action": (256, 8)},
        8,
    ),
)
