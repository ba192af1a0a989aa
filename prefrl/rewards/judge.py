"""A language model as a judge: it grades one answer, or says which of two is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefrl.errors import ConfigError, did_you_mean
from prefrl.rewards.base import Reward
from prefrl.rewards.endpoint import Endpoint
from prefrl.rewards.questions import COMPARE, GRADE, Question, Vote, Voter, check_template, fill
from prefrl.rewards.tournament import Match, Outcome
from prefrl.types import Rollout, Score

CRITERIA = "a better answer is more correct, more helpful and to the point."
PAIR_OPTIONS = ("A", "B", "tie")


class Judge(Reward):
    """Grades answers as a reward source, and compares them as the comparer of a `Tournament`.

    As a source the value is the expected grade, moved to [0, 1]: `(grade - low) / (high - low)`. As a comparer it is
    asked about every match twice, in both orders, and the mean of the two is its verdict: a judge that always prefers
    the first answer says 1/2. The part `order_bias` is 1 where the verdict changed with the order, so its mean is the
    share of verdicts that came from the place of an answer. A reply without a verdict in the required form is an error.

    Args:
        voter: what it thinks with; see `load` for servers and local models.
        criteria: what makes an answer good.
        template: how an answer is to be graded, with `{completion}`; and, as far as wanted, `{prompt}`, `{criteria}`,
            `{options}`, `{low}`, `{high}` and any dataset column.
        pair_template: how two are to be compared, with `{completion_a}` and `{completion_b}`.
        scale: lowest and highest grade, whole numbers.
        name: shown in metrics.

    Raises:
        ConfigError: a template lacks an answer, or the scale is none.
    """

    def __init__(
        self,
        voter: Voter,
        *,
        criteria: str = CRITERIA,
        template: str = GRADE,
        pair_template: str = COMPARE,
        scale: Sequence[int] = (1, 5),
        name: str = "judge",
    ) -> None:
        check_template(template, ["completion"], "template")
        check_template(pair_template, ["completion_a", "completion_b"], "pair_template")
        if len(scale) != 2 or not all(isinstance(end, int) for end in scale) or not scale[0] < scale[1]:
            raise ConfigError(f"judge: scale={list(scale)}; expected the lowest and the highest grade: [1, 5]")
        self.voter, self.criteria, self.name = voter, criteria, name
        self.template, self.pair_template = template, pair_template
        self.scale = (scale[0], scale[1])

    @classmethod
    def load(
        cls,
        model: str,
        *,
        url: str = "",
        criteria: str = CRITERIA,
        template: str = GRADE,
        pair_template: str = COMPARE,
        scale: Sequence[int] = (1, 5),
        **options: Any,
    ) -> Judge:
        """A judge of a model behind an OpenAI-compatible `url`, or, without one, of a local model.

        Args:
            model: the name that the server knows, or a folder, a hub id, or smollm2-135m.
            url: base of the API, such as http://localhost:8000/v1.
            options: those of `Endpoint` (api_key_env, timeout, retries, concurrency, max_tokens, cache, extra) or,
                for a local model, of `LocalVoter` (max_tokens, token_budget) and device.

        Raises:
            ConfigError: an unknown or wrong option, or no key in the environment variable that was named.
            ModelError: the local model cannot be loaded.
        """
        voter = voter_of(model, url, options)
        return cls(voter, criteria=criteria, template=template, pair_template=pair_template, scale=scale)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One expected grade per rollout."""
        low, high = self.scale
        grades = range(low, high + 1)
        settings = {"criteria": self.criteria, "low": str(low), "high": str(high)}
        questions = [
            _question(self.template, r, {"completion": r.text}, tuple(map(str, grades)), settings) for r in rollouts
        ]
        return [self._grade(vote, grades) for vote in self.voter.vote(questions)]

    def _grade(self, vote: Vote, grades: Sequence[int]) -> Score:
        if vote.error is not None:
            return Score.failed(vote.error)
        grade = sum(p * g for p, g in zip(vote.probabilities, grades, strict=True))
        return Score(value=(grade - grades[0]) / (grades[-1] - grades[0]), parts={"grade": grade})

    def compare(self, matches: Sequence[Match]) -> list[Outcome]:
        """One outcome per match, of both orders; an error in either order is an error of the match."""
        questions = [q for m in matches for q in (self._pair(m.first, m.second), self._pair(m.second, m.first))]
        votes = self.voter.vote(questions)
        return [_both(*pair) for pair in zip(votes[::2], votes[1::2], strict=True)]

    def _pair(self, shown_first: Rollout, shown_second: Rollout) -> Question:
        answers = {"completion_a": shown_first.text, "completion_b": shown_second.text}
        return _question(self.pair_template, shown_first, answers, PAIR_OPTIONS, {"criteria": self.criteria})


def voter_of(model: str, url: str, options: Mapping[str, Any]) -> Voter:
    """What a judge thinks with: a model behind an `url`, or, without one, a local model; see `Judge.load`."""
    return _server(url, model, options) if url else _local(model, options)


def _server(url: str, model: str, options: Mapping[str, Any]) -> Voter:
    known = ("api_key_env", "timeout", "retries", "concurrency", "max_tokens", "cache", "extra", "backoff")
    _refuse_unknown(options, known)
    return Endpoint(url=url, model=model, **options)


def _local(model: str, options: Mapping[str, Any]) -> Voter:
    from prefrl.model.load import load
    from prefrl.rewards.local_voter import LocalVoter

    _refuse_unknown(options, ("device", "max_tokens", "token_budget"))
    own = {name: value for name, value in options.items() if name != "device"}
    return LocalVoter(load(model, device=options.get("device", "auto")), **own)


def _refuse_unknown(options: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in options:
        if name not in known:
            raise ConfigError(
                f"judge has no option {name!r} here; valid: {', '.join(known)}.{did_you_mean(name, known)}"
            )


def _question(
    template: str,
    rollout: Rollout,
    answers: Mapping[str, str],
    options: tuple[str, ...],
    settings: Mapping[str, str],
) -> Question:
    return Question(fill(template, rollout.prompt, answers, {**settings, "options": ", ".join(options)}), options)


def _both(forward: Vote, backward: Vote) -> Outcome:
    """The mean of a match and of the same match the other way round."""
    error = forward.error or backward.error
    if error is not None:
        return Outcome(error=error)
    one, other = _first_wins(forward), 1.0 - _first_wins(backward)
    changed = _sign(one - 0.5) != _sign(other - 0.5)
    return Outcome(probability=(one + other) / 2, parts={"order_bias": float(changed)})


def _sign(x: float) -> int:
    return (x > 0) - (x < 0)


def _first_wins(vote: Vote) -> float:
    """Probability that the answer shown first is the better one, a tie counting half."""
    first, _, tie = vote.probabilities
    return first + tie / 2
