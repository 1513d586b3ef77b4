"""The zoo's agents that search: by trees of `mctx`, and by particles."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mctx
import optax
from recipes import policy_gradient
from recipes import search as recipes
from recipes.continuous import ActorCritic

import rlaxlib
from zoo.networks import forward, mlp
from zoo.planning import joint, window
from zoo.tasks import Task, corridor
from zoo.training import Agent, Entry, begin, descend, online

TASK = corridor()
A = TASK.actions
HIDDEN, BINS = 32, 21
SIMULATIONS = 4
STEPS = 5  # Of the model in an update, and of the returns.
EXPLORATION = 0.2  # Without it, one of 15 seeds stayed at the near end.
# As in `examples/muzero.py`, values are not rescaled by their range in a node, which
# turns the errors of equal values into differences of 1.
# The policy must be slower than the values: with a scale of 0.1 it stayed at the near
# end at 4 of 20 seeds, with 0.03 at 1 of 20, with 0.01 at 1 of 15, with 0.003 at none.
RESCALE = {"rescale_values": False}
SCALE = 0.003
MAX_VALUE = 1.0
PAIR = rlaxlib.muzero_pair(-MAX_VALUE, MAX_VALUE, BINS, rlaxlib.SIGNED_HYPERBOLIC_PAIR)


class Model(NamedTuple):
    """Parameters of the model."""

    encode: Any
    next: Any
    reward: Any
    policy: Any
    value: Any


class Searched(NamedTuple):
    """First observations, [B, S], and K steps with searches, as the recipe has them."""

    s: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    logits: jax.Array
    q: jax.Array
    visits: jax.Array
    action_weights: jax.Array
    v: jax.Array
    returns: jax.Array
    sample_mask: jax.Array


def init(key):
    keys = jax.random.split(key, 5)
    pair = HIDDEN + A, HIDDEN
    return Model(
        encode=mlp(keys[0], TASK.size, HIDDEN, HIDDEN),
        next=mlp(keys[1], *pair, HIDDEN),
        reward=mlp(keys[2], *pair, BINS, scale=0.0),
        policy=mlp(keys[3], HIDDEN, HIDDEN, A, scale=0.0),
        value=mlp(keys[4], HIDDEN, HIDDEN, BINS, scale=0.0),
    )


def encode(params, s):
    return jnp.tanh(forward(params.encode, s))


def step(params, z, a):
    """Return the next latent states, and logits of rewards."""
    a = jax.nn.one_hot(a, A)
    return jnp.tanh(joint(params.next, z, a)), joint(params.reward, z, a)


def decode(logits):
    return PAIR.apply_inv(jax.nn.softmax(logits))


def search(policy, params, key, s):
    """Return the output of the searches of a policy of `mctx`, from [B, S]."""

    def predict(z):
        return {
            "prior_logits": forward(params.policy, z),
            "value": decode(forward(params.value, z)),
        }

    def recurrent(_, key, a, z):
        z, r_logits = step(params, z, a)
        output = mctx.RecurrentFnOutput(
            reward=decode(r_logits),
            discount=jnp.full(a.shape, TASK.discount),
            **predict(z),
        )
        return output, z

    z = encode(params, s)
    root = mctx.RootFnOutput(embedding=z, **predict(z))
    return policy(None, key, root, recurrent)


def apply(params, s, a):
    """Return logits, [B, K+1, A], of values, [B, K+1, M], and of rewards, [B, K, M]."""

    def one(z, a):
        z, r_logits = step(params, optax.scale_gradient(z, 0.5), a)
        return z, (z, r_logits)

    first = encode(params, s)
    _, (z, r_logits) = jax.lax.scan(one, first, a.T)
    z = jnp.swapaxes(jnp.concatenate([first[None], z]), 0, 1)
    heads = (forward(head, z) for head in (params.policy, params.value))
    return *heads, jnp.swapaxes(r_logits, 0, 1)


def searched(policy, params, key, batch):
    """Return a batch of the recipes, of windows that are searched anew (Reanalyse).

    The model learns that nothing follows a cut, as an end; the returns bootstrap there.
    """
    cut = batch.truncated_t
    valid = jnp.cumprod((batch.discount_t > 0) & ~cut, axis=1) > 0
    valid = jnp.pad(valid, ((0, 0), (1, 0)), constant_values=True)
    batch = window(batch)
    num, length, _ = batch.s.shape
    output = search(policy, params, key, batch.s.reshape(num * length, -1))
    tree, summary = output.search_tree, output.search_tree.summary()
    root = tree.children_prior_logits[:, 0], summary.qvalues, summary.visit_counts
    found = *root, output.action_weights, tree.raw_values[:, 0], summary.value
    *root, value = (x.reshape(num, length, *x.shape[1:]) for x in found)
    returns = jax.vmap(rlaxlib.n_step_bootstrapped_returns, (0, 0, 0, None))(
        *(batch.r_t, batch.discount_t, value[:, 1:], STEPS), truncated_t=cut
    )
    returns = jnp.concatenate([returns, value[:, -1:]], axis=1)
    first = batch.s[:, 0], batch.a_tm1, batch.r_t
    return Searched(*first, *root, returns, valid)


def muzero_run(policy, recipe, updates, **settings):
    """Return the run of an agent that acts by a search; its policy is evaluated."""
    optimizer = optax.adam(optax.linear_schedule(3e-3, 0.0, updates))

    def act(state, key, s):
        search_key, explore_key, action_key = jax.random.split(key, 3)
        action = search(policy, state.params, search_key, s[None]).action[0]
        explores = jax.random.bernoulli(explore_key, EXPLORATION)
        return jnp.where(explores, jax.random.randint(action_key, (), 0, A), action)

    def best(state, _, s):
        return jnp.argmax(forward(state.params.policy, encode(state.params, s)))

    def update(state, key, batch):
        batch = searched(policy, state.params, key, batch)

        def loss(params):
            return recipe(params, apply, batch, max_value=MAX_VALUE, **settings)

        return descend(state, loss, optimizer)

    agent = Agent(
        init=lambda key: begin(init(key), optimizer),
        act=act,
        best=best,
        update=update,
    )
    return online(TASK, agent, updates, steps=1, replay=16, window=STEPS)


def entry(recipe, task, run, states, **without):
    return Entry(
        recipe=recipe,
        run=run,
        about=task.about,
        random=task.random,
        best=task.best,
        states=states,
        fails=("reward", "bootstrap"),
        without=without,
    )


def gumbel_run(scale):
    """Return the run of Gumbel MuZero; a scale of 0 leaves its values out."""
    transform = partial(
        mctx.qtransform_completed_by_mix_value, value_scale=scale, **RESCALE
    )
    settings = {"num_simulations": SIMULATIONS, "qtransform": transform}
    policy = partial(mctx.gumbel_muzero_policy, **settings)
    return muzero_run(policy, recipes.gumbel_muzero, 2000, c_scale=scale, **RESCALE)


# The default, 1.25, makes a policy so fast that it stayed at the near end at 1 of 15
# seeds, and at none with 4.
MUZERO = partial(mctx.muzero_policy, num_simulations=8, pb_c_init=4.0)
BLIND_MUZERO = partial(MUZERO, pb_c_init=1e6)  # Visits follow the prior alone.


# --- AlphaZero: a game of two players, whose rules are known. ---

HEAP = 12
GAMES = 8


def nim():
    """Return Nim: two players take 1 to 3 sticks in turn, and the last one wins.

    The reward is that of the player who moved, whose return is minus that of the next:
    the discount is -1. A heap of a multiple of 4 is lost.
    """

    def step(_, heap, a):
        heap = jnp.maximum(heap - a - 1, 0)
        return heap, 1.0 * (heap == 0), heap == 0

    return Task(
        about=f"Nim: the last of up to {HEAP} sticks wins, against a perfect player",
        reset=lambda key: jax.random.randint(key, (), 1, HEAP + 1),
        observe=lambda heap: jax.nn.one_hot(heap, HEAP + 1),
        step=step,
        limit=HEAP,
        actions=3,
        random=-0.46,
        best=1.0,
        discount=-1.0,
    )


NIM = nim()


def against_perfect(task, act, key):
    """Return the mean outcome of games that can be won, against a perfect player."""

    def turn(carry, key):
        heap, outcome = carry
        left = heap - act(key, task.observe(heap)) - 1
        outcome = jnp.where((heap > 0) & (left <= 0), 1.0, outcome)
        reply = jnp.where(left % 4 == 0, 1, left % 4)
        lost = (left > 0) & (left == reply)
        return (jnp.maximum(left - reply, 0), jnp.where(lost, -1.0, outcome)), None

    def game(key, heap):
        keys = jax.random.split(key, HEAP // 2)
        return jax.lax.scan(turn, (heap, 0.0), keys)[0][1]

    heaps = jnp.array([heap for heap in range(1, HEAP + 1) if heap % 4])
    return jnp.mean(jax.vmap(game)(jax.random.split(key, len(heaps)), heaps))


class Positions(NamedTuple):
    """Positions, as the recipe has them."""

    s: jax.Array
    action_weights: jax.Array
    returns: jax.Array


def policy_and_value(params, s):
    """Return logits, [B, A], and values, [B]."""
    x = forward(params, s)
    return x[..., :-1], jnp.tanh(x[..., -1])


def alphazero(fault, simulations):
    """Return an agent that plays both sides; its policy is evaluated without search.

    It learns from positions of finished games. Their searches, which AlphaZero stores,
    are made anew.
    """
    optimizer = optax.adam(1e-2)

    def search(params, key, s):
        def predict(s):
            logits, v = policy_and_value(params, s)
            return {"prior_logits": logits, "value": v, "embedding": s}

        def recurrent(_, key, a, s):
            heap = jnp.argmax(s, axis=-1)
            heap, reward, over = jax.vmap(NIM.step)(heap, heap, a)
            root = predict(NIM.observe(heap))
            s = root.pop("embedding")
            discount = jnp.where(over, 0.0, fault.bootstrap * NIM.discount)
            reward = fault.reward * reward
            return mctx.RecurrentFnOutput(reward=reward, discount=discount, **root), s

        inputs = None, key, mctx.RootFnOutput(**predict(s)), recurrent
        return mctx.muzero_policy(*inputs, num_simulations=simulations)

    def act(state, key, s):
        return search(state.params, key, s[None]).action[0]

    def update(state, key, batch):
        draw_key, search_key = jax.random.split(key)
        returns = jax.vmap(rlaxlib.linear_recurrence, (0, 0, None))
        returns = returns(batch.discount_t, batch.r_t, 0.0)
        finished = jnp.cumsum((batch.r_t != 0)[:, ::-1], axis=1)[:, ::-1] > 0
        logits = jnp.where(finished, 0.0, -jnp.inf).ravel()
        rows = jax.random.categorical(draw_key, logits, shape=(64,))
        s = batch.s_tm1.reshape(-1, HEAP + 1)[rows]
        weights = search(state.params, search_key, s).action_weights
        positions = Positions(s, weights, returns.ravel()[rows])

        def loss(params):
            return recipes.alphazero(params, policy_and_value, positions)

        return descend(state, loss, optimizer)

    return Agent(
        init=lambda key: begin(mlp(key, HEAP + 1, HIDDEN, 4, scale=0.1), optimizer),
        act=act,
        best=lambda state, _, s: jnp.argmax(policy_and_value(state.params, s)[0]),
        update=update,
    )


def alphazero_run(key, fault, simulations=16):
    settings = {"updates": 60, "num": GAMES, "steps": 16, "score": against_perfect}
    return online(NIM, alphazero(fault, simulations), **settings)(key, fault)


# --- SPO: particles in the corridor itself, whose rules are known. ---


class Particles(NamedTuple):
    """Streams, [B, T], with the results of searches, [B, T, N]."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    s_t: jax.Array
    truncated_t: jax.Array
    sample_mask: Any
    a_samples: jax.Array
    weights: jax.Array
    advs: jax.Array


def value(params, s):
    return forward(params, s)[..., 0]


SMC = ActorCritic(forward, value)


def smc(fault, scale):
    """Return an agent that acts by particles; its policy is evaluated without them.

    `scale` is a factor of the temperature of their weights.
    """
    optimizer = optax.adam(3e-3)

    def search(params, key, s):
        def policy(key, x):
            logits = forward(params.actor, TASK.observe(x))
            v = value(params.critic, TASK.observe(x))
            return rlaxlib.softmax().sample(key, logits), v

        def step(x, a):
            x, reward, over = TASK.step(None, x, a)
            return x, fault.reward * reward, fault.bootstrap * jnp.where(over, 0.0, 1.0)

        temperature = scale * jax.nn.softplus(params.duals[0])
        return policy_gradient.smc_search(key, policy, step, jnp.argmax(s), temperature)

    def act(state, key, s):
        search_key, key = jax.random.split(key)
        a_samples, weights, _ = search(state.target, search_key, s)
        return a_samples[jax.random.categorical(key, jnp.log(weights))]

    def update(state, key, batch):
        keys = jax.random.split(key, batch.r_t.shape)
        searches = jax.vmap(jax.vmap(search, (None, 0, 0)), (None, 0, 0))
        batch = Particles(*batch, *searches(state.target, keys, batch.s_tm1))

        def loss(params):
            actor = policy_gradient.smc_actor(
                params, state.target, SMC, batch, (0.5, 0.01)
            )
            return actor + policy_gradient.smc_critic(params, state.target, SMC, batch)

        return descend(state, loss, optimizer, rate=0.05)

    def init(key):
        keys = jax.random.split(key)
        actor = mlp(keys[0], TASK.size, HIDDEN, A, scale=0.1)
        return ActorCritic(actor, mlp(keys[1], TASK.size, HIDDEN, 1), jnp.ones(2))

    def best(state, _, s):
        return jnp.argmax(forward(state.params.actor, s))

    return Agent(
        init=lambda key: begin(init(key), optimizer), act=act, best=best, update=update
    )


def smc_run(key, fault, scale=1.0):
    settings = {"updates": 300, "steps": 5, "replay": 32, "window": 5}
    return online(TASK, smc(fault, scale), **settings)(key, fault)


ENTRIES = {
    "alphazero": entry(
        *("search.alphazero", NIM, alphazero_run, 0.9),
        # One simulation only samples the policy of the network.
        **{"the search": partial(alphazero_run, simulations=1)},
    ),
    "muzero": entry(
        *("search.muzero", TASK, muzero_run(MUZERO, recipes.muzero, 2000), 0.95),
        **{"the values of the search": muzero_run(BLIND_MUZERO, recipes.muzero, 2000)},
    ),
    # Without a bootstrap, 7 of 25 runs reach the far end, too.
    "gumbel_muzero": entry(
        *("search.gumbel_muzero", TASK, gumbel_run(SCALE), 0.95),
        **{"the values of the search": gumbel_run(0.0)},
    )._replace(fails=("reward",)),
    "smc_policy_optimization": entry(
        *("policy_gradient.smc_search, smc_actor, smc_critic", TASK, smc_run, 0.95),
        # At a high temperature all particles have the same weight.
        **{"the weights of particles": partial(smc_run, scale=1e6)},
    ),
}
