from __future__ import annotations

import asyncio
import functools
import math
import threading
from dataclasses import replace
from time import monotonic, sleep

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards import checked_scores, function
from prefrl.types import Score, StopReason


def values(scores):
    return [score.value for score in scores]


# --- one completion at a time -------------------------------------------------------------------------


def test_arguments_come_by_name(rollout):
    seen = {}

    def fn(prompt, completion, text, prompt_ids, completion_ids, stop, rollout, answer, *, level):
        seen.update(locals())
        return 1.0

    one = rollout("hi", question="say hi", answer=42, level="easy", unused=0)
    assert values(function(fn).score([one])) == [1.0]
    assert seen == {
        "seen": seen,
        "prompt": "say hi",
        "completion": "hi",
        "text": "hi",
        "prompt_ids": [7, 8],
        "completion_ids": [0, 1, 2],
        "stop": StopReason.EOS,
        "rollout": one,
        "answer": 42,
        "level": "easy",
    }


def test_a_chat_prompt_arrives_as_messages(rollout):
    one = rollout("hello", messages=[{"role": "user", "content": "hi"}])
    got = []
    function(lambda prompt, completion, text: got.append((prompt, completion, text)) or 0.0).score([one])
    assert got == [([{"role": "user", "content": "hi"}], [{"role": "assistant", "content": "hello"}], "hello")]


def test_keyword_arguments_collect_every_column_and_name(rollout):
    got = []
    function(lambda text, **rest: got.append(rest) or 0.0).score([rollout("a", answer=1)])
    assert sorted(got[0]) == [
        "answer", "completion", "completion_ids", "prompt", "prompt_ids", "rollout", "stop",
    ]  # fmt: skip


def test_positional_only_arguments_and_defaults(rollout):
    def fn(text, /, answer, scale=10.0):
        return scale * (text == answer)

    assert values(function(fn).score([rollout("a", answer="a"), rollout("a", answer="a", scale=2.0)])) == [
        10,
        2,
    ]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (0.25, Score(value=0.25)),
        (3, Score(value=3.0)),
        (True, Score(value=1.0)),
        (False, Score(value=0.0)),
        (Score(value=1.0, steps=((0, 2.0),)), Score(value=1.0, steps=((0, 2.0),))),
        ({"reward": 2, "format": True}, Score(value=2.0, parts={"format": 1.0})),
        ({"value": 0.5}, Score(value=0.5)),
        (None, Score.failed("the function returned None (not scored)")),
        ({"reward": None}, Score.failed("the function returned None (not scored)")),
        (
            {"score": 1.0},
            Score.failed("the function returned a dict with keys ['score']; expected one key 'reward'"),
        ),
        ({"reward": 1.0, "why": "good"}, Score.failed("the part 'why' is 'good'; expected a number")),
        (
            "1.0",
            Score.failed(
                "the function returned '1.0' (str); expected a number, a bool, None, a Score, or a dict of "
                "parts with the key 'reward'"
            ),
        ),
    ],
)
def test_what_a_function_may_return(rollout, returned, expected):
    assert function(lambda text: returned).score([rollout("a")]) == [expected]


def test_tensors_of_one_element_are_numbers(rollout):
    torch = pytest.importorskip("torch")
    one, two = function(lambda answer: answer).score(
        [rollout(answer=torch.tensor(0.5)), rollout(answer=torch.zeros(2))]
    )
    assert one == Score(value=0.5) and "expected a number" in two.error


def test_nan_is_an_error_not_a_zero(rollout):
    scores = checked_scores(function(lambda text: math.nan if text == "x" else 0.0), [rollout("x"), rollout("y")])
    assert [s.ok for s in scores] == [False, True]


def test_an_exception_fails_only_its_rollout(rollout):
    def fn(text):
        return 1.0 / int(text)

    got = function(fn).score([rollout("1"), rollout("0"), rollout("x"), rollout("2")])
    assert values(got) == [1.0, None, None, 0.5]
    assert got[1].error == "ZeroDivisionError: float division by zero"
    assert got[2].error == "ValueError: invalid literal for int() with base 10: 'x'"


def test_exiting_is_an_error_and_interrupting_passes(rollout):
    def fn(text):
        raise SystemExit(3) if text == "exit" else KeyboardInterrupt

    assert function(fn).score([rollout("exit")])[0].error == "SystemExit: 3"
    for kwargs in ({}, {"timeout": None, "workers": 1}):
        with pytest.raises(KeyboardInterrupt):
            checked_scores(function(fn, **kwargs), [rollout("exit"), rollout("stop")])


# --- columns and signatures ---------------------------------------------------------------------------


def test_a_missing_column_is_named_before_anything_is_called(rollout):
    called = []
    source = function(lambda text, anser: called.append(text) or 1.0, name="mine")
    with pytest.raises(RewardError) as caught:
        checked_scores(source, [rollout("a", answer=1, level=2)])
    assert str(caught.value) == (
        "reward function 'mine' asks for 'anser', which is not a dataset column. Columns: answer, level. "
        "Other arguments it can ask for: completion, completion_ids, prompt, prompt_ids, rollout, stop, "
        "text. Did you mean 'answer'?"
    )
    assert not called


def test_a_column_missing_in_some_rows_names_the_first(rollout):
    with pytest.raises(RewardError, match=r"not a dataset column in 1 of 2 rows \(first: 'p1'\)"):
        function(lambda answer: 1.0).score([rollout(answer=1), rollout(id="p1")])


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda: 1.0, r"has the signature \(\)"),
        (lambda *texts: 1.0, r"has the signature \(\*texts\)"),
        (lambda prompt, completions: [1.0], "mixes 'prompt' .* with 'completions'"),
        (dict, "expected a function"),
        (3, "got 3; expected a function"),
    ],
)
def test_signatures_that_cannot_be_served_are_refused(fn, message):
    with pytest.raises(RewardError, match=message):
        function(fn)


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": math.nan}, {"workers": 0}])
def test_limits_must_be_positive(wrong):
    with pytest.raises(ConfigError, match="must be positive"):
        function(lambda text: 1.0, **wrong)


def test_names():
    class Judge:
        def __call__(self, text):
            return 1.0

    def exact_match(text):
        return 1.0

    assert function(exact_match).name == "exact_match"
    assert function(functools.partial(exact_match)).name == "exact_match"
    assert function(Judge()).name == "Judge"
    assert function(exact_match, name="em").name == "em"
    first, second = function(lambda text: 1.0), function(lambda text: 1.0)
    assert first.name != second.name and first.name.isidentifier()


# --- TRL's signature ----------------------------------------------------------------------------------


def test_trl_arguments_for_plain_prompts(rollout):
    seen = {}

    def fn(prompts, completions, answer, **kwargs):
        seen.update(prompts=prompts, completions=completions, answer=answer, **kwargs)
        return [float(c == a) for c, a in zip(completions, answer, strict=True)]

    batch = [rollout("a", answer="a", tag=1, version=4), rollout("b", id="p1", answer="c", tag=2, version=5)]
    source = function(fn)
    assert values(source.score(batch)) == [1.0, 0.0]
    assert seen.pop("trainer_state").global_step == 5
    assert callable(seen.pop("log_extra")) and callable(seen.pop("log_metric"))
    assert seen == {
        "prompts": ["q", "q"],
        "completions": ["a", "b"],
        "completion_ids": [[0, 1, 2], [0, 1, 2]],
        "answer": ["a", "c"],
        "tag": [1, 2],
    }


def test_trl_own_reward_functions_run_unchanged(rollout):
    rewards = pytest.importorskip("trl.rewards")
    chat = [{"role": "user", "content": "think"}]
    good, bad = rollout("<think>\nhm\n</think>\n4", messages=chat), rollout("4", messages=chat)
    assert values(function(rewards.think_format_reward).score([good, bad])) == [1.0, 0.0]
    overlong = rewards.get_soft_overlong_punishment(max_completion_len=4, soft_punish_cache=2)
    assert values(function(overlong).score([rollout(mask=[True] * n) for n in (2, 3, 5)])) == [
        0.0,
        -0.5,
        -1.0,
    ]


def test_trl_logging_is_collected(rollout):
    def fn(completions, log_extra, log_metric, **kwargs):
        log_extra("first", [c[0] for c in completions])
        log_metric("length", 1.0)
        log_metric("length", 2.0)
        return [1.0, None]

    source = function(fn)
    scored, unscored = source.score([rollout("ab"), rollout("cd")])
    assert scored == Score(value=1.0, parts={"length": 1.5})
    assert unscored.error == "the function returned None (not scored)"
    assert source.extra == {"first": ["a", "c"]} and source.metrics == {"length": [1.0, 2.0]}
    source.score([rollout("ef"), rollout("gh")])
    assert source.extra == {"first": ["e", "g"]}


def test_columns_that_some_rows_lack_are_none_in_kwargs(rollout):
    got = []
    function(lambda completions, **kw: got.append(kw["answer"]) or [0.0, 0.0]).score([rollout(answer=1), rollout()])
    assert got == [[1, None]]


def test_a_default_stands_in_for_a_column_nobody_has(rollout):
    source = function(lambda completions, scale=2.0: [scale] * len(completions))
    assert values(source.score([rollout(), rollout()])) == [2.0, 2.0]
    with pytest.raises(RewardError, match="'scale', which is not a dataset column in 1 of 2 rows"):
        source.score([rollout(scale=1.0), rollout()])


def test_column_names_with_kwargs_alone_are_a_batch_and_without_are_not(rollout):
    assert values(function(lambda answer, **kw: answer).score([rollout(answer=1), rollout(answer=2)])) == [
        1,
        2,
    ]
    assert values(function(lambda answer: answer).score([rollout(answer=1), rollout(answer=2)])) == [1, 2]


def test_text_is_a_column_for_a_batch_function(rollout):
    one = rollout("a")
    with_column = replace(one, prompt=replace(one.prompt, columns={"text": 5.0}))
    assert values(function(lambda completions, text: text).score([with_column])) == [5.0]
    assert values(function(lambda text: text == "a").score([with_column])) == [1.0]
    with pytest.raises(RewardError, match="asks for 'text', which is not a dataset column"):
        function(lambda completions, text: text).score([rollout("a")])


def test_rollouts_as_an_argument_give_the_raw_batch(rollout):
    batch = [rollout("a"), rollout("b")]
    got = []
    function(lambda rollouts: got.extend(rollouts) or [Score(value=1.0), 2.0]).score(batch)
    assert got == batch


def test_arrays_are_lists(rollout):
    numpy = pytest.importorskip("numpy")
    scores = function(lambda completions: numpy.array([0.5, 1.5])).score([rollout(), rollout()])
    assert values(scores) == [0.5, 1.5] and type(scores[0].value) is float


@pytest.mark.parametrize(
    ("returned", "got"), [([1.0], "1 values"), (1.0, "1.0"), ("ab", "'ab'"), ({0: 1, 1: 2}, "{0: 1, 1: 2}")]
)
def test_a_batch_function_returns_one_number_each(rollout, returned, got):
    with pytest.raises(RewardError) as caught:
        function(lambda completions: returned, name="f").score([rollout(), rollout()])
    assert str(caught.value) == (
        f"reward function 'f' returned {got} for 2 completions; expected a list with one number (or None) "
        f"per completion"
    )


def test_an_exception_of_a_batch_function_keeps_its_traceback(rollout):
    def fn(completions):
        raise ValueError("boom")

    with pytest.raises(RewardError, match=r"2 of 2 rollouts.*ValueError: boom") as caught:
        checked_scores(function(fn), [rollout(), rollout()])
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_batch_function_that_hangs_fails_every_rollout(rollout):
    stop = threading.Event()
    scores = function(lambda completions: stop.wait(5), timeout=0.1).score([rollout(), rollout()])
    stop.set()
    assert [s.error for s in scores] == ["timed out after 0.1 s"] * 2


# --- async --------------------------------------------------------------------------------------------


async def judge(text):
    await asyncio.sleep(0.01)
    if text == "bad":
        raise ValueError("rude")
    return float(len(text))


class AsyncJudge:
    async def __call__(self, text):
        return await judge(text)


@pytest.mark.parametrize(
    "fn",
    [judge, functools.partial(judge), AsyncJudge(), lambda text: judge(text)],
    ids=["def", "partial", "call", "lambda"],
)
def test_async_functions_of_every_make(rollout, fn):
    good, bad = function(fn).score([rollout("abc"), rollout("bad")])
    assert good == Score(value=3.0) and bad.error == "ValueError: rude"


def test_async_batch_function(rollout):
    async def fn(completions, **kwargs):
        return await asyncio.gather(*map(judge, completions))

    assert values(function(fn).score([rollout("a"), rollout("bc")])) == [1.0, 2.0]


def test_async_works_while_a_loop_is_running_and_in_any_thread(rollout):
    async def main():
        return function(judge).score([rollout("a"), rollout("bc")])

    assert values(asyncio.run(main())) == [1.0, 2.0]
    got = []
    thread = threading.Thread(target=lambda: got.extend(values(function(judge).score([rollout("abc")]))))
    thread.start()
    thread.join()
    assert got == [3.0]


class SlowJudge:
    async def __call__(self, text):
        await asyncio.sleep(0.1)
        return 1.0


@pytest.mark.parametrize("fn", [SlowJudge(), SlowJudge().__call__], ids=["call", "def"])
def test_async_calls_run_together(rollout, fn):
    start = monotonic()
    assert values(function(fn, workers=1).score([rollout()] * 64)) == [1.0] * 64
    assert monotonic() - start < 1.0  # 6.4 s one after the other


# --- threads and time ---------------------------------------------------------------------------------


def test_plain_functions_run_in_a_pool(rollout):
    threads = set()

    def fn(text):
        threads.add(threading.get_ident())
        sleep(0.05)
        return float(text)

    start = monotonic()
    got = function(fn, workers=8).score([rollout(str(i)) for i in range(32)])
    assert monotonic() - start < 0.8  # 0.2 s in eight threads, 1.6 s in one
    assert values(got) == [float(i) for i in range(32)]
    assert len(threads) == 8 and threading.get_ident() not in threads


def test_no_limit_and_one_worker_means_the_callers_thread(rollout):
    threads = set()
    source = function(lambda text: threads.add(threading.get_ident()) or 1.0, timeout=None, workers=1)
    assert values(source.score([rollout(), rollout()])) == [1.0, 1.0]
    assert threads == {threading.get_ident()}


def test_a_runaway_loop_fails_alone_and_is_stopped(rollout):
    ticks = [0]

    def fn(text):
        while text == "hang":
            ticks[0] += 1
        return 1.0

    start = monotonic()
    got = checked_scores(function(fn, timeout=0.3), [rollout("ok")] * 7 + [rollout("hang")])
    assert monotonic() - start < 1.3
    assert values(got) == [1.0] * 7 + [None] and got[7].error == "timed out after 0.3 s"
    sleep(0.1)
    count = ticks[0]
    sleep(0.1)
    assert ticks[0] == count > 0
