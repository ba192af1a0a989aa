from __future__ import annotations

import pytest

from prefrl.errors import ConfigError
from prefrl.rewards.verifiers.units import Quantity, quantities, units


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("5 km in 2 hours", [(5, "km"), (2, "hours")]),
        ("72 km/h in total", [(72, "km/h")]),
        ("about 9.8 m/s^2.", [(9.8, "m/s^2")]),
        ("10 m per second", [(10, "m per second")]),
        ("1,500 g and 1/2 mile", [(1500, "g"), (0.5, "mile")]),
        ("12 in", [(12, "in")]),
        ("3 apples", [(3, "")]),
        ("-4 degC", [(-4, "degC")]),
        ("no number", []),
        ("9**9**9 m", [(9, ""), (9, ""), (9, "m")]),  # a tower of powers is never computed
    ],
)
def test_quantities(text, found):
    assert quantities(text) == [Quantity(*one) for one in found]


@pytest.mark.parametrize(
    ("gold", "text", "value"),
    [
        ("5 km", "The way is 5,000 m long.", 1.0),
        ("20 m/s", "72 km/h", 1.0),
        ("20 m/s", "72 m/s", 0.0),
        ("20 degC", "68 °F", 1.0),
        ("20 degC", "20 °F", 0.0),
        ("5 km", "5 s", 0.0),
        ("5 km", "5", 0.0),
        ("90 minute", "1.5 h", 1.0),
        ("50 %", "50%", 1.0),
        ("2 l", "2000 cm^3", 1.0),
        ("5 km", "first 5 km, then 7 km", 0.0),
        ("5 km", "far", 0.0),
    ],
)
def test_quantities_are_compared_in_any_unit(rollout, gold, text, value):
    assert units().score([rollout(text, answer=gold)])[0].value == value


def test_tolerance_bare_numbers_and_wrong_golds(rollout):
    assert units(rel_tol=0.1).score([rollout("5.4 km", answer="5 km")])[0].value == 1.0
    assert units(abs_tol=0.5, rel_tol=0).score([rollout("5.6 km", answer="5 km")])[0].value == 0.0
    assert units(bare=True).score([rollout("5", answer="5 km")])[0].value == 1.0
    (failed,) = units().score([rollout("5", answer="5")])
    assert failed.error == "the column 'answer' is '5'; expected one number with a unit: 9.8 m/s^2"
    with pytest.raises(ConfigError, match="expected numbers >= 0"):
        units(rel_tol=-1)
