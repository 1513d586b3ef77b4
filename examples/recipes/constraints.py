"""Steps and losses under constraints: TRPO, CPO, FOCOPS, CUP, P3O.

`apply(params, s)` returns the logits of the policy. A batch of streams is that of
`policy_gradient.py`, whose advantages and values these recipes share; those of costs
are the same functions of costs. Needs `policy_gradient.py` in the same package.
"""

import jax
import jax.numpy as jnp
from jax.scipy.sparse.linalg import cg

import rlaxlib

from .policy_gradient import log_probs, valid  # noqa: TID252 - Any package.


def surrogate(params, apply, batch, adv_t):
    """Return the mean of minus the ratio times the advantage."""
    log_prob = log_probs(apply(params, valid(batch, batch.s_tm1)), batch.a_tm1)
    old_log_prob = log_probs(valid(batch, batch.logits_tm1), batch.a_tm1)
    losses = -jnp.exp(log_prob - old_log_prob) * valid(batch, adv_t)
    return rlaxlib.masked_mean(losses, mask=batch.sample_mask)


def kl_from_old(params, apply, batch):
    """Return the mean divergence from the policy that acted."""
    old, logits = batch.logits_tm1, apply(params, valid(batch, batch.s_tm1))
    kl = rlaxlib.categorical_kl_divergence(valid(batch, old), logits)
    return rlaxlib.masked_mean(kl, mask=batch.sample_mask)


def trpo(params, apply, batch, adv_t, max_kl=0.01, damping=0.1):
    """TRPO: a natural gradient, as far as the trust region allows; new parameters.

    Without the line search it is a natural policy gradient. Schulman et al., 2015,
    https://arxiv.org/abs/1502.05477. Source: github.com/openai/baselines@ea25b9e,
    baselines/trpo_mpi/trpo_mpi.py, the same step, but a line search by halves, which
    accepts a KL of 1.5 times its bound; here by factors of 0.8. Usual: max KL 0.01,
    damping 0.1, 10 iterations of conjugate gradients, λ 0.98, the Fisher matrix on
    every fifth step, values by Adam 1e-3.
    """

    def kl(params):
        return kl_from_old(params, apply, batch)

    def fisher(v):
        return rlaxlib.fisher_vector_product(kl, params, v, damping)

    gradient = jax.grad(surrogate)(params, apply, batch, adv_t)
    x, _ = cg(fisher, gradient, maxiter=10)
    size = rlaxlib.trust_region_step_size(x, fisher(x), max_kl)
    step = jax.tree.map(lambda x: -size * x, x)
    search = rlaxlib.backtracking_line_search

    def evaluate(x):
        return (surrogate(x, apply, batch, adv_t), kl(x))

    return search(evaluate, params, step, max_kl)


def cpo_direction(params, apply, batch, adv_t, cost_adv_t, excess, max_kl, damping):
    """Return the step of CPO, before the line search."""

    def fisher(v):
        def kl(x):
            return kl_from_old(x, apply, batch)

        return rlaxlib.fisher_vector_product(kl, params, v, damping)

    # The surrogate is minus the objective: it has the gradient of minus the cost.
    g, b = (jax.grad(surrogate)(params, apply, batch, x) for x in (adv_t, -cost_adv_t))
    x, y = (cg(fisher, each, maxiter=10)[0] for each in (g, b))

    def dot(x, y):
        return sum(map(jnp.vdot, *map(jax.tree.leaves, (x, y))))

    found = rlaxlib.cpo_step(dot(g, x), dot(g, y), dot(b, y), excess, max_kl)

    def add(x, y):
        return found.gradient_coefficient * x + found.cost_coefficient * y

    return jax.tree.map(add, x, y)


def cpo(params, apply, batch, adv_t, cost_adv_t, excess, max_kl=0.01, damping=0.1):
    """CPO: the best step in the trust region that obeys the limit of the cost.

    Returns new parameters. `excess` is the cost of an episode minus its limit, divided
    by the episode's length: advantages are averaged over steps. The line search lowers
    the loss and keeps the cost within its limit; above the limit, it lowers the cost.
    Achiam et al., 2017, https://arxiv.org/abs/1705.10528. Source:
    github.com/jachiam/cpo@5c83925, optimizers/conjugate_constraint_optimizer.py, the
    same step, with a damping of 1e-5 and 15 tries, the last of which it takes above the
    limit. Usual: max KL 0.01, discount 0.995, λ of GAE 0.95, and of costs 1, batches of
    50,000 steps.
    """
    inputs = apply, batch, adv_t, cost_adv_t
    step = cpo_direction(params, *inputs, excess, max_kl, damping)

    def cost(x):
        return surrogate(x, apply, batch, -cost_adv_t)

    limit = cost(params) + jnp.maximum(-excess, 0.0)

    def evaluate(x):
        loss = jnp.where(excess > 0, cost(x), surrogate(x, apply, batch, adv_t))
        is_safe = cost(x) <= limit
        return loss, jnp.where(is_safe, kl_from_old(x, apply, batch), jnp.inf)

    return rlaxlib.backtracking_line_search(evaluate, params, step, max_kl)


def focops(params, apply, batch, adv_t, cost_adv_t, multiplier, temperature=1.5):
    """FOCOPS: a KL penalty, and no gradient for states that have left the region.

    `multiplier` is that of `lagrange_multiplier`. Zhang et al., 2020,
    https://arxiv.org/abs/2002.06506. Source: github.com/ymzhang01/focops@fc92fce,
    focops_main.py, the same loss; omnisafe also divides the advantage by 1 plus the
    multiplier. Usual: temperature 1.5, KL at most 0.02, multiplier at most 2 with a
    rate of 0.01, Adam 3e-4.
    """
    s, old = valid(batch, (batch.s_tm1, batch.logits_tm1))
    logits, mask = apply(params, s), batch.sample_mask
    kl = rlaxlib.categorical_kl_divergence(logits, old)
    inputs = log_probs(logits, batch.a_tm1), log_probs(old, batch.a_tm1)
    adv_t = valid(batch, adv_t - multiplier * cost_adv_t)
    loss, _ = rlaxlib.ppo_penalty_loss(*inputs, adv_t, temperature, kl=kl)
    loss = jnp.where(kl <= 0.02, loss, 0.0) / temperature
    return rlaxlib.masked_mean(loss, mask=mask)


def cup(
    params,
    apply,
    batch,
    ppo_logits,
    cost_adv_t,
    multiplier,
    discount=0.99,
    lambda_=0.95,
):
    """CUP: after the epochs of PPO, a projection that lowers the cost.

    `ppo_logits`, [B, T, A], are those of the policy after PPO, to which the projection
    stays close. The ratio is relative to the policy that acted. Yang et al., 2022,
    https://arxiv.org/abs/2209.07089. Source: github.com/PKU-Alignment/omnisafe@15603dd,
    omnisafe/algorithms/on_policy/first_order/cup.py, the same loss. Usual: the
    multiplier at most 2, λ 0.95, Adam 3e-4.
    """
    s, old, middle = valid(batch, (batch.s_tm1, batch.logits_tm1, ppo_logits))
    logits = apply(params, s)
    kl = rlaxlib.categorical_kl_divergence(logits, middle)
    inputs = log_probs(logits, batch.a_tm1), log_probs(old, batch.a_tm1)
    factor = multiplier * (1 - discount * lambda_) / (1 - discount)
    adv_t = valid(batch, -factor * cost_adv_t)
    loss, _ = rlaxlib.ppo_penalty_loss(*inputs, adv_t, 1.0, kl=kl)
    return rlaxlib.masked_mean(loss, mask=batch.sample_mask)


def p3o(params, apply, batch, adv_t, cost_adv_t, excess, kappa=20.0, epsilon=0.2):
    """P3O: PPO, with a penalty of the cost where it exceeds its limit.

    `excess` is the cost of an episode minus its limit. Kappa must be more than the best
    multiplier; one far above it outweighs the reward in Adam. Zhang et al., 2022,
    https://arxiv.org/abs/2205.11814, clips the cost too, and weighs the excess by one
    minus the discount. Source: github.com/PKU-Alignment/omnisafe@15603dd,
    omnisafe/algorithms/on_policy/penalty_function/p3o.py, the same loss. Usual: kappa
    20, clip 0.2, Adam 3e-4.
    """
    s, old, adv_t = valid(batch, (batch.s_tm1, batch.logits_tm1, adv_t))
    log_prob, old_log_prob = (
        log_probs(x, batch.a_tm1) for x in (apply(params, s), old)
    )
    loss, _ = rlaxlib.ppo_clip_loss(log_prob, old_log_prob, adv_t, epsilon)
    cost = surrogate(params, apply, batch, -cost_adv_t)
    loss = rlaxlib.masked_mean(loss, mask=batch.sample_mask)
    return loss + kappa * jax.nn.relu(cost + excess)


def adaptive_learning_rate(learning_rate, kl, target=0.01):
    """Adaptive learning rate: it falls where the policy moves too far.

    Rudin et al., 2021, https://arxiv.org/abs/2109.11978. Source:
    github.com/leggedrobotics/rsl_rl@c281c32, rsl_rl/algorithms/ppo.py, the same rule.
    Usual: target 0.01, at first 1e-3.
    """
    inverse = rlaxlib.adaptive_kl_coefficient(
        1 / learning_rate,
        kl,
        target,
        tolerance=2.0,
        factor=1.5,
        minimum=1e2,
        maximum=1e5,
    )
    return 1 / inverse
