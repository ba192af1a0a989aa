"""A language of three letters and an end, small enough to enumerate, in which a demonstrator's reward is known."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import torch
from tiny import llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.rewards.inverse.text_nets import TextBody
from prefrl.types import Completion, Prompt, Rollout, Row, StopReason

LETTERS, LONGEST = "abc", 4
PROMPTS = (Prompt(id="x1", text="ab"), Prompt(id="x2", text="ca"))
GRAMS = [*LETTERS, *("".join(pair) for pair in itertools.product(LETTERS, LETTERS))]


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """One token a letter; `<eos>` is 0."""
    core = Tokenizer(models.WordLevel({s: i for i, s in enumerate(("<eos>", *LETTERS))}, unk_token="<eos>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>", pad_token="<eos>")


def language(seed: int = 0, hidden: int = 32) -> LanguageModel:
    """A random transformer over the letters."""
    return LanguageModel(llama(4, hidden=hidden, seed=seed), letter_tokenizer(), name="letters")


def sequences() -> list[tuple[int, ...]]:
    """All 121 completions: up to three letters and an end, or four letters, cut off."""
    ended = [(*s, 0) for n in range(LONGEST) for s in itertools.product((1, 2, 3), repeat=n)]
    return [*ended, *itertools.product((1, 2, 3), repeat=LONGEST)]


def text_of(ids: tuple[int, ...]) -> str:
    return "".join(LETTERS[i - 1] for i in ids if i)


def counts(ids: tuple[int, ...]) -> Tensor:
    """How often each letter and each pair of letters stands in a completion (12,)."""
    text = text_of(ids)
    found = Counter([*text, *(a + b for a, b in itertools.pairwise(text))])
    return torch.tensor([float(found[gram]) for gram in GRAMS])


class Counting:
    """A body whose state is what a completion contains so far, beside which prompt it answers."""

    def hidden(self, rows: list[Row]) -> Tensor:
        """States (N, 14) before every masked-in token."""
        states = []
        for row in rows:
            prompt = torch.tensor([float(text_of(row.prompt_ids) == p.text) for p in PROMPTS])
            states += [torch.cat([counts(row.completion_ids[:t]), prompt]) for t in range(len(row.completion_ids))]
        return torch.stack(states)


def counting_body() -> TextBody:
    """Frozen features in which the true reward is linear."""
    tokenizer = letter_tokenizer()
    return TextBody(body=Counting(), tokenizer=tokenizer, ends=(0,), size=14, base="counts", trained={})


class Table:
    """Exact log-probs of all completions in place of an engine: a policy that can be set, and its reference.

    Log-probs are (2, 121); that of a whole completion stands at its first token.
    """

    has_reference = True

    def __init__(self, reference: Tensor) -> None:
        self.reference, self.policy, self.version = reference, reference.clone(), 0
        self.actor = language()
        self.optim = ModelConfig()
        self.places = {s: i for i, s in enumerate(sequences())}

    def logps(self, rows: list[Row], who: str = "policy") -> list[Tensor]:
        """Log-probs (n,) of every row's tokens."""
        table = self.policy if who == "policy" else self.reference
        return [self._spread(row, table) for row in rows]

    def sample(self, count: int) -> list[Rollout]:
        """Every completion as often as `count` draws a prompt have it in expectation, rounded, at least one in all."""
        found = []
        for x, prompt in enumerate(PROMPTS):
            ids = tuple(self.actor.encode(prompt))
            for s, p in zip(sequences(), self.policy[x].exp().tolist(), strict=True):
                row = Row(prompt_ids=ids, completion_ids=s, mask=(True,) * len(s))
                one = Rollout(
                    prompt=prompt,
                    prompt_ids=ids,
                    completion_ids=s,
                    mask=row.mask,
                    logps=tuple(self._spread(row, self.policy).tolist()),
                    text=text_of(s),
                    stop=StopReason.EOS if s[-1] == 0 else StopReason.LENGTH,
                    group=prompt.id,
                    version=self.version,
                )
                found += [one] * round(count * p)
        return found

    def move(self, log_odds: Tensor) -> None:
        """Let the policy be another one: the softmax of these numbers (2, 121)."""
        self.policy = log_odds.log_softmax(-1)
        self.version += 1

    def rows(self) -> list[Row]:
        """Every completion of every prompt."""
        ids = [tuple(self.actor.encode(prompt)) for prompt in PROMPTS]
        return [Row(prompt_ids=p, completion_ids=s, mask=(True,) * len(s)) for p in ids for s in sequences()]

    def _spread(self, row: Row, table: Tensor) -> Tensor:
        whole = torch.zeros(len(row.mask))
        x = [prompt.text for prompt in PROMPTS].index(text_of(row.prompt_ids))
        whole[0] = table[x, self.places[row.completion_ids]]
        return whole


@dataclass(frozen=True)
class World:
    """The enumerated truth: reward (2, 121), log-probs of the reference (2, 121), and of the demonstrator."""

    beta: float
    reward: Tensor
    reference: Tensor

    @property
    def expert(self) -> Tensor:
        """log of ref exp(r / beta) / Z (2, 121)."""
        return (self.reference + self.reward / self.beta).log_softmax(-1)

    def divergence(self, policy: Tensor) -> float:
        """KL(demonstrator || policy), the mean over prompts."""
        return float((self.expert.exp() * (self.expert - policy)).sum(-1).mean())

    def demonstrations(self, each: int) -> list[tuple[Prompt, Completion]]:
        """Every completion as often as `each` draws of the demonstrator have it in expectation, rounded."""
        found = []
        for prompt, probabilities in zip(PROMPTS, self.expert.exp(), strict=True):
            for ids, p in zip(sequences(), probabilities.tolist(), strict=True):
                found += [(prompt, Completion(text=text_of(ids), finished=ids[-1] == 0))] * round(each * p)
        return found

    def spread(self, found: Tensor) -> float:
        """Deviation of a reward (2, 121) from its mean of each prompt, under the demonstrator."""
        p = self.expert.exp()
        return float((p * (found - (p * found).sum(-1, keepdim=True)).square()).sum(-1).mean().sqrt())

    def agreement(self, found: Tensor) -> float:
        """Correlation with the true reward up to a constant per prompt, under demonstrator and reference alike."""
        return agreement(found, self.reward, self.expert.exp() + self.reference.exp())


def world(reference: Tensor, *, beta: float = 0.5, seed: int = 0) -> World:
    """A reward that is linear in what a completion contains, above a reference (2, 121)."""
    weights = torch.randn(len(GRAMS), generator=torch.Generator().manual_seed(seed))
    reward = 0.35 * torch.stack([counts(s) for s in sequences()]) @ weights
    return World(beta=beta, reward=reward.expand(2, -1), reference=reference)


def table_of(engine: Engine, who: str = "reference") -> Tensor:
    """Log-probs (2, 121) of all completions under a real engine's policy or reference."""
    found = [x.sum() for x in engine.logps(Table(torch.zeros(2, 121)).rows(), who)]
    return torch.stack(found).reshape(len(PROMPTS), -1)


def engine_of(policy: LanguageModel, lr: float = 3e-3) -> Engine:
    """An engine that samples completions of at most four letters."""
    sampling = SamplingConfig(max_new_tokens=LONGEST)
    return Engine(policy, ModelConfig(lr=lr), sampler=policy, sampling=sampling, reference=True)


def agreement(found: Tensor, truth: Tensor, weights: Tensor) -> float:
    """Correlation of two rewards (2, 121) up to a constant per prompt, under weights (2, 121) of the completions."""
    weights = weights / weights.sum(-1, keepdim=True)
    sides = [x - (weights * x).sum(-1, keepdim=True) for x in (found, truth)]
    covariance = (weights * sides[0] * sides[1]).sum()
    spreads = [(weights * x * x).sum().sqrt() for x in sides]
    return float(covariance / (spreads[0] * spreads[1]).clamp(min=1e-12))
