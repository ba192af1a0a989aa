"""Rewards for text that learn from demonstrations, from settings: `{kind: text_airl, demonstrations: demos.jsonl}`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from prefrl.errors import ConfigError, did_you_mean
from prefrl.rewards.inverse.discriminator import Fit
from prefrl.rewards.inverse.forms import Form, Pay
from prefrl.rewards.inverse.text import Demonstration, TextInverse, TextNetSpec
from prefrl.rewards.inverse.text_losses import Method

NET = {f.name for f in fields(TextNetSpec)}
FIT = {f.name for f in fields(Fit)} - {"bootstrap"}
OWN = {"seed", "name"}

Given = str | Sequence[Demonstration]


def text_airl(demonstrations: Given, beta: float = 0.1, pay: Pay = "kl", **settings: Any) -> TextInverse:
    """AIRL on completions; `settings` are those of `TextNetSpec` and `Fit`, `seed` and `name`."""
    return learnt("airl", demonstrations, {"beta": beta, "pay": pay}, settings)


def text_gcl(demonstrations: Given, beta: float = 0.1, pay: Pay = "kl", **settings: Any) -> TextInverse:
    """Guided cost learning on completions; `settings` as for `text_airl`."""
    return learnt("gcl", demonstrations, {"beta": beta, "pay": pay}, settings)


def text_gail(demonstrations: Given, form: Form = "logit", **settings: Any) -> TextInverse:
    """GAIL on completions; `settings` as for `text_airl`."""
    return learnt("gail", demonstrations, {"form": form}, settings)


def learnt(method: Method, demonstrations: Given, how: dict[str, Any], settings: dict[str, Any]) -> TextInverse:
    """A reward that learns by a method.

    Args:
        method: airl, gcl or gail.
        demonstrations: prompts and completions, or the file or hub id that has them.
        how: arguments of `TextInverse` of that method.
        settings: of the net, the fit and `TextInverse`, by name.

    Raises:
        ConfigError: an unknown setting.
        DataError: the demonstrations cannot be read.
    """
    known = sorted(NET | FIT | OWN)
    for name in settings:
        if name not in known:
            raise ConfigError(
                f"reward kind 'text_{method}' has no setting {name!r}; valid: {', '.join(known)}."
                f"{did_you_mean(name, known)}"
            )
    net: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in settings.items() if n in NET}
    return TextInverse(
        _read(demonstrations),
        method=method,
        net=TextNetSpec(**net),
        fit=Fit(**{name: v for name, v in settings.items() if name in FIT}),
        **how,
        **{name: v for name, v in settings.items() if name in OWN},
    )


def _read(demonstrations: Given) -> Sequence[Demonstration]:
    if not isinstance(demonstrations, str):
        return demonstrations
    from prefrl.data.formats import to_completions
    from prefrl.data.tables import load_table

    return to_completions(load_table(demonstrations)).items
