"""The sampler says what the learner says: same tokens, same log-probs, whatever the batch."""

from __future__ import annotations

import pytest
import torch
from tiny import SYMBOLS, causal_lm, language_model, naive_logps

from prefrl.config import SamplingConfig
from prefrl.rollout.local import Request, draw, pick
from prefrl.types import Prompt, Row, StopReason

V = len(SYMBOLS)
RAGGED = [Prompt(id=str(i), text=t) for i, t in enumerate(("1=", "12345678=", "7", "123=", "9,9,9=", "12="))]
SLIDING = {"sliding_window": 4}
ARCHITECTURES = {
    "sliding windows": ("mistral", SLIDING),
    "one layer slides, soft-capped": ("gemma2", SLIDING | {"query_pre_attn_scalar": 8, "final_logit_softcapping": 1.5}),
    "state space": ("mamba", {"state_size": 8}),
    "convolutions": ("lfm2", {"layer_types": ["conv", "full_attention"]}),
}


def ending(policy, ids):
    """The same policy with other end-of-turn tokens; several make rows leave the batch early."""
    policy.eos = tuple(ids)
    return policy


def row_of(rollout):
    return Row(prompt_ids=rollout.prompt_ids, completion_ids=rollout.completion_ids, mask=rollout.mask)


def assert_exact(policy, rollouts, temperature):
    rows = [row_of(r) for r in rollouts]
    recorded = torch.tensor([p for r in rollouts for p in r.logps])
    learner = policy.token_outputs(rows, temperature).detach()
    torch.testing.assert_close(recorded, learner, atol=1e-4, rtol=0)
    naive = torch.cat(naive_logps(policy.model, rows, temperature=temperature)).detach()
    torch.testing.assert_close(recorded, naive, atol=1e-4, rtol=0)


def drawn(policy, prompts=RAGGED, *, n=4, batch_rows=64, **params):
    """Token ids that the sampler draws in batches of `batch_rows`."""
    config = SamplingConfig(**{"max_new_tokens": 12} | params)
    requests = []
    for prompt in prompts:
        generator = torch.Generator().manual_seed(int(prompt.id))
        requests += [
            Request(policy.encode(prompt), torch.rand(config.max_new_tokens, generator=generator, dtype=torch.float64))
            for _ in range(n)
        ]
    how = {"eos": policy.eos, "decode": policy.decode, "batch_rows": batch_rows}
    return [one.ids for one in draw(policy.decoder, policy.head, requests, config, **how)]


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("ends", [(0,), (0, 3, 5, 7, 9)], ids=["rare end", "likely end"])
@pytest.mark.parametrize("n", [1, 5])
def test_recorded_log_probs_are_the_learners(n, ends, temperature):
    policy = ending(language_model(layers=2), ends)
    rollouts = policy.sample(RAGGED, n, SamplingConfig(max_new_tokens=12, temperature=temperature), seed=1)
    assert len({len(r.completion_ids) for r in rollouts}) > 1
    assert_exact(policy, rollouts, temperature)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_caches_without_room_for_padding(name):
    kind, more = ARCHITECTURES[name]
    policy = ending(language_model(causal_lm(kind, V, **more)), (0, 3, 5))
    rollouts = policy.sample(RAGGED, 4, SamplingConfig(max_new_tokens=12, temperature=0.6), seed=1)
    assert len({len(r.completion_ids) for r in rollouts}) > 4
    assert_exact(policy, rollouts, 0.6)
    assert drawn(policy, n=2, batch_rows=1) == drawn(policy, n=2)


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_a_row_does_not_depend_on_its_batch(temperature):
    policy = ending(language_model(layers=2), (0, 3, 5))
    alone, threes, together = (drawn(policy, batch_rows=b, temperature=temperature) for b in (1, 3, 64))
    assert alone == threes == together
    backwards = drawn(policy, RAGGED[::-1], temperature=temperature)
    assert [backwards[4 * (5 - i) : 4 * (6 - i)] for i in range(6)] == [alone[4 * i : 4 * (i + 1)] for i in range(6)]


def test_seeds():
    policy, params = language_model(), SamplingConfig(max_new_tokens=12)
    one, again, other = ([r.completion_ids for r in policy.sample(RAGGED, 4, params, seed=s)] for s in (7, 7, 8))
    assert one == again
    assert all(a != b for a, b in zip(one, other, strict=True))


def test_samples_of_a_group_and_repeats_of_a_prompt_differ():
    policy = ending(language_model(), ())
    rollouts = policy.sample([RAGGED[0], RAGGED[1], RAGGED[0]], 4, SamplingConfig(max_new_tokens=12), seed=0)
    assert [r.group for r in rollouts] == ["0#0"] * 4 + ["1#0"] * 4 + ["0#1"] * 4
    assert len({r.completion_ids for r in rollouts}) == 12


def test_a_prompt_says_the_same_whatever_it_is_asked_with():
    policy, params = language_model(), SamplingConfig(max_new_tokens=12)

    def third(prompts, n):
        return [r.completion_ids for r in policy.sample(prompts, n, params, seed=0) if r.prompt is RAGGED[2]]

    alone = third(RAGGED[2:3], 3)
    assert alone == third(RAGGED, 3)
    assert alone[:2] == third(RAGGED, 2)


@pytest.mark.parametrize("ends", [(0,), (4,), (0, 4, 9), ()])
def test_every_end_token_ends_a_row_and_stays_in_it(ends):
    policy = ending(language_model(), ends)
    rollouts = policy.sample(RAGGED, 16, SamplingConfig(max_new_tokens=16), seed=0)
    for r in rollouts:
        body, last = r.completion_ids[:-1], r.completion_ids[-1]
        assert not set(body) & set(ends)
        assert (r.stop is StopReason.EOS) == (last in ends)
        assert (r.stop is StopReason.LENGTH) == (last not in ends)
        assert len(r.completion_ids) == 16 or r.stop is StopReason.EOS
        assert r.mask == (True,) * len(r.completion_ids)
    assert {r.completion_ids[-1] for r in rollouts} >= set(ends)


def test_a_stop_string_ends_a_row_where_it_is_complete():
    policy = ending(language_model(), (0,))
    params = SamplingConfig(max_new_tokens=24, stop=("5", "12"))
    rollouts = policy.sample(RAGGED, 8, params, seed=0)
    assert {r.stop for r in rollouts} >= {StopReason.STOP, StopReason.EOS}
    for r in rollouts:
        before = policy.decode(list(r.completion_ids[:-1]))
        assert "5" not in before
        assert "12" not in before
        assert (r.stop is StopReason.STOP) == r.text.endswith(("5", "12"))
    free = policy.sample(RAGGED, 8, SamplingConfig(max_new_tokens=24), seed=0)
    for longer, r in zip(free, rollouts, strict=True):
        assert longer.completion_ids[: len(r.completion_ids)] == r.completion_ids


def test_temperature_0_is_the_arg_max_with_log_probs_at_temperature_1():
    policy = language_model(layers=2)
    rollouts = policy.sample(RAGGED, 2, SamplingConfig(max_new_tokens=8, temperature=0.0), seed=3)
    for r in rollouts[::2]:
        ids = list(r.prompt_ids)
        for token in r.completion_ids:
            with torch.no_grad():
                ids.append(int(policy.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
            assert ids[-1] == token
    assert [r.completion_ids for r in rollouts[::2]] == [r.completion_ids for r in rollouts[1::2]]
    assert_exact(policy, rollouts, 1.0)


def test_no_requests():
    policy = language_model()
    assert draw(policy.decoder, policy.head, [], SamplingConfig(), eos=(0,), decode=policy.decode) == []


def counts_of(logits, temperature=1.0, n=20_000):
    """How often each token is drawn over an even grid of uniform numbers."""
    grid = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    tokens = torch.cat([pick(logits.expand(len(part), -1), part, temperature)[0] for part in grid.split(2000)])
    return tokens.bincount(minlength=len(logits)).double()


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("vocabulary", [5, 256, 300, 700])
def test_frequencies(vocabulary, temperature):
    logits = torch.randn(vocabulary, generator=torch.Generator().manual_seed(vocabulary)) * 1.5
    logits[[1, vocabulary - 1]] = -torch.inf
    expected = 20_000 * (logits.double() / temperature).softmax(-1)
    counts = counts_of(logits, temperature)
    assert counts[1] == counts[-1] == 0
    assert float((counts - expected).abs().max()) <= 1.01  # an even grid misses by less than one on either side
    likely = expected > 0
    assert float(((counts - expected)[likely] ** 2 / expected[likely]).sum()) < vocabulary


def test_a_whole_block_of_impossible_tokens_is_never_drawn():
    logits = torch.full((1000,), -torch.inf)
    logits[[3, 600, 601]] = torch.tensor([0.0, 1.0, -1.0])
    assert counts_of(logits).nonzero().squeeze(-1).tolist() == [3, 600, 601]


@pytest.mark.parametrize("uniform", [0.0, 2**-53, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("vocabulary", [3, 256, 257, 49_152])
def test_extreme_uniforms_draw_a_possible_token(vocabulary, uniform):
    generator = torch.Generator().manual_seed(0)
    for scale in (0.1, 3.0, 30.0):
        logits = torch.randn(4, vocabulary, generator=generator) * scale
        logits[:, ::2] = -torch.inf
        tokens, logps = pick(logits, torch.full((4,), uniform, dtype=torch.float64), 1.0)
        assert torch.isfinite(logps).all()
        assert (tokens % 2 == 1).all()
        assert ((tokens >= 0) & (tokens < vocabulary)).all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_log_probs_of_drawn_tokens_are_exact(temperature):
    logits = torch.randn(64, 700, generator=torch.Generator().manual_seed(1)) * 4
    tokens, logps = pick(logits, torch.rand(64, dtype=torch.float64), temperature)
    exact = (logits.double() / temperature).log_softmax(-1).gather(-1, tokens[:, None]).squeeze(-1)
    torch.testing.assert_close(logps.double(), exact, atol=1e-5, rtol=0)
    assert logps.dtype == torch.float32
