"""Rewards for text that are learnt from demonstrations while the policy learns from them: AIRL, GCL and GAIL."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.base import Reward
from prefrl.rewards.inverse.discriminator import Fit
from prefrl.rewards.inverse.forms import Form, LogPi, Pay, check_form, paid
from prefrl.rewards.inverse.text_demonstrations import Demonstrations
from prefrl.rewards.inverse.text_learner import Example, Group, Learner, counted
from prefrl.rewards.inverse.text_losses import Method
from prefrl.rewards.inverse.text_nets import (
    Level,
    TextBody,
    TextModel,
    TextNet,
    base_name,
    check_tokenizer,
    own_body,
    shared_body,
)
from prefrl.rewards.inverse.text_reward import TextReward, row_of, text_row
from prefrl.types import Completion, Prompt, Rollout, Row, Score

if TYPE_CHECKING:
    from prefrl.model.engine import Engine

Demonstration = tuple[Prompt, Completion]
Offset = Literal["learned", "estimated"]
MEASURED = 64  # demonstrations whose hidden states give mean and spread of all


@dataclass(frozen=True, slots=True, kw_only=True)
class TextNetSpec:
    """The net of a reward for text.

    level   one reward a completion, or one a token
    hidden  units of the hidden layers of its heads; none is a linear map
    gamma   discount of the potential h at the level of a token
    base    the model below the heads; empty takes what is below the policy's adapter, or the policy as it was loaded
    layers  hidden layers kept of it, in a copy of its own; 0 for all
    lora    rank of an adapter on a copy of its own, trained with the heads; 0 leaves the body frozen
    dense   at the level of a token, pay every token its own f instead of their sum at the end
    offset  c(x) of AIRL: a head on the prompt's state, or `estimated` on the prompt's samples (level sequence)
    """

    level: Level = "sequence"
    hidden: tuple[int, ...] = ()
    gamma: float = 1.0
    base: str = ""
    layers: int = 0
    lora: int = 0
    dense: bool = False
    offset: Offset = "learned"

    def __post_init__(self) -> None:
        if self.offset == "estimated" and self.level == "token":
            raise ConfigError(
                "offset is 'estimated', which is that of whole completions, but level is 'token'. Set offset to "
                "'learned', or level to 'sequence'."
            )
        if self.dense and self.level == "sequence":
            raise ConfigError(
                "dense is true, but a completion has one reward. Set level to 'token', or dense to false."
            )


@dataclass(frozen=True, slots=True)
class _Attached:
    """What there is once the policy is known."""

    engine: Engine
    model: TextModel
    learner: Learner
    demos: Demonstrations


class TextInverse(Reward):
    """A reward that is learnt from demonstrations between updates of the policy, and pays it meanwhile.

    airl  log D / (1 - D) = u - (log pi - log ref) - c(x); pays beta u (at the level of a token beta f)
    gcl   p(y | x) = ref(y | x) exp(u) / Z(x) by maximum likelihood, Z from weighted samples; pays beta u
    gail  log D / (1 - D) = u; pays that in a `form`, and leaves no reward behind

    beta is the coefficient of the KL to the reference that the policy is optimized with. That term is paid once: by
    the optimizer (`pay` kl) or here (`pay` reward: less beta (log pi - log ref)), as `log_pi` says; gail has none.

    Args:
        demonstrations: prompts with the completions to imitate.
        method: airl, gcl or gail.
        beta: the KL coefficient.
        pay: who pays the KL.
        form: of gail: logit, log_d or neg_log_one_minus_d; the last two have a taste in length at the level of a token.
        net: of the reward.
        fit: how it is improved every round.
        body: a body of one's own in place of the one that `net` names.
        seed: of heads, adapter and the choice of prompts.
        name: shown in metrics.

    Raises:
        ConfigError: no demonstrations, an unknown choice, or beta out of range.
    """

    def __init__(
        self,
        demonstrations: Sequence[Demonstration],
        *,
        method: Method = "airl",
        beta: float = 0.1,
        pay: Pay = "kl",
        form: Form = "logit",
        net: TextNetSpec | None = None,
        fit: Fit | None = None,
        body: TextBody | None = None,
        seed: int = 0,
        name: str = "",
    ) -> None:
        check_form(form)
        log_pi = LogPi(beta=beta, pay=pay)
        check_pay(pay)
        if not demonstrations:
            raise ConfigError(f"text_{method} has no demonstrations to learn from; expected one at least.")
        self.demonstrations = list(demonstrations)
        self.method: Method = method
        self.log_pi = None if method == "gail" else log_pi
        self.form: Form = form
        self.net = net or TextNetSpec()
        self.fit = fit or Fit()
        self.seed = seed
        self.name = name or f"text_{method}"
        self._body = body
        self._attached: _Attached | None = None

    @property
    def model(self) -> TextModel:
        """Heads and body; there once a policy is attached."""
        return self._here().model

    @property
    def learner(self) -> Learner:
        """What improves them."""
        return self._here().learner

    def attach(self, engine: Engine) -> None:
        """Take the policy's tokenizer and, where it has an adapter, the frozen base below it.

        Raises:
            ConfigError: the engine keeps no reference, which the log-ratio needs.
            ModelError: the reward's body reads other tokens than the policy writes.
        """
        if self._attached is not None and self._attached.engine is engine:
            return
        if self.log_pi is not None and not engine.has_reference:
            raise ConfigError(
                f"{self.name} compares the policy with its reference, and this run keeps none. Set algorithm.kl.coef "
                f"to beta ({self.log_pi.beta}) and pay to 'kl', or make the engine with reference=True."
            )
        policy: Any = engine.actor
        body = self._body or self._made_body(policy)
        check_tokenizer(body, policy.tokenizer, policy.name)
        spec = self.net
        net = TextNet(body.size, level=spec.level, hidden=spec.hidden, gamma=spec.gamma, seed=self.seed)
        net.to(next(policy.module.parameters()).device)
        model = TextModel(net=net, body=body, token_budget=engine.optim.token_budget)
        learner = Learner(model, self.method, self.fit, estimate=spec.offset == "estimated", seed=self.seed)
        rows = [(text_row(body, prompt, answer), answer.finished) for prompt, answer in self.demonstrations]
        demos = Demonstrations(engine, model, rows, compared=self.log_pi is not None)
        net.fit(body.states(demos.some(MEASURED), model.token_budget))
        self._attached = _Attached(engine, model, learner, demos)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """What each rollout is paid, with log pi or without as `pay` says."""
        rows = self._rows(rollouts)
        here = self._here()
        fresh = {rollout.prompt_ids for rollout in rollouts if rollout.version == here.engine.version}
        here.demos.look(fresh, here.engine.version)
        plain, shaped = self.model.rewards(rows, [rollout.terminated for rollout in rollouts])
        if self.log_pi is None:
            return [self._score(paid(u, self.form)) for u in plain]
        learnt = [self.log_pi.beta * u.double() for u in (shaped if self.net.level == "token" else plain)]
        if self.log_pi.pay == "kl":
            return [self._score(values) for values in learnt]
        scores = []
        for values, ratio in zip(learnt, self._log_ratios(rollouts, rows), strict=True):
            left = self.log_pi.paid(values, ratio if self.net.level == "token" else ratio.sum()[None])
            parts = {"learnt": float(values.sum()), "log_pi": float((left - values).sum())}
            scores.append(self._score(left, parts))
        return scores

    def update(
        self, rollouts: Sequence[Rollout], scores: Sequence[Score] | None = None, demonstrations: Any = None
    ) -> dict[str, float]:
        """Improve the reward a little on the policy's samples and the demonstrations of the same prompts.

        Prompts without a demonstration teach nothing and are counted in `unmatched`, empty samples in `empty`. The
        log-probs of samples are those they were drawn with. Those of the demonstrations are taken under the same
        policy: when the samples are scored, or now, where it has not learnt from them yet.

        Raises:
            RewardError: no prompt has a demonstration, or the loss is not finite.
        """
        groups, figures = self._groups(rollouts)
        if not groups:
            raise RewardError(
                f"None of the {len(rollouts)} rollouts has a prompt with a demonstration; {self.name} learns from "
                "samples and demonstrations of the same prompts. Train on the prompts of the demonstrations."
            )
        found = self.learner.learn(groups) | figures
        return {f"irl/{name}": value for name, value in found.items()}

    def export(self) -> TextReward:
        """What can be used elsewhere: beta u alone, as it is now.

        A trained body goes on with the training; save the export to keep it.

        Raises:
            RewardError: gail leaves no reward.
        """
        if self.log_pi is None:
            raise RewardError(
                f"{self.name} tells demonstrations from one policy's samples; at its end it says the same of all, so "
                "that there is no reward to keep. Use method airl or gcl."
            )
        model = self.model
        kept = TextModel(net=copy.deepcopy(model.net), body=model.body, token_budget=model.token_budget)
        made = TextReward(kept, beta=self.log_pi.beta, method=self.method)
        made.attach(self._here().engine)
        return made

    def state_dict(self) -> dict[str, Any]:
        """All that the next round depends on; empty before a policy is attached."""
        here = self._attached
        return {} if here is None else {"learner": here.learner.state_dict(), "demos": here.demos.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`, once a policy is attached."""
        here = self._here()
        here.learner.load_state_dict(state["learner"])
        here.demos.load_state_dict(state["demos"])

    def _here(self) -> _Attached:
        if self._attached is None:
            raise RewardError(
                f"{self.name} learns beside a policy, and none is attached: use it in prefrl irl or prefrl rl. To "
                "score texts with a reward that was learnt, use the kind text_reward with the folder of its run."
            )
        return self._attached

    def _made_body(self, policy: Any) -> TextBody:
        spec = self.net
        adapted = bool(getattr(policy.model, "peft_config", {}))
        if adapted and not (spec.base or spec.layers or spec.lora):
            return shared_body(policy)
        device = str(next(policy.module.parameters()).device)
        return own_body(
            spec.base or base_name(policy), lora=spec.lora, layers=spec.layers, device=device, seed=self.seed
        )

    def _rows(self, rollouts: Sequence[Rollout]) -> list[Row]:
        told = next((rollout for rollout in rollouts if not all(rollout.mask)), None)
        if told is not None:
            raise ConfigError(
                f"The rollout of prompt {told.prompt.id!r} has words of an environment in it; {self.name} reads single "
                "answers. Leave environment empty."
            )
        return [row_of(rollout.prompt_ids, rollout.completion_ids) for rollout in rollouts]

    def _score(self, values: Tensor, parts: Mapping[str, float] | None = None) -> Score:
        if self.net.dense:
            return Score(steps=tuple(enumerate(values.tolist())), parts=parts or {})
        return Score(value=float(values.sum()), parts=parts or {})

    def _log_ratios(self, rollouts: Sequence[Rollout], rows: Sequence[Row]) -> list[Tensor]:
        """(n,) log pi - log ref of every rollout, log pi as it was sampled."""
        if self.log_pi is None:
            return [torch.zeros(len(row.mask)) for row in rows]
        reference = self._here().engine.logps(rows, "reference")
        return [torch.tensor(r.logps) - ref for r, ref in zip(rollouts, reference, strict=True)]

    def _groups(self, rollouts: Sequence[Rollout]) -> tuple[list[Group], dict[str, float]]:
        """Samples and demonstrations of every prompt that has both, and how many samples were left out."""
        here = self._here()
        kept = [r for r in rollouts if r.prompt_ids in here.demos and r.completion_ids]
        rows = self._rows(kept)
        if kept:
            here.demos.look({row.prompt_ids for row in rows}, kept[0].version)
        samples: dict[tuple[int, ...], list[Example]] = {}
        for rollout, row, ratio in zip(kept, rows, self._log_ratios(kept, rows), strict=True):
            example = Example(row=row, expert=False, terminated=rollout.terminated, log_ratio=ratio)
            samples.setdefault(row.prompt_ids, []).append(example)
        groups = [[*here.demos.of(ids), *self._with_features(counted(found))] for ids, found in samples.items()]
        empty = sum(not r.completion_ids for r in rollouts)
        return groups, {"unmatched": float(len(rollouts) - len(kept) - empty), "empty": float(empty)}

    def _with_features(self, examples: list[Example]) -> list[Example]:
        """What a frozen body says of samples; one that learns is asked anew in every update."""
        model = self.model
        if model.body.trained:
            return examples
        features = model.features([example.row for example in examples])
        return [replace(example, features=seen) for example, seen in zip(examples, features, strict=True)]


def check_pay(pay: Pay) -> None:
    """Refuse an entropy bonus as what pays log pi: the log-ratio of texts is one to the reference."""
    if pay == "entropy":
        raise ConfigError(
            "pay is 'entropy', but the log-ratio of texts is one to the reference. Set pay to 'kl' or 'reward'."
        )
