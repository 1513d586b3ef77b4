"""Train a V-MPO agent on Catch.

V-MPO is an on-policy MPO with a state-value critic in place of an action-value critic.
The target policy plays a batch of episodes. The E-step keeps the steps with advantages
above the median, and weights them by their exponentiated advantages. The M-step
maximises their weighted log-likelihood, within a bound on the KL divergence from the
target policy, in several updates on the same batch.

- `rlaxlib.softmax`: the policy,
- `rlaxlib.td_lambda`: the TD errors of the critic, and the advantages,
- `rlaxlib.l2_loss`: the loss of the TD errors,
- `rlaxlib.categorical_kl_divergence`: the divergence of the constraint,
- `rlaxlib.vmpo_loss`: the E-step, the M-step and the dual losses,
- `rlaxlib.LagrangePenalty`: a bound with its dual variable.

`vmpo_loss` takes the whole batch, because the better half is taken of all its steps.
Its constraints are a list of pairs of a divergence and a penalty: a categorical policy
has one, a Gaussian policy two.

In bsuite's Catch, an episode has nine steps and returns +1 for a catch and -1 for a
miss. A random agent averages -0.6. Expect at least +0.9 in the final evaluation, and
+1.0 with most seeds, after about 25 seconds on two cores.

    python vmpo.py --seed 1 --top-k-fraction 1

Packages: bsuite, flax, optax, tqdm, tyro.
"""

import dataclasses
import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from bsuite.environments.catch import Catch
from flax import linen as nn
from flax.training.train_state import TrainState
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the network, actions and environment.
    output: str = "vmpo.csv"  # File for the learning curve.
    train_episodes: int = 4000  # Number of training episodes.
    eval_interval: int = 400  # Training episodes between evaluations.
    eval_episodes: int = 100  # Episodes per evaluation, with greedy actions.
    batch_size: int = 16  # Episodes per batch.
    updates: int = 8  # Updates on a batch, and between copies to the target network.
    top_k_fraction: float = 0.5  # Fraction of the steps in the E-step.
    temperature_bound: float = 0.1  # Bound on KL(weights || uniform), in nats.
    policy_bound: float = 0.002  # Bound on KL(target || online), in nats.
    lambda_return: float = 0.9  # λ of the TD errors, in [0, 1].
    learning_rate: float = 2e-3  # Learning rate of the network.
    dual_learning_rate: float = 1e-2  # Learning rate of the dual variables.
    discount: float = 0.99  # Discount factor.


SMALL = Config(
    train_episodes=32, eval_interval=16, eval_episodes=20, batch_size=8
)  # For tests.


class Episodes(NamedTuple):
    """A batch of B episodes of T steps."""

    observation: np.ndarray  # [B, T+1, ...]: the last one is after the last step.
    action: np.ndarray  # [B, T]
    reward: np.ndarray  # [B, T]
    discount: np.ndarray  # [B, T]: 0 at the terminal step, else 1.


# --- Agent: network, loss and update. ---


class Network(nn.Module):
    """Logits of the policy and a state value, for one observation."""

    num_actions: int

    @nn.compact
    def __call__(self, observation):
        hidden = nn.relu(nn.Dense(64)(observation.ravel()))
        logits, value = nn.Dense(self.num_actions)(hidden), nn.Dense(1)(hidden)
        return logits, value.squeeze(-1)


def loss(params, target_params, apply, batch, config):
    """Return the loss of a batch, and the outputs of V-MPO."""
    network = jax.vmap(jax.vmap(apply, (None, 0)), (None, 0))
    target_logits, _ = network(target_params, batch.observation[:, :-1])
    logits, values = network(params["online"], batch.observation)
    logits, v_tm1, v_t = logits[:, :-1], values[:, :-1], values[:, 1:]
    td_errors = jax.vmap(rlaxlib.td_lambda, (0, 0, 0, 0, None))(
        v_tm1,
        batch.reward,
        config.discount * batch.discount,  # 0 at a terminal step.
        v_t,
        config.lambda_return,
    )
    duals, penalty = params["duals"], rlaxlib.LagrangePenalty
    kl = rlaxlib.categorical_kl_divergence(target_logits, logits)
    policy_loss, outputs = rlaxlib.vmpo_loss(
        rlaxlib.softmax().logprob(batch.action, logits),
        jax.lax.stop_gradient(td_errors),  # The critic has its own loss below.
        temperature_constraint=penalty(duals["temperature"], config.temperature_bound),
        kl_constraints=[(kl, penalty(duals["policy"], config.policy_bound))],
        projection_operator=jax.nn.softplus,
        top_k_fraction=config.top_k_fraction,
    )
    return jnp.mean(policy_loss + rlaxlib.l2_loss(td_errors)), outputs


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, batch, config):
    """Take several gradient steps on a batch, near the policy before them."""
    target_params = agent.params["online"]

    def step(agent, _):
        inputs = agent.params, target_params, agent.apply_fn, batch, config
        grads, outputs = jax.grad(loss, has_aux=True)(*inputs)
        return agent.apply_gradients(grads=grads), outputs

    return jax.lax.scan(step, agent, length=config.updates)


@jax.jit
def act(agent, key, observation):
    """Return an action of the policy, and the most likely action."""
    logits, _ = agent.apply_fn(agent.params["online"], observation)
    return rlaxlib.softmax().sample(key, logits), jnp.argmax(logits)


# --- Agent and environment. ---


def make_agent(key, environment, config) -> TrainState:
    """Initialise the network, the dual variables and the optimizer."""
    network = Network(environment.action_spec().num_values)
    online = network.init(key, environment.reset().observation)
    # The loss applies a softplus, so that these may be any real numbers.
    duals = {"temperature": jnp.ones(()), "policy": jnp.ones(())}
    optimizers = {
        "online": optax.adam(config.learning_rate),
        "duals": optax.adam(config.dual_learning_rate),
    }
    return TrainState.create(
        apply_fn=network.apply,
        params={"online": online, "duals": duals},
        tx=optax.partition(optimizers, {"online": "online", "duals": "duals"}),
    )


def play(environment, agent, key, count):
    """Play an episode; return its observations, actions, rewards and discounts."""
    timestep = environment.reset()
    observations, steps = [timestep.observation], []
    while not timestep.last():
        step_key = jax.random.fold_in(key, next(count))  # A new key for each step.
        action = int(act(agent, step_key, timestep.observation)[0])
        timestep = environment.step(action)
        observations.append(timestep.observation)
        steps.append((action, timestep.reward, timestep.discount))
    return np.stack(observations), *map(np.array, zip(*steps, strict=True))


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over training episodes."""
    seeds = np.random.SeedSequence(config.seed).generate_state(2)
    environment, eval_environment = (Catch(seed=seed) for seed in seeds)
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    agent = make_agent(init_key, environment, config)
    count, batch, curve = itertools.count(), [], []
    for episode in (progress := trange(1, config.train_episodes + 1)):
        batch.append(play(environment, agent, act_key, count))
        if len(batch) == config.batch_size:
            # In Catch, all episodes have nine steps; pad them elsewhere.
            episodes = Episodes(*map(np.stack, zip(*batch, strict=True)))
            agent, _ = learn(agent, episodes, config)
            batch = []
        if episode % config.eval_interval == 0:
            curve.append((episode, evaluate(agent, eval_environment, config)))
            progress.set_postfix_str(f"return {curve[-1][1]:+.2f}")
    return curve


def evaluate(agent, environment, config) -> float:
    """Return the mean return of greedy episodes."""
    total, key = 0.0, jax.random.key(0)
    for _ in range(config.eval_episodes):
        timestep = environment.reset()
        while not timestep.last():
            _, action = act(agent, key, timestep.observation)
            timestep = environment.step(int(action))
            total += timestep.reward
    return total / config.eval_episodes


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "episode,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
