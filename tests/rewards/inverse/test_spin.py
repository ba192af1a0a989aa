"""Self-play: pairs of a demonstration and the opponent's answer, and the reward in what is learnt."""

from __future__ import annotations

import pytest
import torch
from exact_text import PROMPTS, Table, engine_of, language, sequences, table_of, text_of, world

from prefrl.policy.preference import pair_loss
from prefrl.recipes.score import text_rollout
from prefrl.rewards.inverse.spin import SelfPlayReward, self_play
from prefrl.types import Completion


def test_the_demonstration_is_chosen_and_the_answer_keeps_its_ids():
    real = Completion(text="ab")
    answers = [Completion(text="c", ids=(3, 0)), Completion(text="ab ", ids=(1, 2, 0))]
    found = self_play([(PROMPTS[0], real), (PROMPTS[1], real)], answers)
    assert found.equal == 1  # the same words twice teach nothing
    (pair,) = found.pairs
    assert (pair.prompt, pair.chosen, pair.rejected) == (PROMPTS[0], real, answers[0])


def test_an_answer_that_was_cut_off_is_not_the_demonstration():
    cut = Completion(text="ab", ids=(1, 2), finished=False)
    assert self_play([(PROMPTS[0], Completion(text="ab"))], [cut]).equal == 0


def test_the_reward_is_the_log_ratio_to_the_opponent():
    engine = engine_of(language())
    reward = SelfPlayReward(engine, beta=0.3)
    rollouts = engine.sample(PROMPTS, 4, seed=0)
    texts = [text_rollout(r.prompt, Completion(text=r.text, finished=r.terminated)) for r in rollouts]
    assert [score.value for score in reward.score(rollouts)] == [0.0] * 8
    with torch.no_grad():
        for parameter in engine.actor.module.parameters():
            parameter += 0.05
    live, start = table_of(engine, "policy"), table_of(engine, "reference")
    places = {s: i for i, s in enumerate(sequences())}
    expected = [0.3 * float((live - start)[PROMPTS.index(r.prompt), places[r.completion_ids]]) for r in rollouts]
    assert [score.value for score in reward.score(rollouts)] == pytest.approx(expected, abs=1e-5)
    assert [score.value for score in reward.score(texts)] == pytest.approx(expected, abs=1e-5)
    assert max(map(abs, expected)) > 1e-2
    nothing = text_rollout(PROMPTS[0], Completion(text="", finished=False))
    assert reward.score([nothing, nothing])[0].error == "no token to score"


def test_the_demonstrator_is_where_self_play_rests():
    """The exact gradient of the pair loss in the table's log-probs: 0 at the demonstrator against itself alone."""
    truth = world(table_of(engine_of(language())))
    steps = {}
    for name, opponent in (("start", truth.reference), ("demonstrator", truth.expert)):
        table = Table(opponent)
        logits = table.policy.clone().requires_grad_(True)
        ratio = logits.log_softmax(-1) - opponent
        margin = ratio[:, :, None] - ratio[:, None, :]  # every demonstration against every answer
        weight = truth.expert.exp()[:, :, None] * opponent.exp()[:, None, :]
        loss = pair_loss(margin.flatten(), torch.ones(margin.numel()), beta=1.0)
        (loss * weight.flatten()).sum().backward()
        steps[name] = float(logits.grad.abs().sum())
    assert steps["demonstrator"] < 1e-5
    assert steps["start"] > 0.1


def test_self_play_finds_the_demonstrator():
    """Rounds with exact weights: divergence falls to what optimization leaves."""
    truth = world(table_of(engine_of(language())))
    opponent = truth.reference.clone()
    start = truth.divergence(opponent)
    for _ in range(6):
        logits = opponent.clone().requires_grad_(True)
        optimizer = torch.optim.Adam([logits], lr=0.1)
        weight = (truth.expert.exp()[:, :, None] * opponent.exp()[:, None, :]).flatten()
        for _ in range(30):
            ratio = logits.log_softmax(-1) - opponent
            margin = (ratio[:, :, None] - ratio[:, None, :]).flatten()
            optimizer.zero_grad()
            (pair_loss(margin, torch.ones(len(margin)), beta=1.0) * weight).sum().backward()
            optimizer.step()
        opponent = logits.detach().log_softmax(-1)
    assert truth.divergence(opponent) < 0.05 * start
    assert text_of(sequences()[0]) == ""
