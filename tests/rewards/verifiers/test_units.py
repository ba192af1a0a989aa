from __future__ import annotations

import itertools
import string
import time

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
        ("3 x 10^8 m/s", [(3e8, "m/s")]),
        ("10⁻³ s", [(1e-3, "s")]),
        ("1 1/2 miles", [(1.5, "miles")]),
        ("5 in total", [(5, "")]),
        ("12 in long", [(12, "in")]),
        ("5 a day", [(5, "")]),
        ("5\nA student", [(5, "")]),
        ("m^2 and s^-1", []),
        ("3-4 km", [(3, ""), (4, "km")]),
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
        ("5 km", "", 0.0),
        ("5 km", "**5** Km", 1.0),
        ("5 km", r"\boxed{5\,\mathrm{km}}", 1.0),
        ("5 km", "$5$\u202fkm", 1.0),
        ("5 km", "5-km", 1.0),
        ("5 km", "-5 km", 0.0),
        ("5 km", "5 km/h", 0.0),
        ("5 W", "5 mW", 0.0),
        (r"5 \text{ km}", "5 km", 1.0),
        ("1500 m", "1\u00a0500 m", 1.0),
        ("9.8 m/s^2", "9.8 m s⁻²", 1.0),
        ("9.8 m/s^2", "9.8 m·s^-2", 1.0),
        ("9.8 m/s^2", "9.8 meters per second squared", 1.0),
        ("9.8 m/s^2", r"9.8 \frac{m}{s^2}", 1.0),
        ("9.8 m/s^2", "9.8 m/s", 0.0),
        ("10 J/(kg K)", "10 J kg^-1 K^-1", 1.0),
        ("10 J/(kg K)", "10 J", 0.0),  # the whole of the gold unit counts
        ("50 N m", "50 Nm", 1.0),
        ("50 N m", "50 J", 1.0),
        ("60 mph", "60 miles per hour", 1.0),
        ("100 km/h", "100 kmh", 1.0),
        ("440 Hz", "440 1/s", 1.0),
        ("6.02e23 1/mol", "6.02 \u00d7 10²³ per mol", 1.0),
        ("20 degC", "20 ℃", 1.0),
        ("20 degC", "20 degrees Celsius", 1.0),
        ("20 degC", r"20^\circ \text{C}", 1.0),
        ("20 degC", "293.15 \u212a", 1.0),
        ("20 degC", "20 K", 0.0),
        ("0 degC", "32 °F", 1.0),  # equal but for rounding
        ("0 degC", "0 °F", 0.0),
        ("0 m", "1e-15 m", 0.0),
        ("1e-15 m", "2e-15 m", 0.0),
        ("-40 degC", "\u221240 °F", 1.0),
        ("90 degree", r"90^\circ", 1.0),
        ("90 degree", "1.5708 rad", 1.0),
        ("50 %", r"50\%", 1.0),
        ("5 ohm", "5 \u2126", 1.0),
        ("5 um", "5 \u00b5m", 1.0),
        ("5 A", "5 amps", 1.0),
        ("10 m^2", "10 square meters", 1.0),
        ("10 m^2", "10 m2", 1.0),
        ("2 tonne", "2 metric tons", 1.0),
    ],
)
def test_quantities_are_compared_in_any_unit(rollout, gold, text, value):
    assert units().score([rollout(text, answer=gold)])[0].value == value


def test_tolerance_bare_numbers_and_wrong_golds(rollout):
    assert units(rel_tol=0.1).score([rollout("5.4 km", answer="5 km")])[0].value == 1.0
    assert units(abs_tol=0.5, rel_tol=0).score([rollout("5.6 km", answer="5 km")])[0].value == 0.0
    assert units(bare=True).score([rollout("5", answer="5 km")])[0].value == 1.0
    for gold in ("5", "5 apples", "5 km or 6 km", "5 km of road", "far"):
        (failed,) = units().score([rollout("5", answer=gold)])
        assert failed.error == f"the column 'answer' is {gold!r}; expected one number with a unit: 9.8 m/s^2"
    with pytest.raises(ConfigError, match="expected numbers >= 0"):
        units(rel_tol=-1)


def test_no_text_takes_long(rollout):
    words = ["".join(pair) for pair in itertools.product(string.ascii_lowercase, repeat=4)]
    texts = [
        "1" * 300_000,
        "1 " * 100_000,
        "1/(" * 90_000,
        r"\frac{" * 50_000,
        "1 m/" + "m/" * 100_000,
        "5 " + "k" * 300_000,
    ]
    texts += ["1,234" * 50_000, "1 " + "m(" * 100_000, " ".join(f"1 {word}" for word in words[:40_000])]
    for text in texts:
        start = time.thread_time()  # other tests leave threads that work
        assert units().score([rollout(text, answer="5 km")])[0].value == 0.0
        assert time.thread_time() - start < 5.0, text[:20]  # half a second on an idle machine
