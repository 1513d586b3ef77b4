"""Train a transformer to sort by direct preference optimisation (DPO).

The policy imitates sorted lists until 30 % of its sampled answers are right. It then
samples answers to more prompts, and of the answers to each prompt a right one is
preferred to a wrong one. DPO trains on these pairs: it needs neither rewards nor new
samples. The reference policy is the policy after imitation, whose log-probabilities are
computed once.

- `rlaxlib.token_log_probs`: the log-probabilities of tokens,
- `rlaxlib.dpo_loss`: the loss of a pair (DPO, IPO, SLiC, robust DPO),
- `rlaxlib.masked_mean`: the mean over pairs.

On held-out pairs, the implicit reward of the chosen answer, β times the log-ratio of
policy and reference, soon exceeds that of the rejected answer in more than 90 % of the
pairs. The fraction of right answers rises from about 0.3 to about 0.6. It stays
below that of `grpo_transformer.py`, which samples new answers as the policy improves.

    python examples/dpo_transformer.py --kind=ipo --beta=0.1
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from common import curves, sorting, transformer
from common.flags import flag, run
from common.train_state import TrainState
from tqdm import tqdm

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, problems and answers.")
    output: str = flag("results/dpo_transformer", "Folder for the learning curve.")
    kind: str = flag("sigmoid", "`sigmoid` (DPO), `ipo`, `hinge` or `robust`.")
    beta: float = flag(
        0.1, "Coefficient β: the smaller, the further from the reference."
    )
    label_smoothing: float = flag(0.0, "Probability that a preference is wrong.")
    imitation: float = flag(0.3, "Fraction of right answers at which imitation ends.")
    prompts: int = flag(8192, "Prompts in the data set.")
    answers: int = flag(8, "Answers of the reference policy to each prompt.")
    train_steps: int = flag(500, "Number of gradient steps.")
    report_interval: int = flag(50, "Gradient steps between points of the curve.")
    batch_size: int = flag(128, "Pairs in a batch.")
    learning_rate: float = flag(3e-4, "Learning rate of Adam.")
    eval_prompts: int = flag(1024, "Prompts per evaluation.")


class Evaluation(NamedTuple):
    """One point of the learning curve."""

    step: int
    preference: float  # Fraction of held-out pairs with the higher reward chosen.
    accuracy: float  # Fraction of right answers.


class Answers(NamedTuple):
    """Answers, one for each of N prompts."""

    tokens: jax.Array  # [N, T]
    sample_mask: jax.Array  # [N, T - 1]
    ref_log_prob: jax.Array  # [N], of whole answers, under the reference policy.


class Pairs(NamedTuple):
    """Pairs of answers to N prompts."""

    chosen: Answers
    rejected: Answers
    is_pair: jax.Array  # [N], false without a right and a wrong answer.


def answer_log_prob(policy, answers, params=None):
    """Return the log-probabilities of whole answers, [N]."""
    log_prob = transformer.log_probs(policy, answers.tokens, params)
    return jnp.sum(jnp.where(answers.sample_mask, log_prob, 0), axis=1)


def make_pairs(reference, keys, num_answers) -> Pairs:
    """Sample several answers to each prompt, and pair a right one with a wrong one."""
    samples, rewards = sorting.answer(reference, keys, num_answers)

    def take(indices):
        rows = num_answers * jnp.arange(len(keys)) + indices
        tokens, mask = samples.tokens[rows], samples.sample_mask[rows]
        answers = Answers(tokens, mask, jnp.zeros(len(keys)))
        return answers._replace(ref_log_prob=answer_log_prob(reference, answers))

    right, wrong = jnp.argmax(rewards, axis=1), jnp.argmin(rewards, axis=1)
    is_pair = jnp.max(rewards, axis=1) > jnp.min(rewards, axis=1)
    return Pairs(take(right), take(wrong), is_pair)


def make_data(reference, key, config) -> tuple[Pairs, Pairs]:
    """Return pairs to train on, and pairs to evaluate on."""
    keys = jax.random.split(key, config.prompts + config.eval_prompts)
    pairs = make_pairs(reference, keys, config.answers)
    train_pairs = jax.tree.map(lambda x: x[: config.prompts], pairs)
    return train_pairs, jax.tree.map(lambda x: x[config.prompts :], pairs)


def update(policy, pairs, config):
    """Take one gradient step on a batch of pairs."""

    def loss(params):
        losses = rlaxlib.dpo_loss(
            answer_log_prob(policy, pairs.chosen, params),
            answer_log_prob(policy, pairs.rejected, params),
            pairs.chosen.ref_log_prob,
            pairs.rejected.ref_log_prob,
            beta=config.beta,
            kind=config.kind,
            label_smoothing=config.label_smoothing,
        )
        return rlaxlib.masked_mean(losses, mask=pairs.is_pair)

    return policy.apply_loss_fn(loss_fn=loss)


def advance(policy, pairs, key, config):
    """Take several gradient steps, each on a random batch."""

    def one(policy, key):
        rows = jax.random.randint(key, (config.batch_size,), 0, len(pairs.is_pair))
        batch = jax.tree.map(lambda x: x[rows], pairs)
        return update(policy, batch, config), None

    keys = jax.random.split(key, config.report_interval)
    policy, _ = jax.lax.scan(one, policy, keys)
    return policy


def evaluate(policy, held_out, key, config):
    """Return the two fractions of an `Evaluation`."""
    chosen, rejected = (
        answer_log_prob(policy, answers) - answers.ref_log_prob
        for answers in (held_out.chosen, held_out.rejected)
    )
    is_preferred = (chosen > rejected).astype(jnp.float32)
    preference = rlaxlib.masked_mean(is_preferred, mask=held_out.is_pair)
    keys = jax.random.split(key, config.eval_prompts)
    _, rewards = sorting.answer(policy, keys, 1)
    return preference, jnp.mean(rewards)


def train(config: Config) -> list[Evaluation]:
    """Imitate, sample pairs, and train on them; return the learning curve."""
    imitation_key, pair_key, train_key, eval_key = jax.random.split(
        jax.random.key(config.seed), 4
    )
    reference = sorting.imitate(imitation_key, config.imitation)
    pairs, held_out = jax.jit(make_data, static_argnames="config")(
        reference, pair_key, config
    )
    policy = TrainState.create(
        reference.model_def, reference.params, optax.adam(config.learning_rate)
    )
    advance_jit = jax.jit(functools.partial(advance, config=config))
    evaluate_jit = jax.jit(functools.partial(evaluate, config=config))
    curve = []
    with tqdm(total=config.train_steps, unit="step") as progress:
        while progress.n < config.train_steps:
            key = jax.random.fold_in(train_key, progress.n)
            if curve:
                policy = advance_jit(policy, pairs, key)
                progress.update(config.report_interval)
            results = evaluate_jit(policy, held_out, eval_key)
            curve.append(Evaluation(progress.n, *map(float, results)))
            accuracy = curve[-1].accuracy
            progress.set_postfix_str(f"accuracy {accuracy:.2f}", refresh=False)
    return curve


def main(config):
    curves.report(train(config), "DPO on sorting", config.output, "fraction")


if __name__ == "__main__":
    run(main, Config)
