"""The zoo's Q-chunking: chunks of two actions in the plane, taken without a look."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from recipes import flows as recipes

from zoo import offline
from zoo.continuous import SIZE, TASK, D, values
from zoo.networks import ensemble, forward, mlp
from zoo.training import Agent, Entry, begin, descend
from zoo.training import offline as learn

H = 2  # Actions of a chunk.
UPDATES = 1000
HIDDEN = 32
OPTIMIZER = optax.adam(optax.cosine_decay_schedule(3e-3, UPDATES))


def chunked(task):
    """Return the task where an action is a chunk, and its reward that of all steps."""

    def step(key, state, a):
        def one(state, a):
            state, reward, _ = task.step(key, state, a)
            return state, reward

        state, rewards = jax.lax.scan(one, state, a.reshape(H, D))
        return state, jnp.sum(rewards), jnp.array(False)

    return task._replace(step=step, limit=task.limit // H, actions=H * D)


def data(key):
    """Return the data of offline learners, cut into chunks, [N, H]."""

    def cut(x):
        return x.reshape(-1, H, *x.shape[2:])

    return jax.tree.map(cut, offline.streams(key))


def join(*inputs):
    return jnp.concatenate(inputs, axis=-1)


def velocity(params, s, x, t):
    return forward(params, join(s, x, t[:, None]))


def one_step(params, s, noise):
    return forward(params, join(s, noise))


def of_critics(params):
    """Return the mean of the critics, whose gradient for the parameters is stopped."""
    params = jax.lax.stop_gradient(params)
    return lambda s, a: jnp.mean(values(params, s, a), axis=-1)


def first(key):
    """Return the parameters of the flow, of a one-step actor and of two critics."""
    flow, actor, critic = jax.random.split(key, 3)
    return {
        "flow": mlp(flow, SIZE + H * D + 1, HIDDEN, HIDDEN, H * D, scale=0.1),
        "actor": mlp(actor, SIZE + H * D, HIDDEN, HIDDEN, H * D, scale=0.1),
        "critic": ensemble(critic, 2, SIZE + H * D, HIDDEN, HIDDEN, 1),
    }


def best_of(params, s, key, num_samples=16):
    """Return the best of several chunks of the flow."""
    critic = of_critics(params["critic"])
    inputs = params["flow"], velocity, s, key, H * D, critic, num_samples
    return recipes.qc_actions(*inputs)


def distilled(params, s, key):
    """Return chunks of the one-step actor."""
    noise = jax.random.normal(key, (len(s), H * D))
    return jnp.clip(one_step(params["actor"], s, noise), -1, 1)


def qc(params, target, streams, key, policy=best_of):
    flow_key, key = jax.random.split(key)
    batch, fixed = recipes.chunks(streams), jax.lax.stop_gradient(params)
    flow = recipes.qc_flow(params["flow"], velocity, batch, flow_key)
    inputs = params["critic"], target["critic"], values, batch, key
    return flow + recipes.qc_critic(*inputs, lambda s, key: policy(fixed, s, key))


def qc_fql(params, target, streams, key, weight):
    actor_key, key = jax.random.split(key)
    batch, critic = recipes.chunks(streams), of_critics(params["critic"])
    flow = jax.lax.stop_gradient(params["flow"])
    inputs = params["actor"], flow, velocity, batch, actor_key, one_step, critic
    actor = recipes.fql_actor(*inputs, weight)
    return actor + qc(params, target, streams, key, distilled)


WEIGHT = 3.0  # Of the distance from the flow's chunks, for QC-FQL.


def entry(functions, loss, policy, states):
    """Return an entry on the plane, of chunks."""

    def update(state, key, batch):
        return descend(
            *(state, lambda p: loss(p, state.target, batch, key), OPTIMIZER),
            rate=offline.RATE,
        )

    agent = Agent(
        init=lambda key: begin(first(key), OPTIMIZER),
        act=None,
        best=lambda state, key, s: policy(state.params, s[None], key)[0],
        update=update,
    )
    return Entry(
        recipe=functions,
        run=learn(chunked(TASK), agent, data, UPDATES, 64),
        about=f"{offline.ABOUT}. Actions are chunks of {H}",
        random=TASK.random,
        best=TASK.best,
        states=states,
        fails=offline.FAILS,
    )


def qc_entry(**settings):
    policy = partial(best_of, **settings)
    functions = "flows.qc_flow, qc_critic, qc_actions, chunks"
    return entry(functions, partial(qc, policy=policy), policy, -2.5)


def qc_fql_entry(weight):
    functions = "flows.qc_flow, qc_critic, fql_actor, chunks"
    return entry(functions, partial(qc_fql, weight=weight), distilled, -3.0)


ENTRIES = {
    # The second action of a chunk is taken without a look, and chunks stay near those
    # of the data: the worst of five seeds has -1.5 with QC, and -2.4 with QC-FQL.
    "qc": qc_entry()._replace(
        without={"the best of several chunks": qc_entry(num_samples=1).run}
    ),
    "qc_fql": qc_fql_entry(WEIGHT)._replace(
        without={"the values": qc_fql_entry(1e3).run}
    ),
}
