"""What is measured, under the topics of rlaxlib and in their order."""

import functools
import types
from collections.abc import Mapping
from typing import Any

from benchmarks import steps
from benchmarks.case import Case
from benchmarks.inputs import (
    Input,
    Size,
    action,
    binary,
    discount,
    key,
    mask,
    normal,
    positive,
    probs,
    unit,
    value,
)

ACTIONS = 18
ONE_STEP = (Size(batch=4096, actions=ACTIONS),)
STREAMS = (
    Size(batch=256, steps=20, actions=ACTIONS),
    Size(batch=256, steps=128, actions=ACTIONS),
    Size(batch=32, steps=1000, actions=ACTIONS),
)
TRAINING = (Size(batch=256, actions=steps.ACTIONS),)


def row(
    name: str,
    sizes: tuple[Size, ...] = ONE_STEP,
    /,
    *,
    settings: Mapping[str, Any] | None = None,
    of: Mapping[str, Any] | None = None,
    label: str = "",
    smooth: bool = True,
    positional: bool = False,
    peer: str = "",
    **inputs: Input,
) -> Case:
    """Return a case, whose inputs are written like arguments of the function."""
    return Case(
        name=name,
        inputs=inputs,
        sizes=sizes,
        settings=settings or {},
        of=of or {},
        label=label,
        smooth=smooth,
        positional=positional,
        peer=peer,
    )


ARRAYS = (
    row("batched_index", values=normal("A"), indices=action()),
    row("one_hot", settings={"num_classes": ACTIONS}, indices=action()),
    row("replace_masked", data=normal("A"), replacement=normal("A"), mask=mask("A")),
    row("masked_mean", STREAMS, x=normal("T"), mask=mask("T")),
    row("standardize", STREAMS, x=normal("T")),
)

LOSSES = (
    row("l2_loss", predictions=normal("A"), targets=normal("A")),
    row("huber_loss", settings={"delta": 1.0}, x=normal("A")),
    row("likelihood", predictions=unit("A"), targets=binary("A")),
    row("log_loss", predictions=unit("A"), targets=binary("A")),
    row(
        "expectile_loss",
        settings={"expectile": 0.8},
        predictions=normal("A"),
        targets=normal("A"),
    ),
    row(
        "clip_gradient",
        settings={"gradient_min": -0.5, "gradient_max": 0.5},
        positional=True,
        x=normal("A"),
    ),
)

_softmax = functools.partial(row, of={"temperature": 0.7})
_clipped = functools.partial(row, of={"temperature": 0.7, "entropy_clip": 0.9})
_greedy = functools.partial(row, smooth=False)
_epsilon = functools.partial(row, of={"epsilon": 0.1}, smooth=False)
_box = types.SimpleNamespace(minimum=-2.0, maximum=2.0)
_boxed = functools.partial(row, settings={"action_spec": _box})

DISTRIBUTIONS = (
    _softmax("softmax.sample", key=key(), logits=normal("A"), smooth=False),
    _softmax("softmax.probs", logits=normal("A")),
    _softmax("softmax.logprob", sample=action(), logits=normal("A")),
    _softmax("softmax.entropy", logits=normal("A")),
    _softmax("softmax.kl", p_logits=normal("A"), q_logits=normal("A")),
    _clipped("clipped_entropy_softmax.entropy", logits=normal("A")),
    _greedy("greedy.sample", key=key(), preferences=normal("A")),
    _greedy("greedy.probs", preferences=normal("A")),
    _greedy("greedy.logprob", sample=action(), preferences=normal("A")),
    _epsilon("epsilon_greedy.sample", key=key(), preferences=normal("A")),
    _epsilon("epsilon_greedy.probs", preferences=normal("A")),
    _epsilon("epsilon_greedy.logprob", sample=action(), preferences=normal("A")),
    _epsilon("epsilon_greedy.entropy", preferences=normal("A")),
    row("gaussian_diagonal.sample", key=key(), mu=normal("A"), sigma=positive("A")),
    row(
        "gaussian_diagonal.logprob",
        sample=normal("A"),
        mu=normal("A"),
        sigma=positive("A"),
    ),
    row("gaussian_diagonal.entropy", mu=normal("A"), sigma=positive("A")),
    row("gaussian_diagonal.kl_to_standard_normal", mu=normal("A"), sigma=positive("A")),
    row(
        "gaussian_diagonal.kl",
        mu_0=normal("A"),
        sigma_0=positive("A"),
        mu_1=normal("A"),
        sigma_1=positive("A"),
    ),
    _boxed("squashed_gaussian.sample", key=key(), mu=normal("A"), sigma=normal("A")),
    _boxed(
        "squashed_gaussian.logprob", sample=unit("A"), mu=normal("A"), sigma=normal("A")
    ),
    row("squashed_gaussian.entropy", mu=normal("A"), sigma=normal("A")),
    row("squashed_gaussian.kl_to_standard_normal", mu=normal("A"), sigma=normal("A")),
    row(
        "squashed_gaussian.kl",
        mu_0=normal("A"),
        sigma_0=normal("A"),
        mu_1=normal("A"),
        sigma_1=normal("A"),
    ),
    row("categorical_sample", key=key(), probs=probs("A"), smooth=False),
    row("categorical_cross_entropy", labels=probs("A"), logits=normal("A")),
    row("categorical_kl_divergence", p_logits=normal("A"), q_logits=normal("A")),
    row(
        "categorical_importance_sampling_ratios",
        pi_logits_t=normal("A"),
        mu_logits_t=normal("A"),
        a_t=action(),
    ),
    row(
        "multivariate_normal_kl_divergence",
        mu_0=normal("A"),
        sigma_0=positive("A"),
        mu_1=normal("A"),
        sigma_1=positive("A"),
    ),
)

_stream: dict[str, Any] = {"r_t": normal("T"), "discount_t": discount("T")}
_n_step = functools.partial(
    row, "n_step_bootstrapped_returns", **_stream, v_t=normal("T")
)
_off_policy: dict[str, Any] = {
    "v_tm1": value("T", time=0),
    "v_t": value("T", time=1),
    **_stream,
    "rho_tm1": positive("T"),
}
_lambda: dict[str, Any] = {"lambda_": 0.95}
_leaky: dict[str, Any] = {**_lambda, "alpha_": 0.8}

RETURNS = (
    row("discounted_returns", STREAMS, **_stream, v_t=normal("T")),
    row("lambda_returns", STREAMS, settings=_lambda, **_stream, v_t=normal("T")),
    _n_step(STREAMS, settings={"n": 5}, label="n=5"),
    _n_step(STREAMS[1:], settings={"n": 100}, label="n=100"),
    row(
        "truncated_generalized_advantage_estimation",
        STREAMS,
        settings=_lambda,
        **_stream,
        values=normal("T+1"),
    ),
    row(
        "generalized_advantage_estimation",
        STREAMS,
        settings=_lambda,
        v_tm1=value("T", time=0),
        v_t=value("T", time=1),
        **_stream,
        truncated_t=mask("T"),
    ),
    row(
        "general_off_policy_returns_from_action_values",
        STREAMS,
        q_t=normal("T A"),
        a_t=action("T"),
        **_stream,
        c_t=unit("T"),
        pi_t=probs("T A"),
    ),
    row(
        "general_off_policy_returns_from_q_and_v",
        STREAMS,
        q_t=normal("T-1"),
        v_t=normal("T"),
        **_stream,
        c_t=unit("T-1"),
    ),
    row("vtrace", STREAMS, settings=_lambda, **_off_policy),
    row(
        "vtrace",
        STREAMS,
        settings=_lambda,
        label="sample_mask",
        **_off_policy,
        sample_mask=mask("T"),
    ),
    row("leaky_vtrace", STREAMS, settings=_leaky, **_off_policy),
    row("vtrace_td_error_and_advantage", STREAMS, settings=_lambda, **_off_policy),
    row(
        "leaky_vtrace_td_error_and_advantage",
        STREAMS,
        settings={**_lambda, "alpha": 0.8},
        **_off_policy,
    ),
    row(
        "importance_corrected_td_errors",
        STREAMS,
        settings=_lambda,
        peer="rlax._src.multistep",
        **_stream,
        rho_tm1=positive("T"),
        values=normal("T+1"),
    ),
)

_reward: dict[str, Any] = {"r_t": normal(), "discount_t": discount()}
_taken: dict[str, Any] = {"q_tm1": normal("A"), "a_tm1": action(), **_reward}
_taken_stream: dict[str, Any] = {
    "q_tm1": normal("T A"),
    "a_tm1": action("T"),
    **_stream,
}

VALUES = (
    row("td_learning", v_tm1=normal(), **_reward, v_t=normal()),
    row("sarsa", **_taken, q_t=normal("A"), a_t=action()),
    row("expected_sarsa", **_taken, q_t=normal("A"), probs_a_t=probs("A")),
    row("q_learning", **_taken, q_t=normal("A")),
    row("double_q_learning", **_taken, q_t_value=normal("A"), q_t_selector=normal("A")),
    row(
        "persistent_q_learning",
        settings={"action_gap_scale": 0.1},
        **_taken,
        q_t=normal("A"),
    ),
    row("qv_learning", **_taken, v_t=normal()),
    row("qv_max", v_tm1=normal(), **_reward, q_t=normal("A")),
    row(
        "td_lambda",
        STREAMS,
        settings=_lambda,
        v_tm1=value("T", time=0),
        **_stream,
        v_t=value("T", time=1),
    ),
    row(
        "sarsa_lambda",
        STREAMS,
        settings=_lambda,
        **_taken_stream,
        q_t=normal("T A"),
        a_t=action("T"),
    ),
    row("q_lambda", STREAMS, settings=_lambda, **_taken_stream, q_t=normal("T A")),
    row(
        "retrace",
        STREAMS,
        settings=_lambda,
        q_tm1=normal("T A"),
        q_t=normal("T A"),
        a_tm1=action("T"),
        a_t=action("T"),
        **_stream,
        pi_t=probs("T A"),
        mu_t=unit("T"),
    ),
    row(
        "retrace_continuous",
        STREAMS,
        settings=_lambda,
        q_tm1=normal("T"),
        q_t=normal("T-1"),
        v_t=normal("T"),
        **_stream,
        log_rhos=normal("T-1"),
    ),
)

_action_values: dict[str, Any] = {"logits_t": normal("T A"), "q_t": normal("T A")}

POLICIES = (
    row(
        "policy_gradient_loss",
        STREAMS,
        logits_t=normal("T A"),
        a_t=action("T"),
        adv_t=normal("T"),
        w_t=unit("T"),
    ),
    row("entropy_loss", STREAMS, logits_t=normal("T A"), w_t=unit("T")),
    row(
        "clipped_surrogate_pg_loss",
        STREAMS,
        settings={"epsilon": 0.2},
        prob_ratios_t=positive("T"),
        adv_t=normal("T"),
    ),
    row("qpg_loss", STREAMS, **_action_values),
    row("rm_loss", STREAMS, **_action_values),
    row("rpg_loss", STREAMS, **_action_values),
    row("dpg_loss", a_t=normal("A"), dqda_t=normal("A")),
    row(
        "dpg_loss",
        settings={"dqda_clipping": 1.0},
        label="clipped",
        a_t=normal("A"),
        dqda_t=normal("A"),
    ),
    row(
        "score_function_loss",
        STREAMS,
        log_prob_t=normal("T"),
        adv_t=normal("T"),
        w_t=unit("T"),
    ),
)

WHOLE_STEPS = (
    Case(
        name="q_learning",
        label="a step of training a network",
        sizes=TRAINING,
        inputs={
            "parameters": steps.parameters(),
            "observation_tm1": steps.observation(),
            "a_tm1": action(),
            **_reward,
            "observation_t": steps.observation(),
        },
        step=steps.q_learning,
    ),
)

TOPICS = {
    "arrays": ARRAYS,
    "losses": LOSSES,
    "distributions": DISTRIBUTIONS,
    "returns": RETURNS,
    "values": VALUES,
    "policies": POLICIES,
    "whole steps": WHOLE_STEPS,
}
