"""The zoo's offline learners, on logged data whose average is poor.

In the plane half of the data's actions lead to the origin and half away from it. They
return -13.6, and their mean, which a clone learns, does not move. In the corridor the
data's policy goes to the near end, and never takes the action that ends the episode.
Advantages in the plane are about 0.3, where those of D4RL are above 1: temperatures and
weights are scaled to that.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import offline as recipes
from recipes.continuous import (
    ActorCritic,
    sac_actor,
    sac_temperature,
    td3_actor,
    td3_critic,
)

import rlaxlib
from zoo import continuous
from zoo.continuous import SIZE, TASK, D, action, mode, normal, values
from zoo.networks import ensemble, forward, mlp
from zoo.tasks import corridor
from zoo.training import Agent, Entry, begin, descend, offline, play

UPDATES = 1000
OPTIMIZER = continuous.optimizer(UPDATES, 1e-3, 2e-3)
RATE = 0.05  # Of the target networks.
EPISODES = 1024  # Of the data.
NOISE = 0.5  # Of the data's actions, before the tanh.
ABOUT = (
    "Plane, from data whose actions lead to the origin or away from it: they return"
    " -13.6, a clone -6.6"
)


class Data(NamedTuple):
    """Transitions, or streams, with the next action and the discounted return."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    s_t: jax.Array
    a_t: jax.Array
    returns: jax.Array
    truncated_t: jax.Array
    sample_mask: None = None


def streams(key):
    """Return the data as streams, [EPISODES, 20]: the first half of longer ones."""

    def behavior(key, s):
        sign_key, key = jax.random.split(key)
        sign = jax.random.rademacher(sign_key, (D,))
        return jnp.tanh(2 * sign * s + NOISE * jax.random.normal(key, (D,)))

    steps = 2 * TASK.limit
    batch = play(TASK._replace(limit=steps), behavior, key, EPISODES, steps)
    returns = jax.vmap(rlaxlib.discounted_returns, (0, 0, None))(
        batch.r_t, batch.discount_t, 0.0
    )
    a_t = jnp.roll(batch.a_tm1, -1, axis=1)
    data = Data(*batch[:5], a_t, returns, batch.truncated_t)
    return jax.tree.map(lambda x: x[:, : TASK.limit], data)


def transitions(key):
    """Return the data as transitions."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), streams(key))


def state_value(params, s):
    return forward(params, s)[..., 0]


# Faults of an entry that learns even if gradients flow into its targets.
FAILS = ("reward", "bootstrap")


def entry(functions, loss, best=mode, states=-1.5, data=transitions, size=128, **sizes):
    """Return an entry on the plane, of a tanh-Gaussian policy by default.

    `sizes` may have `fails`, and losses that lack a part, `without`.
    """
    deterministic = best is action
    fails = sizes.pop("fails", (*FAILS, "gradient"))
    without = sizes.pop("without", {})
    sizes = {"policy": D if deterministic else 2 * D, "critics": 2} | sizes
    policy = action if deterministic else normal
    apply = ActorCritic(policy, values, value=state_value)

    def run(loss):
        agent = continuous.agent(
            lambda params, target, batch, key: loss(params, target, apply, batch, key),
            *(None, best, RATE),
            **{"optimizer": OPTIMIZER, **sizes},
        )
        return offline(TASK, agent, data, UPDATES, size)

    return Entry(
        recipe=f"offline.{functions}",
        run=run(loss),
        about=ABOUT,
        random=TASK.random,
        best=TASK.best,
        states=states,
        fails=fails,
        without={part: run(x) for part, x in without.items()},
    )


# --- Values of the data's actions only. ---


def iql(params, target, apply, batch, key, temperature=0.03):
    value = recipes.iql_value(params, target, apply, batch, expectile=0.9)
    critic = recipes.iql_critic(params, apply, batch)
    actor = recipes.iql_actor(params, target, apply, batch, temperature)
    return value + critic + actor


def xql(params, target, apply, batch, key, temperature=0.1):
    value = recipes.xql_value(params, target, apply, batch, temperature=1.0)
    critic = recipes.iql_critic(params, apply, batch)
    actor = recipes.iql_actor(params, target, apply, batch, temperature)
    return value + critic + actor


def sql(params, target, apply, batch, key, actor=recipes.sql_actor):
    value = recipes.sql_value(params, target, apply, batch, temperature=0.05)
    critic = recipes.iql_critic(params, apply, batch)
    return value + critic + actor(params, target, apply, batch)


# --- Weighted regression of the policy. ---


def awr(params, target, apply, batch, key, temperature=0.3):
    return recipes.awr(params, apply, batch, lambda_=0.5, temperature=temperature)


def awac(params, target, apply, batch, key, temperature=0.03):
    critic_key, key = jax.random.split(key)
    critic = recipes.awac_critic(params, target, apply, batch, critic_key)
    return critic + recipes.awac_actor(params, apply, batch, key, temperature)


def crr(params, target, apply, batch, key, temperature=0.03):
    critic_key, key = jax.random.split(key)
    critic = recipes.awac_critic(params, target, apply, batch, critic_key)
    return critic + recipes.crr_actor(params, apply, batch, key, beta=temperature)


# --- Pessimism. ---


def soft(params, apply, batch, key):
    """Return SAC's losses of actor and temperature, and the temperature."""
    actor_key, key = jax.random.split(key)
    log_temperature = params.duals[0]
    temperature = jax.lax.stop_gradient(jnp.exp(log_temperature))
    fixed = jax.lax.stop_gradient(params)
    dual = sac_temperature(log_temperature, fixed, apply, batch, key, -D)
    return dual + sac_actor(params, apply, batch, actor_key, temperature), temperature


def cql(params, target, apply, batch, key):
    critic_key, key = jax.random.split(key)
    critic = recipes.cql_critic(params, target, apply, batch, critic_key, WEIGHT, 4)
    return critic + soft(params, apply, batch, key)[0]


def cal_ql(params, target, apply, batch, key):
    critic_key, key = jax.random.split(key)
    critic = recipes.cal_ql_critic(params, target, apply, batch, critic_key, WEIGHT, 4)
    return critic + soft(params, apply, batch, key)[0]


def cql_lagrange(params, target, apply, batch, key):
    critic_key, dual_key, key = jax.random.split(key, 3)
    log_weight = params.duals[1]
    weight = jnp.exp(jax.lax.stop_gradient(log_weight))
    fixed = jax.lax.stop_gradient(params)
    return (
        recipes.cql_critic(params, target, apply, batch, critic_key, weight, 4)
        + recipes.cql_temperature(log_weight, fixed, apply, batch, dual_key, GAP, 4)
        + soft(params, apply, batch, key)[0]
    )


def edac(params, target, apply, batch, key):
    critic_key, key = jax.random.split(key)
    actor, temperature = soft(params, apply, batch, key)
    edac = recipes.edac_critic
    return actor + edac(params, target, apply, batch, critic_key, temperature, 0.1)


WEIGHT, GAP = 0.3, 3.7
DUALS = (jnp.log(0.1), jnp.log(0.3))  # Logarithms of temperature and of CQL's weight.


# --- Close to the data's actions. ---


def td3(params, target, apply, batch, key):
    critic = td3_critic(params, target, apply, batch, key)
    return critic + td3_actor(params, apply, batch)


def td3_bc(params, target, apply, batch, key):
    critic = td3_critic(params, target, apply, batch, key)
    return critic + recipes.td3_bc_actor(params, apply, batch)


def rebrac(params, target, apply, batch, key):
    critic = recipes.rebrac_critic(params, target, apply, batch, key, 0.01)
    return critic + recipes.rebrac_actor(params, apply, batch, 0.2)


# --- Close to a model of the data's actions. ---


class Generative(NamedTuple):
    """Parameters or functions of an actor, critics and a model of the data."""

    actor: Any
    critic: Any
    vae: Any
    duals: Any = None


def encode(params, s, a):
    """Return mean and standard deviation of latents."""
    return normal(params["encoder"], join(s, a))


def decode(params, s, z):
    return forward(params["decoder"], join(s, z))


def join(*inputs):
    return jnp.concatenate(inputs, axis=-1)


BEAR = SimpleNamespace(actor=normal, critic=values, encode=encode, decode=decode)
BCQ = SimpleNamespace(
    **vars(BEAR) | {"actor": lambda params, s, a: action(params, join(s, a))}
)


def bcq(params, target, batch, key):
    vae_key, critic_key, key = jax.random.split(key, 3)
    vae = recipes.vae_loss(params, BCQ, batch, vae_key)
    critic = recipes.bcq_critic(params, target, BCQ, batch, critic_key)
    return vae + critic + recipes.bcq_actor(params, BCQ, batch, key)


def bcq_actions(params, key, s, num_samples=100):
    a = jnp.tanh(recipes.vae_actions(params, BCQ, s, key, D, num_samples))
    return recipes.perturbed(params, BCQ, s, a)


def bear(params, target, batch, key):
    vae_key, critic_key, key = jax.random.split(key, 3)
    vae = recipes.vae_loss(params, BEAR, batch, vae_key)
    critic = recipes.bear_critic(params, target, BEAR, batch, critic_key)
    bounds = THRESHOLD, BANDWIDTH
    return vae + critic + recipes.bear_actor(params, BEAR, batch, key, *bounds)


def bear_actions(params, key, s):
    mean, stddev = normal(params.actor, s)
    return jnp.tanh(mean + stddev * jax.random.normal(key, (10, *mean.shape)))


def generative(recipe, loss, act, inputs, outputs, duals=None, states=-2.0):
    """Return an entry on the plane, of a model of the data.

    Args:
        recipe: Functions of the recipe.
        loss: Function of parameters, target parameters, batch and key.
        act: Function of parameters, a key and states to actions, of which the first
            critic's best is taken, [N, B, D].
        inputs: Size of the actor's input.
        outputs: Size of its output.
        duals: Dual variable.
        states: What the worst of five seeds reaches at least.
    """
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-3, UPDATES))

    def init(key):
        keys = jax.random.split(key, 4)
        vae = {
            "encoder": mlp(keys[0], SIZE + D, 32, 32, 4 * D),
            "decoder": mlp(keys[1], SIZE + 2 * D, 32, 32, D),
        }
        actor = mlp(keys[2], inputs, 32, 32, outputs, scale=0.1)
        critic = ensemble(keys[3], 2, SIZE + D, 32, 32, 1)
        return begin(Generative(actor, critic, vae, duals), optimizer)

    def best(state, key, s):
        a = act(state.params, key, s[None])[:, 0]
        q = values(state.params.critic, jnp.broadcast_to(s, (len(a), *s.shape)), a)
        return a[jnp.argmax(q[:, 0])]

    def update(state, key, batch):
        return descend(
            state, lambda p: loss(p, state.target, batch, key), optimizer, rate=RATE
        )

    return Entry(
        recipe=f"offline.{recipe}",
        run=offline(TASK, Agent(init, None, best, update), transitions, UPDATES, 128),
        about=ABOUT,
        random=TASK.random,
        best=TASK.best,
        states=states,
        fails=FAILS,
    )


def bcq_entry(**settings):
    recipe, act = "vae_loss, bcq_critic, bcq_actor", partial(bcq_actions, **settings)
    return generative(recipe, bcq, act, SIZE + D, D)


BANDWIDTH, THRESHOLD = 2.0, 0.5  # Of BEAR's MMD: actions before the tanh are about 1.


# --- Discrete actions, in the corridor. ---


def trap():
    """Return the corridor, with a third action that ends the episode."""
    task = corridor()

    def step(key, x, a):
        x, reward, ended = task.step(key, x, a)
        return x, jnp.where(a == 2, 0.0, reward), ended | (a == 2)

    return task._replace(step=step, actions=3, random=0.06)


TRAP = trap()
DISCRETE = optax.adam(optax.linear_schedule(5e-3, 0.0, 2 * UPDATES))
PERIOD = 20  # Updates from one copy of the target network to the next.


def walks(key):
    """Return streams of a policy that goes to the near end in 11 of 20 steps."""

    def behavior(key, _):
        return jax.random.bernoulli(key, 0.45).astype(int)

    return play(TRAP, behavior, key, EPISODES // 4, 2 * TRAP.limit)


def steps(key):
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), walks(key))


def discrete(recipe, loss, best, inputs=TRAP.size, outputs=3, data=steps, size=128):
    """Return an entry in the corridor.

    Args:
        recipe: Name of the recipe.
        loss: Function of parameters, target parameters and batch.
        best: Function of parameters and an observation to logits of actions.
        inputs: Size of the network's input.
        outputs: Size of its output.
        data: Function from a key to the data.
        size: Size of the batches.
    """
    agent = Agent(
        init=lambda key: begin(mlp(key, inputs, 32, outputs), DISCRETE),
        act=None,
        best=lambda state, key, s: jnp.argmax(best(state.params, s)),
        update=lambda state, key, batch: descend(
            state, lambda p: loss(p, state.target, batch), DISCRETE, PERIOD
        ),
    )
    return Entry(
        recipe=f"offline.{recipe}",
        run=offline(TRAP, agent, data, 2 * UPDATES, size),
        about="Corridor, from data that takes the near end, which pays 0.3",
        random=TRAP.random,
        best=TRAP.best,
        states=0.95,
        fails=FAILS,
    )


def discrete_cql(params, target, batch):
    return recipes.discrete_cql(params, target, forward, batch, weight=0.1)


def q_and_logits(params, s):
    x = forward(params, s)
    return x[..., :3], x[..., 3:]


def bcq_q(params, s):
    q, logits = q_and_logits(params, s)
    return jnp.where(rlaxlib.bcq_action_mask(logits), q, -jnp.inf)


def transformer(scale=1.0):
    """Return the entry of a decision transformer, which sees returns times `scale`.

    The corridor needs no longer context than one step.
    """

    def apply(params, returns, s, _=None):
        return forward(params, jnp.concatenate([scale * returns[..., None], s], -1))

    def loss(params, _, batch):
        return recipes.decision_transformer(params, apply, batch)

    return discrete(
        *(
            "decision_transformer",
            loss,
            lambda params, s: apply(params, jnp.ones(()), s),
        ),
        **{"inputs": TRAP.size + 1, "data": walks, "size": 16},
    )


EVEN = 1e6  # A temperature at which all weights are 1.
sql_clone = partial(sql, actor=partial(recipes.iql_actor, temperature=EVEN))


def weighted(functions, loss, **options):
    """Return an entry whose policy is a clone if it lacks the advantages."""
    without = {"the advantages": partial(loss, temperature=EVEN)}
    return entry(functions, loss, without=without, **options)


ENTRIES = {
    "iql": weighted("iql_value, iql_critic, iql_actor", iql, value=True),
    "xql": weighted("xql_value", xql, value=True),
    "sql": entry(
        "sql_value, sql_actor",
        sql,
        **{"value": True, "fails": FAILS, "without": {"the advantages": sql_clone}},
    ),
    "awr": weighted("awr", awr, data=streams, size=16, value=True, fails=FAILS),
    "awac": weighted("awac_critic, awac_actor", awac),
    "crr": weighted("crr_actor", crr),
    "cql": entry("cql_critic", cql, size=64, duals=DUALS),
    "cql_lagrange": entry(
        "cql_critic, cql_temperature", cql_lagrange, size=64, duals=DUALS
    ),
    "cal_ql": entry("cal_ql_critic", cal_ql, size=64, duals=DUALS),
    "edac": entry("edac_critic", edac, critics=5, size=64, duals=DUALS, fails=FAILS),
    "td3_bc": entry("td3_bc_actor", td3_bc, action, -1.1, without={"the cloning": td3}),
    "rebrac": entry(
        *("rebrac_critic, rebrac_actor", rebrac, action, -1.0),
        without={"the distance from the data": td3},
    ),
    # Actions stay near those of the data: the worst of five seeds has -1.4 with BCQ,
    # whose bar is -2, and -2.1 with BEAR.
    "bcq": bcq_entry()._replace(
        without={"the best of several actions": bcq_entry(num_samples=1).run}
    ),
    "bear": generative(
        *("vae_loss, bear_critic, bear_actor", bear, bear_actions, SIZE, 2 * D),
        duals=jnp.zeros(()),
        states=-3.0,
    ),
    "discrete_cql": discrete("discrete_cql", discrete_cql, forward),
    "discrete_bcq": discrete(
        "discrete_bcq",
        lambda *args: recipes.discrete_bcq(*args[:2], q_and_logits, args[2]),
        *(bcq_q, TRAP.size, 6),
    ),
    "decision_transformer": transformer()._replace(
        without={"the return asked for": transformer(scale=0.0).run}
    ),
}
