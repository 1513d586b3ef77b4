"""Train a V-MPO agent on Catch.

V-MPO is an on-policy MPO with a state-value critic in place of an action-value critic.
The target policy plays a batch of episodes. The E-step keeps the steps with advantages
above the median, and weights them by their exponentiated advantages. The M-step
maximises their weighted log-likelihood, within a bound on the KL divergence from the
target policy, in several updates on the same batch. Then the target policy is updated.

- `rlaxlib.softmax`: the policy,
- `rlaxlib.td_lambda`: the TD errors of the critic, and the advantages,
- `rlaxlib.l2_loss`: the loss of the TD errors,
- `rlaxlib.categorical_kl_divergence`: the divergence of the constraint,
- `rlaxlib.vmpo_loss`: the E-step, the M-step and the dual losses,
- `rlaxlib.LagrangePenalty`: a bound with its dual variable,
- `rlaxlib.periodic_update`: the parameters of the target network.

`td_lambda` takes one stream of experience, like most of rlaxlib, and `jax.vmap` makes
the batch. `vmpo_loss` takes the whole batch, because the better half is taken of all
its steps. Its constraints are a list of pairs of a divergence and a penalty; a
categorical policy has one. `mpo.py` explains when there are more.

In bsuite's Catch, a ball falls through ten rows of five columns, and the agent moves a
paddle in the bottom row. An episode has nine steps and returns +1 for a catch and -1
for a miss. A random agent averages -0.6. Expect +1.00 in the final evaluation, after
about 20 seconds on two cores, imports and compilation included.

Every field of `Config` is a flag:

    python examples/vmpo.py --seed=1 --top_k_fraction=1
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import catch, curves
from common.flags import flag, run
from flax import linen as nn
from flax.training.train_state import TrainState

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, actions and environment.")
    output: str = flag("results/vmpo", "Folder for the learning curve.")
    train_episodes: int = flag(4000, "Number of training episodes.")
    eval_episodes: int = flag(100, "Episodes per evaluation, with greedy actions.")
    eval_interval: int = flag(500, "Training episodes between evaluations.")
    batch_size: int = flag(16, "Episodes per batch.")
    target_period: int = flag(8, "Updates per batch and target policy.")
    top_k_fraction: float = flag(0.5, "Fraction of the steps in the E-step.")
    temperature_bound: float = flag(0.1, "Bound on KL(weights || uniform), in nats.")
    policy_bound: float = flag(0.002, "Bound on KL(target || online), in nats.")
    lambda_: float = flag(0.9, "λ of the TD(λ) errors, in [0, 1].")
    hidden_units: int = flag(64, "Units of the hidden layer.")
    learning_rate: float = flag(2e-3, "Learning rate of the network.")
    dual_learning_rate: float = flag(1e-2, "Learning rate of the dual variables.")
    discount: float = flag(0.99, "Discount factor.")


# --- Agent: network, dual variables, optimizer and pure functions. ---


class Network(nn.Module):
    """Logits of the policy and a state value, for one observation."""

    num_actions: int
    hidden_units: int

    @nn.compact
    def __call__(self, observation):
        """Return the logits and the value."""
        hidden = nn.relu(nn.Dense(self.hidden_units)(jnp.ravel(observation)))
        logits, value = nn.Dense(self.num_actions)(hidden), nn.Dense(1)(hidden)
        return logits, jnp.squeeze(value, axis=-1)


class Agent(TrainState):
    """An online and a target network, dual variables, and an optimizer."""

    target_params: Any  # Parameters of the target network; its policy acts.


def make_agent(key, environment, config) -> Agent:
    """Initialise the network, the dual variables and the optimizer."""
    network = Network(environment.action_spec().num_values, config.hidden_units)
    observation = environment.observation_spec().generate_value()
    online = network.init(key, observation)
    # The loss applies a softplus, so that these may be any real numbers.
    duals = {"temperature": jnp.ones(()), "policy": jnp.ones(())}
    optimizers = {
        "online": optax.adam(config.learning_rate),
        "duals": optax.adam(config.dual_learning_rate),
    }
    return Agent.create(
        apply_fn=network.apply,
        params={"online": online, "duals": duals},
        tx=optax.partition(optimizers, {"online": "online", "duals": "duals"}),
        target_params=online,
    )


@jax.jit
def act(agent, key, step, observation):
    """Sample an action from the target policy."""
    logits, _ = agent.apply_fn(agent.target_params, observation)
    return rlaxlib.softmax().sample(jax.random.fold_in(key, step), logits)


@jax.jit
def act_greedily(agent, observation):
    """Return the most likely action of the online policy."""
    logits, _ = agent.apply_fn(agent.params["online"], observation)
    return jnp.argmax(logits)


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, batch, config):
    """Take one gradient step on a batch; return the agent and the V-MPO outputs."""
    network = jax.vmap(jax.vmap(agent.apply_fn, (None, 0)), (None, 0))
    target_logits, _ = network(agent.target_params, batch.observation[:, :-1])
    discount = config.discount * batch.discount  # 0 at a terminal step.

    def loss(params):
        logits, values = network(params["online"], batch.observation)
        logits, v_tm1, v_t = logits[:, :-1], values[:, :-1], values[:, 1:]
        td_errors = jax.vmap(rlaxlib.td_lambda, in_axes=(0, 0, 0, 0, None))(
            v_tm1, batch.reward, discount, v_t, config.lambda_
        )
        duals, penalty = params["duals"], rlaxlib.LagrangePenalty
        policy_loss, outputs = rlaxlib.vmpo_loss(
            rlaxlib.softmax().logprob(batch.action, logits),
            jax.lax.stop_gradient(td_errors),  # The critic has its own loss below.
            temperature_constraint=penalty(
                duals["temperature"], config.temperature_bound
            ),
            kl_constraints=[
                (
                    rlaxlib.categorical_kl_divergence(target_logits, logits),
                    penalty(duals["policy"], config.policy_bound),
                )
            ],
            projection_operator=jax.nn.softplus,
            top_k_fraction=config.top_k_fraction,
        )
        return jnp.mean(policy_loss + rlaxlib.l2_loss(td_errors)), outputs

    grads, outputs = jax.grad(loss, has_aux=True)(agent.params)
    agent = agent.apply_gradients(grads=grads)
    target_params = rlaxlib.periodic_update(
        agent.params["online"], agent.target_params, agent.step, config.target_period
    )
    return agent.replace(target_params=target_params), outputs


# --- Training. ---


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    steps, batch = itertools.count(), []

    def train_episode(agent, environment):
        episode = catch.play(
            environment,
            lambda observation: act(agent, act_key, next(steps), observation),
        )
        batch.append(episode)
        if len(batch) == config.batch_size:
            stacked = jax.tree.map(lambda *each: np.stack(each), *batch)
            for _ in range(config.target_period):
                agent, _ = learn(agent, stacked, config)
            batch.clear()
        return agent, np.sum(episode.reward)

    agent = make_agent(init_key, catch.Catch(), config)
    _, curve = catch.train(agent, train_episode, act_greedily, config)
    return curve


def main(config):
    curves.report(train(config), "V-MPO on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
