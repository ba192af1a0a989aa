"""Losses on pairs and on judged completions equal those of TRL 1.16 on the same tensors, in value and gradient.

Where the two differ, both numbers stand.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from trl_calls import same, stand_in, value_and_gradient

from prefrl.policy.algorithms import ALGORITHMS, resolve
from prefrl.policy.objective import pair_objective
from prefrl.policy.parts import PairSpec
from prefrl.types import Batch

BETA = 0.3
PAIRS = 3
LENGTHS = torch.tensor([4, 2, 5, 1, 3, 3])  # three chosen, then three rejected
MASK = torch.arange(5) < LENGTHS[:, None]
ROW = torch.arange(2 * PAIRS).repeat_interleave(LENGTHS)
SIDE = torch.tensor([1] * PAIRS + [-1] * PAIRS)
EVERY = slice(None)


@pytest.fixture(scope="module")
def trl():
    """TRL's trainers; importing them takes seconds, so only when a test wants them."""
    from trl import DPOTrainer, KTOTrainer
    from trl.experimental.cpo import CPOTrainer
    from trl.experimental.orpo import ORPOTrainer

    return SimpleNamespace(DPO=DPOTrainer, KTO=KTOTrainer, CPO=CPOTrainer, ORPO=ORPOTrainer)


def token_logps(seed=0, dtype=torch.float64):
    """Log-probs of the policy, a leaf, and of the reference at every token."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2, len(ROW), generator=generator, dtype=torch.float64).to(dtype)
    return (2 * noise[0] - 5).requires_grad_(), 2 * noise[1] - 5


def ours(logps, spec, leaf=None, *, ref=None, smoothing=0.0, pairs=EVERY, side=SIDE, baseline=0.0):
    """Value and gradient of our loss; the mean over the given pairs, or over all judged completions."""
    weight = torch.zeros(2, PAIRS, dtype=logps.dtype)
    weight[:, pairs] = 1.0
    streams = {} if ref is None else {"ref_logps": ref}
    if spec.sft:
        chosen = (weight.flatten() * (side > 0))[ROW]
        streams["ce"] = spec.sft * chosen / chosen.sum()
    count = 2 * PAIRS
    one = Batch(
        outputs=logps,
        row=ROW,
        streams=streams,
        side=side,
        atom=torch.arange(count) % PAIRS,
        label=torch.full((count,), 1.0 - smoothing, dtype=logps.dtype),
        margin=torch.zeros(count, dtype=logps.dtype),
        weight=weight.flatten() / (weight[0].sum() if spec.paired else count),
        tie=torch.zeros(count, dtype=logps.dtype),
        annotator=torch.full((count,), -1),
        rank=torch.zeros(count, dtype=torch.long),
    )
    return value_and_gradient(pair_objective(one, spec, baseline)[0], logps if leaf is None else leaf)


def padded(flat, pairs=EVERY, swapped=False):
    """Tokens laid end to end as TRL has them: rows of chosen, then of rejected."""
    rows = torch.zeros(MASK.shape, dtype=flat.dtype).masked_scatter(MASK, flat)
    sides = rows[:PAIRS][pairs], rows[PAIRS:][pairs]
    return torch.cat(sides[::-1] if swapped else sides)


def answer(log_probs):
    """What a model with TRL's fused head returns."""
    nothing = torch.zeros(log_probs.shape)
    return lambda **_: SimpleNamespace(
        log_probs=log_probs, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool()
    )


def with_prompt(mask):
    """One prompt token comes first; per-token log-probs start at the second position."""
    return torch.cat([torch.zeros(len(mask), 1, dtype=torch.bool), mask], dim=1).long()


def dpo(trl, logps, ref, kind, *, pairs=EVERY, swapped=False, beta=BETA, **changes):
    """`DPOTrainer._compute_loss` on the given pairs; `swapped` exchanges chosen and rejected."""
    settings = {
        "ld_alpha": None,
        "precompute_ref_logps": True,
        "f_divergence_type": "reverse_kl",
        "loss_types": [kind] if isinstance(kind, str) else list(kind),
        "loss_weights": [1.0] if isinstance(kind, str) else list(kind.values()),
        "label_smoothing": 0.0,
        "use_weighting": False,
        "beta": beta,
    }
    mask = with_prompt(padded(torch.ones(len(ROW)), pairs, swapped).bool())
    # The reference arrives summed over tokens, so what TRL weighs of its tokens is weighed here.
    ref_rows = padded(ref, pairs, swapped)
    if changes.get("ld_alpha") is not None:
        lengths = mask.sum(1)
        shorter = torch.minimum(*lengths.chunk(2)).repeat(2)
        ref_rows = torch.where(torch.arange(5) < shorter[:, None], 1.0, changes["ld_alpha"]) * ref_rows
    reference = ref_rows.sum(1).chunk(2)
    inputs = {
        "input_ids": torch.zeros(mask.shape, dtype=torch.long),
        "attention_mask": torch.ones(mask.shape, dtype=torch.long),
        "completion_mask": mask,
        "ref_chosen_logps": reference[0],
        "ref_rejected_logps": reference[1],
    }
    trainer = stand_in(**settings | changes)
    return value_and_gradient(
        trl.DPO._compute_loss(trainer, answer(padded(logps, pairs, swapped)), inputs, False), logps
    )


# DPO and its relatives with a reference. -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sigmoid", "hinge"])
def test_losses(trl, kind):
    logps, ref = token_logps()
    same(ours(logps, PairSpec(loss=kind, beta=BETA), ref=ref), dpo(trl, logps, ref, kind))


@pytest.mark.parametrize("kind", ["sigmoid", "hinge"])
@pytest.mark.parametrize("smoothing", [0.1, 0.3])
def test_label_smoothing_is_the_expected_loss_over_flipped_labels(trl, kind, smoothing):
    logps, ref = token_logps(1)
    right, wrong = (dpo(trl, logps, ref, kind, swapped=swapped) for swapped in (False, True))
    wanted = tuple((1 - smoothing) * a + smoothing * b for a, b in zip(right, wrong, strict=True))
    same(ours(logps, PairSpec(loss=kind, beta=BETA), ref=ref, smoothing=smoothing), wanted)


@pytest.mark.parametrize("pair", range(PAIRS))
def test_label_smoothing_of_trl(trl, pair):
    # TRL smooths labels in "aot", which is conservative DPO on a batch of one pair, and in "robust", which is not:
    # that one subtracts the flipped loss, an unbiased estimate of the clean loss that is not bounded below.
    logps, ref = token_logps(2)
    one = slice(pair, pair + 1)
    mine = ours(logps, PairSpec(beta=BETA), ref=ref, smoothing=0.2, pairs=one)
    same(mine, dpo(trl, logps, ref, "aot", label_smoothing=0.2, pairs=one))
    robust = dpo(trl, logps, ref, "robust", label_smoothing=0.2, pairs=one)
    right, wrong = (dpo(trl, logps, ref, "sigmoid", pairs=one, swapped=swap)[0] for swap in (False, True))
    same(mine[0], 0.8 * right + 0.2 * wrong)
    same(robust[0], (0.8 * right - 0.2 * wrong) / 0.6)


DIVERGENCES = {
    "forward_kl": ("forward_kl", 0.5),
    "js": ("js_divergence", 0.5),
    "alpha": ("alpha_divergence", 0.7),
    "alpha at 1": ("alpha_divergence", 1.0),
}


@pytest.mark.parametrize("kind", ["sigmoid", "hinge"])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_divergences(trl, name, kind):
    theirs, alpha = DIVERGENCES[name]
    dtype = torch.float32 if name == "alpha" else torch.float64  # TRL's takes nothing wider
    logps, ref = (0.4 * x for x in token_logps(3, dtype))
    logps = logps.detach().requires_grad_()
    spec = PairSpec(loss=kind, beta=BETA, divergence=name.split()[0], alpha=alpha)
    wanted = dpo(trl, logps, ref, kind, f_divergence_type=theirs, f_alpha_divergence_coef=alpha)
    same(ours(logps, spec, ref=ref), wanted)


@pytest.mark.parametrize("kind", ["sigmoid", "hinge"])
@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_length_desensitised(trl, kind, weight):
    logps, ref = token_logps(4)
    spec = PairSpec(loss=kind, beta=BETA, ld_alpha=weight)
    same(ours(logps, spec, ref=ref), dpo(trl, logps, ref, kind, ld_alpha=weight))


@pytest.mark.parametrize("divergence", ["reverse_kl", "forward_kl", "js"])
@pytest.mark.parametrize("weight", [0.4, 1.0])
def test_means_over_tokens(trl, divergence, weight):
    logps, ref = token_logps(5)
    spec = PairSpec(beta=BETA, average=True, divergence=divergence, ld_alpha=weight)
    theirs = {"reverse_kl": "reverse_kl", "forward_kl": "forward_kl", "js": "js_divergence"}[divergence]
    same(ours(logps, spec, ref=ref), dpo(trl, logps, ref, "sigmoid_norm", f_divergence_type=theirs, ld_alpha=weight))


def test_ipo(trl):
    # Equation 17 of the IPO paper holds log-probs of whole completions, so ours are summed over tokens. TRL averages
    # them, which makes the target margin 1 / (2 beta) one per token; with `average` the two agree.
    logps, ref = token_logps(3)
    theirs = dpo(trl, logps, ref, "ipo", beta=0.1)
    same(ours(logps, resolve({"name": "ipo", "pairs": {"average": True}}).pairs, ref=ref), theirs)
    mine = ours(logps, ALGORITHMS["ipo"].pairs, ref=ref)
    gain = torch.zeros(2 * PAIRS, dtype=torch.float64).index_add(0, ROW, (logps - ref).detach())
    same(mine[0], ((gain[:PAIRS] - gain[PAIRS:] - 5.0) ** 2).mean())
    assert abs(float(mine[0] - theirs[0])) > 1


def test_sft_term(trl):
    logps, ref = token_logps(6)
    spec = PairSpec(beta=BETA, sft=0.7)
    same(ours(logps, spec, ref=ref), dpo(trl, logps, ref, {"sigmoid": 1.0, "sft": 0.7}))


def test_sft_term_of_micro_batches(trl):
    # Split into micro-batches of one pair, TRL's term is a mean of means: tokens of short completions count more.
    # Ours is the mean over all tokens of the update, split or not.
    logps, ref = token_logps(6)
    whole = dpo(trl, logps, ref, {"sft": 1.0})[0]
    parts = [dpo(trl, logps, ref, {"sft": 1.0}, pairs=slice(i, i + 1))[0] for i in range(PAIRS)]
    nll = -padded(logps.detach())[:PAIRS].sum(1)
    same(whole, nll.sum() / 11)
    same(sum(parts) / PAIRS, (nll / LENGTHS[:PAIRS]).mean())
    assert abs(float(whole - sum(parts) / PAIRS)) > 0.05


def test_it_starts_at_log_two(trl):
    _, ref = token_logps(7)
    for name in ("dpo", "ld_dpo"):
        value, _ = ours(ref.clone().requires_grad_(), ALGORITHMS[name].pairs, ref=ref)
        same(value, torch.tensor(2.0, dtype=torch.float64).log())
    same(dpo(trl, ref.clone().requires_grad_(), ref, "sigmoid")[0], torch.tensor(2.0, dtype=torch.float64).log())


# Completions judged one by one. ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [2.0, -9.0])  # the second puts the KL below 0
@pytest.mark.parametrize(("desirable", "undesirable"), [(1.0, 1.0), (1.33, 0.7)])
def test_kto(trl, shift, desirable, undesirable):
    logps, ref = token_logps(8)
    side = torch.tensor([1, -1, 1, 1, -1, 1])
    mismatched = torch.tensor([0.5, -1.0, 2.0, 0.3, 0.1, -0.2], dtype=torch.float64) + shift
    trainer = stand_in(
        calculate_KL=True,
        precompute_ref_logps=True,
        loss_type="kto",
        beta=BETA,
        desirable_weight=desirable,
        undesirable_weight=undesirable,
        _compute_kl_logps=lambda model, batch: mismatched,
    )
    mask = with_prompt(MASK)
    inputs = {
        "input_ids": torch.zeros(mask.shape, dtype=torch.long),
        "attention_mask": torch.ones(mask.shape, dtype=torch.long),
        "completion_mask": mask,
        "label": side > 0,
        "ref_logps": padded(ref).sum(1),
        "ref_KL_logps": torch.zeros(6, dtype=torch.float64),
    }
    wanted = value_and_gradient(trl.KTO._compute_loss(trainer, answer(padded(logps)), inputs, False), logps)
    spec = PairSpec(loss="prospect", beta=BETA, desirable=desirable, undesirable=undesirable)
    same(ours(logps, spec, ref=ref, side=side, baseline=max(0.0, float(mismatched.mean()))), wanted)


# Without a reference: on logits, as these trainers take the log-probs themselves. --------------------------------

PROMPT = 2
IDS = torch.randint(0, 7, (2 * PAIRS, PROMPT + 5), generator=torch.Generator().manual_seed(1))
WHOLE = torch.cat([torch.ones(2 * PAIRS, PROMPT, dtype=torch.bool), MASK], dim=1)
LABELS = torch.where(WHOLE & (torch.arange(PROMPT + 5) >= PROMPT), IDS, -100)


def logits_and_logps(seed=0):
    """Logits (6, 7, 7), a leaf, and the log-probs of the completions' tokens laid end to end."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2 * PAIRS, PROMPT + 5, 7, generator=generator, dtype=torch.float64).requires_grad_()
    every = logits.log_softmax(-1)[:, :-1].gather(-1, IDS[:, 1:, None]).squeeze(-1)
    return logits, every[:, PROMPT - 1 :][MASK]


def free(trainer_class, logits, **settings):
    """`get_batch_loss_metrics` of a trainer without a reference."""
    trainer = stand_in(
        is_encoder_decoder=False,
        padding_value=0,
        pad_token_id=0,
        concatenated_inputs=lambda *_, **__: {
            "concatenated_input_ids": IDS,
            "concatenated_attention_mask": WHOLE.long(),
            "concatenated_labels": LABELS,
        },
        get_batch_logps=trainer_class.get_batch_logps,
        **settings,
    )
    for name in ("concatenated_forward", "cpo_loss", "odds_ratio_loss"):
        if hasattr(trainer_class, name):
            setattr(trainer, name, getattr(trainer_class, name).__get__(trainer))
    model = lambda *_, **__: SimpleNamespace(logits=logits)  # noqa: E731
    loss, _ = trainer_class.get_batch_loss_metrics(trainer, model, {"chosen_labels": LABELS[:PAIRS]})
    return value_and_gradient(loss, logits)


def cpo(trl, logits, kind="sigmoid", *, beta=0.1, sft=1.0, gamma=0.0, smoothing=0.0):
    settings = {"loss_type": kind, "beta": beta, "cpo_alpha": sft, "simpo_gamma": gamma, "label_smoothing": smoothing}
    return free(trl.CPO, logits, alpha=0.0, **settings)


def test_cpo(trl):
    logits, logps = logits_and_logps()
    same(ours(logps, ALGORITHMS["cpo"].pairs, logits), cpo(trl, logits))


@pytest.mark.parametrize("sft", [0.0, 0.4])
def test_label_smoothing_of_cpo(trl, sft):
    logits, logps = logits_and_logps(1)
    spec = PairSpec(score="log_prob", beta=BETA, sft=sft)
    same(ours(logps, spec, logits, smoothing=0.2), cpo(trl, logits, beta=BETA, sft=sft, smoothing=0.2))


def test_slic(trl):
    logits, logps = logits_and_logps(2)
    same(ours(logps, ALGORITHMS["slic"].pairs, logits), cpo(trl, logits, "hinge", beta=1.0))


def test_ipo_without_a_reference(trl):
    logits, logps = logits_and_logps(3)
    spec = PairSpec(loss="squared", score="log_prob", average=True, beta=BETA)
    same(ours(logps, spec, logits), cpo(trl, logits, "ipo", beta=BETA, sft=0.0))


def test_simpo(trl):
    logits, logps = logits_and_logps(4)
    same(ours(logps, ALGORITHMS["simpo"].pairs, logits), cpo(trl, logits, "simpo", beta=2.0, gamma=1.0, sft=0.0))


def test_label_smoothing_of_simpo(trl):
    # A wrong label exchanges the sides: the other one should then be ahead by gamma, -log sigmoid(-beta m - gamma).
    # TRL negates the whole argument, -log sigmoid(-beta m + gamma): the other one need not be ahead at all.
    logits, logps = logits_and_logps(4)
    mine, _ = ours(logps, ALGORITHMS["simpo"].pairs, logits, smoothing=0.2)
    theirs, _ = cpo(trl, logits, "simpo", beta=2.0, gamma=1.0, sft=0.0, smoothing=0.2)
    score = 2.0 * torch.zeros(2 * PAIRS, dtype=torch.float64).index_add(0, ROW, logps.detach()) / LENGTHS
    z = score[:PAIRS] - score[PAIRS:]
    softplus = torch.nn.functional.softplus
    same(mine, (0.8 * softplus(1 - z) + 0.2 * softplus(1 + z)).mean())
    same(theirs, (0.8 * softplus(1 - z) + 0.2 * softplus(z - 1)).mean())


def nll(logits, mask):
    """Value and gradient of the mean negative log-prob of the chosen rows' tokens under a mask (3, 6)."""
    every = -logits.log_softmax(-1)[:PAIRS, :-1].gather(-1, IDS[:PAIRS, 1:, None]).squeeze(-1)
    return value_and_gradient((every * mask).sum() / mask.sum(), logits)


def test_orpo(trl):
    # The paper's SFT term is that of the answer; TRL's is a mean over the prompt's tokens too. The odds ratio agrees.
    logits, logps = logits_and_logps(5)
    spec = ALGORITHMS["orpo"].pairs
    mine, theirs = ours(logps, spec, logits), free(trl.ORPO, logits, beta=0.1)
    of_answer, of_all = nll(logits, LABELS[:PAIRS, 1:] >= 0), nll(logits, WHOLE[:PAIRS, 1:])
    ratios = tuple(a - b for a, b in zip(mine, of_answer, strict=True))
    same(ratios, tuple(a - b for a, b in zip(theirs, of_all, strict=True)))
    assert float(ratios[0]) > 0.01
    assert abs(float(of_answer[0] - of_all[0])) > 0.01
