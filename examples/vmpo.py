"""Learn to catch a falling ball by V-MPO, from the better half of what was done.

MPO without a critic of actions. A target policy plays a batch of episodes. The better
half of all their steps counts, each the more, the better it turned out: that is the
E-step. The M-step makes those steps likelier, without moving far from the target
policy, in several updates on the same batch. Then the target policy is renewed. It
shows:

    rlaxlib.softmax                    chooses the actions,
    rlaxlib.td_lambda                  says how much better a step was than expected,
                                       and teaches the values,
    rlaxlib.l2_loss                    turns its errors into a loss,
    rlaxlib.categorical_kl_divergence  says how far the policy is from its target,
    rlaxlib.vmpo_loss                  is both steps, and the losses of dual variables,
    rlaxlib.LagrangePenalty            is a bound with the dual variable to enforce it,
    rlaxlib.periodic_update            renews the target policy.

`td_lambda` takes one stream of experience, as most of rlaxlib, and `jax.vmap` makes the
batch. `vmpo_loss` takes the whole batch at once: the better half is one of all steps.
Its constraints are a list of pairs, each of a divergence and a penalty; a categorical
policy has one. `mpo.py` says why there may be more, and what is held against what.

In bsuite's Catch a ball drops through ten rows of five columns, and the agent moves a
paddle below it. An episode takes nine steps and returns +1 for a catch, -1 for a miss:
-0.6 on average for a random agent. Expect +1.00 in the final evaluation, after about
15 seconds on two cores, imports and compilation included. Every field of `Config` is a
flag:

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
    """Everything there is to choose."""

    seed: int = flag(0, "Seed of the network, the actions and the environment.")
    output: str = flag("results/vmpo", "Folder for the learning curve.")
    train_episodes: int = flag(4000, "Episodes to learn from.")
    eval_episodes: int = flag(100, "Episodes of each evaluation, played greedily.")
    eval_interval: int = flag(500, "Training episodes between two evaluations.")
    batch_size: int = flag(16, "Episodes of each batch.")
    target_period: int = flag(8, "Updates on each batch, and of each target policy.")
    top_k_fraction: float = flag(0.5, "Part of the steps to learn from.")
    temperature_bound: float = flag(
        0.1, "Nats from even weights to those of the steps."
    )
    policy_bound: float = flag(0.002, "Nats from the target policy to the online one.")
    lambda_: float = flag(0.9, "How far advantages look ahead.")
    hidden_units: int = flag(64, "Units of the network's only hidden layer.")
    learning_rate: float = flag(2e-3, "Step size of Adam, for the network.")
    dual_learning_rate: float = flag(1e-2, "Step size of Adam, for the dual variables.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")


# --- The agent: a network, dual variables, their optimizer, and pure functions. ---


class Network(nn.Module):
    """A policy and its value, of one observation."""

    num_actions: int
    hidden_units: int

    @nn.compact
    def __call__(self, observation):
        """Return the logits of all actions, and the value."""
        hidden = nn.relu(nn.Dense(self.hidden_units)(jnp.ravel(observation)))
        logits, value = nn.Dense(self.num_actions)(hidden), nn.Dense(1)(hidden)
        return logits, jnp.squeeze(value, axis=-1)


class Agent(TrainState):
    """A network with its target network, dual variables, and an optimizer of both."""

    target_params: Any  # Parameters of the target network, whose policy acts.


def make_agent(key, environment, config) -> Agent:
    """Initialise the network, the dual variables and their optimizer."""
    network = Network(environment.action_spec().num_values, config.hidden_units)
    observation = environment.observation_spec().generate_value()
    online = network.init(key, observation)
    # The loss makes these positive by a softplus: they may be any numbers.
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
    """Choose an action as the target policy does, at random."""
    logits, _ = agent.apply_fn(agent.target_params, observation)
    return rlaxlib.softmax().sample(jax.random.fold_in(key, step), logits)


@jax.jit
def act_greedily(agent, observation):
    """Choose the action that the online policy finds best."""
    logits, _ = agent.apply_fn(agent.params["online"], observation)
    return jnp.argmax(logits)


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, batch, config):
    """Take one gradient step on a batch of episodes; return what V-MPO did, too."""
    network = jax.vmap(jax.vmap(agent.apply_fn, (None, 0)), (None, 0))
    target_logits, _ = network(agent.target_params, batch.observation[:, :-1])
    discount = config.discount * batch.discount  # 0 at the end of the episode.

    def loss(params):
        logits, values = network(params["online"], batch.observation)
        logits, v_tm1, v_t = logits[:, :-1], values[:, :-1], values[:, 1:]
        td_errors = jax.vmap(rlaxlib.td_lambda, in_axes=(0, 0, 0, 0, None))(
            v_tm1, batch.reward, discount, v_t, config.lambda_
        )
        duals, penalty = params["duals"], rlaxlib.LagrangePenalty
        policy_loss, outputs = rlaxlib.vmpo_loss(
            rlaxlib.softmax().logprob(batch.action, logits),
            jax.lax.stop_gradient(td_errors),  # The value learns from the next loss.
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


# --- The agent meets its environment. ---


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent, and return its learning curve."""
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
