"""A plain Python function as a reward source: arguments by name, sync or async, one completion or a batch."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from prefrl.errors import ConfigError, RewardError, did_you_mean
from prefrl.rewards.base import Reward
from prefrl.rewards.calls import Call, run_calls
from prefrl.types import Rollout, Score

# Argument names of a function called once per completion, and of one called with the whole batch (TRL's
# names, and `rollouts`). Every other name is a dataset column. The ids belong to both.
ONE: dict[str, Callable[[Rollout], Any]] = {
    "prompt": lambda rollout: rollout.prompt.content,
    "completion": lambda rollout: rollout.completion,
    "text": lambda rollout: rollout.text,
    "rollout": lambda rollout: rollout,
    "stop": lambda rollout: rollout.stop,
    "prompt_ids": lambda rollout: list(rollout.prompt_ids),
    "completion_ids": lambda rollout: list(rollout.completion_ids),
}
LISTS: dict[str, Callable[[Rollout], Any]] = {
    "prompts": ONE["prompt"],
    "completions": ONE["completion"],
    "completion_ids": ONE["completion_ids"],
}
BATCH = {*LISTS, "prompt_ids", "rollouts", "trainer_state", "log_extra", "log_metric"}
SHARED = {"prompt_ids", "completion_ids"}

_lambdas = itertools.count(1)


def function(
    fn: Callable[..., Any], *, name: str | None = None, timeout: float | None = 30.0, workers: int = 8
) -> FunctionReward:
    """Make a reward source of a function; usable as a decorator.

    Args:
        fn: takes any of `prompt, completion, text, prompt_ids, completion_ids, stop, rollout` and dataset
            columns, and returns a number, a bool, a Score, a dict of parts with the key `reward`, or None
            (not scored). Or it takes `rollouts`, or TRL's `prompts, completions, ..., **kwargs`, and
            returns a list. May be `async def`.
        name: shown in metrics and errors; the function's own name by default.
        timeout: seconds per call, None for no limit.
        workers: threads for plain functions of one completion; 1 for code that is not thread-safe.

    Raises:
        RewardError: the signature cannot be served.
        ConfigError: `timeout` or `workers` is not positive.
    """
    return FunctionReward(fn, name=name, timeout=timeout, workers=workers)


class FunctionReward(Reward):
    """The source that `function` makes.

    Attributes:
        extra: what the function passed to `log_extra` for the latest batch, by column.
        metrics: what it passed to `log_metric`, by name; the means also become parts of the scores.
    """

    def __init__(self, fn: Callable[..., Any], *, name: str | None, timeout: float | None, workers: int) -> None:
        if isinstance(fn, type) or not callable(fn):
            raise RewardError(f"got {fn!r}; expected a function")
        if workers < 1 or (timeout is not None and not timeout > 0):
            raise ConfigError(f"timeout={timeout}, workers={workers}: both must be positive (timeout may be None)")
        self.fn, self.timeout, self.workers = fn, timeout, workers
        self.name = name or _name_of(fn)
        self.is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
        self.signature = _signature_of(fn, self.name)
        kinds = {p.name: p for p in self.signature.parameters.values()}
        self.rest = next((n for n, p in kinds.items() if p.kind is p.VAR_KEYWORD), None)
        self.parameters = {n: p for n, p in kinds.items() if n != self.rest}
        self.batch = _is_batch(set(self.parameters), self.rest is not None, self.name)
        self.extra: dict[str, list[Any]] = {}
        self.metrics: dict[str, list[float]] = {}

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Raises RewardError when a column is missing, before any call is made."""
        self._check_columns(rollouts)
        if self.batch:
            return self._score_batch(rollouts)
        calls = [self._bound(self._one(rollout)) for rollout in rollouts]
        outcomes = run_calls(calls, timeout=self.timeout, workers=self.workers, is_async=self.is_async)
        return [Score.failed(o.error) if o.error is not None else as_score(o.value) for o in outcomes]

    def _score_batch(self, rollouts: Sequence[Rollout]) -> list[Score]:
        call = self._bound(self._all(rollouts))
        outcome = run_calls([call], timeout=self.timeout, workers=1, is_async=self.is_async)[0]
        if isinstance(outcome.raised, Exception):
            raise outcome.raised  # with its traceback: it concerns the whole batch
        if outcome.error is not None:
            return [Score.failed(outcome.error)] * len(rollouts)
        values = outcome.value.tolist() if hasattr(outcome.value, "tolist") else outcome.value
        if not isinstance(values, list | tuple) or len(values) != len(rollouts):
            got = f"{len(values)} values" if isinstance(values, list | tuple) else repr(values)
            raise RewardError(
                f"reward function {self.name!r} returned {got} for {len(rollouts)} completions; expected a "
                f"list with one number (or None) per completion"
            )
        means = {name: sum(logged) / len(logged) for name, logged in self.metrics.items()}
        scores = [as_score(value) for value in values]
        return [replace(s, parts={**means, **s.parts}) if s.ok else s for s in scores] if means else scores

    def _one(self, rollout: Rollout) -> dict[str, Any]:
        return {**rollout.prompt.columns, **{name: value(rollout) for name, value in ONE.items()}}

    def _all(self, rollouts: Sequence[Rollout]) -> dict[str, Any]:
        """Every dataset column as a list (None where a row lacks it), then TRL's own arguments."""
        names = dict.fromkeys(name for rollout in rollouts for name in rollout.prompt.columns)
        values: dict[str, Any] = {n: [r.prompt.columns.get(n) for r in rollouts] for n in names}
        values |= {name: [value(rollout) for rollout in rollouts] for name, value in LISTS.items()}
        extra: dict[str, list[Any]] = defaultdict(list)
        metrics: dict[str, list[float]] = defaultdict(list)
        self.extra, self.metrics = extra, metrics
        values["log_extra"] = lambda column, values: extra[column].extend(values)
        values["log_metric"] = lambda name, value: metrics[name].append(float(value))
        values["trainer_state"] = SimpleNamespace(global_step=max((r.version for r in rollouts), default=0))
        if "rollouts" in self.parameters:
            values["rollouts"] = list(rollouts)
        if "prompt_ids" in self.parameters:
            values["prompt_ids"] = [list(rollout.prompt_ids) for rollout in rollouts]
        return values

    def _bound(self, values: Mapping[str, Any]) -> Call:
        arguments = {name: values[name] for name in self.parameters if name in values}
        if self.rest is not None:
            arguments[self.rest] = {n: v for n, v in values.items() if n not in self.parameters}
        bound = inspect.BoundArguments(self.signature, arguments)
        return functools.partial(self.fn, *bound.args, **bound.kwargs)

    def _check_columns(self, rollouts: Sequence[Rollout]) -> None:
        own = BATCH if self.batch else set(ONE)
        for name, parameter in self.parameters.items():
            missing = [r for r in rollouts if name not in r.prompt.columns] if name not in own else []
            optional = parameter.default is not parameter.empty
            if optional and (not self.batch or len(missing) == len(rollouts)):
                continue  # the default is used
            if missing:
                raise self._no_column(name, missing, len(rollouts), own)

    def _no_column(self, name: str, missing: Sequence[Rollout], of: int, own: set[str]) -> RewardError:
        first = missing[0].prompt
        columns = list(first.columns)
        where = "" if len(missing) == of else f" in {len(missing)} of {of} rows (first: {first.id!r})"
        return RewardError(
            f"reward function {self.name!r} asks for {name!r}, which is not a dataset column{where}. "
            f"Columns: {', '.join(columns) or 'none'}. Other arguments it can ask for: "
            f"{', '.join(sorted(own))}.{did_you_mean(name, [*columns, *own])}"
        )


def as_score(value: Any) -> Score:
    """What a reward function returned as a Score; something unusable becomes a failed one."""
    if isinstance(value, Score):
        return value
    parts: dict[str, float] = {}
    if isinstance(value, Mapping):
        keys = [key for key in ("reward", "value") if key in value]
        if len(keys) != 1:
            return Score.failed(f"the function returned a dict with keys {list(value)}; expected one key 'reward'")
        for part in value.keys() - keys:
            number = _number(value[part])
            if number is None:
                return Score.failed(f"the part {part!r} is {value[part]!r}; expected a number")
            parts[str(part)] = number
        value = value[keys[0]]
    if value is None:
        return Score.failed("the function returned None (not scored)")
    reward = _number(value)
    if reward is None:
        return Score.failed(
            f"the function returned {value!r} ({type(value).__name__}); expected a number, a bool, None, "
            f"a Score, or a dict of parts with the key 'reward'"
        )
    return Score(value=reward, parts=parts)


def _number(value: Any) -> float | None:
    """A float of numbers, bools and one-element tensors; None for anything else."""
    if not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def _name_of(fn: Callable[..., Any]) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = str(getattr(fn, "__name__", type(fn).__name__))
    return f"lambda_{next(_lambdas)}" if name == "<lambda>" else name


def _signature_of(fn: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise RewardError(
            f"the arguments of reward function {name!r} cannot be read; wrap it: lambda text: {name}(text)"
        ) from error
    if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()) or not signature.parameters:
        raise RewardError(
            f"reward function {name!r} has the signature {signature}; expected named arguments, any of: "
            f"{', '.join(ONE)}, or dataset columns"
        )
    return signature


def _is_batch(names: set[str], has_rest: bool, name: str) -> bool:
    """True for a function of the whole batch: it has a batch name, or TRL's mandatory **kwargs alone."""
    one, batch = names & ({"prompt", "completion", "rollout"}), names & (BATCH - SHARED)
    if one and batch:
        raise RewardError(
            f"reward function {name!r} mixes {sorted(one)[0]!r} (one completion) with {sorted(batch)[0]!r} "
            f"(the whole batch); use names of one kind: {', '.join(ONE)}; or {', '.join(sorted(BATCH))}"
        )
    return bool(batch) or (has_rest and not names & (ONE.keys() - SHARED))
