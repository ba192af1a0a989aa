"""A tiny model of this process as a judge."""

from __future__ import annotations

import re

import pytest
import torch
from tiny import byte_tokenizer, llama

from prefrl.errors import ConfigError
from prefrl.model.language import LanguageModel
from prefrl.rewards import Judge, Tournament
from prefrl.rewards.local_voter import LocalVoter
from prefrl.rewards.questions import Question
from prefrl.types import Prompt, Score


def answers(rollout, *texts):
    return [rollout(text, id="p", question="Which number is larger?") for text in texts]


def totals(scores):
    return [score.value for score in scores]


@pytest.fixture(scope="module")
def voter():
    tokenizer = byte_tokenizer()
    model = llama(len(tokenizer), eos=tokenizer.eos_token_id, seed=3, layers=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # opinions
    return LocalVoter(LanguageModel(model, tokenizer, name="tiny"), max_tokens=3000)


def test_a_local_vote_is_the_softmax_of_the_verdicts_log_probs(voter):
    question = Question("Which?", ("A", "B", "tie"))
    (vote,) = voter.vote([question])
    model = voter.model
    prompt = model.encode(Prompt(id="x", messages=({"role": "user", "content": "Which?"},)))
    sums = []
    for option in question.options:
        reply = model.tokenizer(f"Verdict: {option}", add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[*prompt, *reply]])
        with torch.no_grad():
            logps = model.model(ids).logits[0].double().log_softmax(-1)
        sums.append(sum(logps[len(prompt) + i - 1, token] for i, token in enumerate(reply)))
    assert vote.probabilities == pytest.approx(torch.softmax(torch.stack(sums), 0).tolist(), abs=1e-5)
    assert max(vote.probabilities) - min(vote.probabilities) > 0.05  # so that the next tests can fail


def test_a_local_judge_compares_in_both_orders_whatever_the_batch(voter, rollout):
    batch = answers(rollout, "3", "1", "a longer one")
    source = Tournament(Judge(voter))
    scores = source.score(batch)
    assert sum(totals(scores)) == pytest.approx(1.5)
    again = source.score(batch[::-1])[::-1]
    assert totals(again) == pytest.approx(totals(scores), abs=1e-5)
    pair = [s.value for s in Tournament(Judge(voter)).score(batch[:2])]
    alone = [s.value for s in Tournament(Judge(LocalVoter(voter.model, token_budget=1))).score(batch[:2])]
    assert pair == pytest.approx(alone, abs=1e-5)


def test_a_local_judge_grades_by_the_expected_grade(voter, rollout):
    source = Judge(voter, scale=(1, 3))
    (score,) = source.score(answers(rollout, "3"))
    (vote,) = voter.vote([source_question(source, rollout)])
    grade = sum(p * g for p, g in zip(vote.probabilities, (1, 2, 3), strict=True))
    assert score == Score(value=(grade - 1) / 2, parts={"grade": grade})


def source_question(source, rollout):
    asked = []
    one = answers(rollout, "3")
    keep = source.voter
    source.voter = type("Spy", (), {"name": "spy", "vote": lambda self, q: asked.extend(q) or keep.vote(q)})()
    source.score(one)
    source.voter = keep
    return asked[0]


def test_long_questions_and_overlapping_verdicts(voter, rollout):
    scores = Judge(voter).score(answers(rollout, "x" * 4000, "y"))
    assert re.search(r"the question has \d+ tokens; at most 3000", scores[0].error) and scores[1].ok
    with pytest.raises(ConfigError, match=r"the verdict '10' begins with '1'.*choose a narrower scale"):
        Judge(voter, scale=(1, 10)).score(answers(rollout, "y"))
    with pytest.raises(ConfigError, match="no option 'timeout' here; valid: device, max_tokens, token_budget"):
        Judge.load("smollm2-135m", timeout=3)
