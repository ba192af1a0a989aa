"""A teacher's word for every token teaches what rewards alone do not: on tiny transformers that copy digits."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from tiny import digit_tokenizer, llama

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.teacher import Teacher
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer, learn_completions
from prefrl.recipes.common import batches
from prefrl.recipes.rl import Unrewarded
from prefrl.recipes.teaching import Teaching
from prefrl.types import Prompt, Row, Score

TOKENIZER = digit_tokenizer()
SEEDS = [0, pytest.param(1, marks=pytest.mark.slow)]
ROLLOUTS = 32  # a step, whatever the size of a group
SECRET = "7083914562"  # what each digit becomes in the task that cannot be guessed


class Exact:
    """1 for exactly the answer."""

    def score(self, rollouts):
        return [Score(value=float(r.text == r.prompt.columns["answer"])) for r in rollouts]

    def update(self, rollouts, scores):
        return {}


class Unpaid(Unrewarded):
    def update(self, rollouts, scores):
        return {}


@dataclass
class Task:
    """Questions of some digits: 300 to train on, and 300 others."""

    digits: int
    train: list[Prompt]
    held_out: list[Prompt]

    @property
    def sampling(self):
        return SamplingConfig(max_new_tokens=self.digits + 1)

    def success(self, policy, prompts=None):
        rollouts = policy.sample(prompts or self.held_out, 1, self.sampling, seed=7)
        scores = Exact().score(rollouts)
        return sum(score.total for score in scores) / len(scores)

    def distance(self, policy, teacher):
        """KL to the teacher per token of what the policy itself writes."""
        rollouts = policy.sample(self.held_out, 1, self.sampling, seed=8)
        return Teaching(Teacher.other(teacher, policy)).kl(policy, rollouts, temperature=1.0, token_budget=2048)


def task(digits, seed, answer=lambda question: question):
    rng = random.Random(seed)
    questions = [f"{n:0{digits}d}" for n in rng.sample(range(10**digits), 600)]
    prompts = [Prompt(id=q, text=f"{q}=", columns={"answer": answer(q)}) for q in questions]
    return Task(digits, prompts[:300], prompts[300:])


def new(seed, hidden):
    return LanguageModel(llama(len(TOKENIZER), hidden=hidden, seed=seed), TOKENIZER, name="tiny")


def ids(text):
    return tuple(TOKENIZER(text)["input_ids"])


def supervised(model, draw, steps):
    """Train on `draw()`, pairs of a question and an answer, afresh in every step."""
    engine = Engine(model, ModelConfig(lr=3e-3, schedule="linear"), total_steps=steps)
    for _ in range(steps):
        pairs = [(ids(question), (*ids(answer), 0)) for question, answer in draw()]
        learn_completions(engine, [Row(prompt_ids=q, completion_ids=a, mask=(True,) * len(a)) for q, a in pairs])
    return model


def copier(digits, seed, steps, *, hidden=64, offset=100):
    """A model that learnt to copy from right answers; the fewer steps, the more often it errs."""
    rng = random.Random(seed)

    def draw():
        questions = [f"{rng.randrange(10**digits):0{digits}d}" for _ in range(32)]
        return [(f"{q}=", q) for q in questions]

    return supervised(new(offset + seed, hidden), draw, steps)


def optimize(policy, task, spec, source, seed, steps, *, teacher=None, shown=None, prompts=None):
    """On-policy updates; their rollouts, and the share of groups that failed as a whole."""
    algorithm = resolve(spec)
    engine = Engine(policy, ModelConfig(lr=3e-3), sampler=policy, sampling=task.sampling, teacher=teacher)
    optimizer = PolicyOptimizer(engine, source, algorithm, teacher_prompt=shown)
    feed = batches(prompts or task.train, ROLLOUTS // algorithm.group_size, seed)
    results = [optimizer.step(next(feed), seed=seed * 100_000 + step) for step in range(steps)]
    failed = [result.metrics.get("groups/all_fail", 0.0) for result in results]  # groups of one have no such figure
    return [rollout for result in results for rollout in result.rollouts], sum(failed) / steps


def imitate(policy, teacher, task, prompts, seed, tokens):
    """Supervised learning on one fixed answer of the teacher to each prompt, for so many tokens."""
    answers = teacher.sample(prompts, 1, task.sampling, seed=seed)
    rows = [Row(prompt_ids=r.prompt_ids, completion_ids=r.completion_ids, mask=r.mask) for r in answers]
    engine, feed = Engine(policy, ModelConfig(lr=3e-3)), batches(rows, ROLLOUTS, seed)
    while tokens > 0:
        batch = next(feed)
        learn_completions(engine, batch)
        tokens -= sum(sum(row.mask) for row in batch)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_student_reaches_its_teacher_and_beats_learning_from_fixed_answers(seed):
    copying = task(4, seed)
    teacher, student, imitator = copier(4, seed, steps=200), new(seed, hidden=32), new(seed, hidden=32)
    prompts = copying.train[:32]
    taught = Teacher.other(teacher, student)
    rollouts, _ = optimize(student, copying, "opd", Unpaid(), seed, 160, teacher=taught, prompts=prompts)
    imitate(imitator, teacher, copying, prompts, seed, tokens=sum(sum(r.mask) for r in rollouts))

    best, own, imitated = (copying.success(model) for model in (teacher, student, imitator))
    near, far = (copying.distance(model, teacher) for model in (student, imitator))
    print(f"success: teacher {best:.3f}, on-policy {own:.3f}, imitation {imitated:.3f}; KL {near:.4f} and {far:.4f}")
    assert best > 0.9 and own >= best - 0.03
    assert own > imitated + 0.05
    assert near < 0.5 * far and near < 0.02


@pytest.mark.parametrize("seed", SEEDS)
def test_the_sampled_form_reaches_the_teacher_from_a_start_that_is_not_random(seed):
    copying = task(4, seed)
    teacher, student = copier(4, seed, steps=200), copier(4, seed, steps=90, hidden=32, offset=0)
    before, best = copying.success(student), copying.success(teacher)
    spec = {"name": "opd", "distill": {"form": "sampled"}}
    optimize(student, copying, spec, Unpaid(), seed, 200, teacher=Teacher.other(teacher, student))
    after = copying.success(student)
    print(f"success: before {before:.3f}, after {after:.3f}, teacher {best:.3f}")
    assert before < 0.15 and after >= best - 0.05


def with_solution(prompt):
    return replace(prompt, text=f"{prompt.columns['answer']},{prompt.text}")


def coded_task(seed):
    """A code that cannot be guessed, and a policy that copies a solution when it is shown one."""
    coded = task(3, seed, lambda question: "".join(SECRET[int(digit)] for digit in question))
    rng = random.Random(seed)

    def draw():
        """Copy a solution that stands before the question; without one, answer digits of it or any others."""
        pairs = []
        for i in range(32):
            question, other = f"{rng.randrange(1000):03d}", f"{rng.randrange(1000):03d}"
            mixed = "".join(rng.choice(pair) for pair in zip(question, other, strict=True))
            pairs.append((f"{other},{question}=", other) if i % 2 else (f"{question}=", mixed))
        return pairs

    return coded, supervised(new(seed, hidden=64), draw, steps=300)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_solution_in_the_prompt_lifts_a_task_whose_groups_all_fail(seed):
    coded, warm = coded_task(seed)
    policies = [Teacher.frozen_copy(warm).model for _ in range(2)]
    for policy in policies:
        policy.module.requires_grad_(True)
    distilled, rewarded = policies
    before, shown = coded.success(warm), coded.success(warm, [with_solution(p) for p in coded.held_out])
    optimize(
        distilled,
        coded,
        "opsd",
        Unpaid(),
        seed,
        48,
        teacher=Teacher.frozen_copy(distilled),
        shown=lambda rollout: distilled.encode(with_solution(rollout.prompt)),
    )
    spec = {"name": "grpo", "group_size": 8, "kl": {"coef": 0.0}}
    _, failed = optimize(rewarded, coded, spec, Exact(), seed, 48)

    after, alone = coded.success(distilled), coded.success(rewarded)
    print(f"success: before {before:.3f}, shown {shown:.3f}, opsd {after:.3f}, grpo {alone:.3f}; failed {failed:.3f}")
    assert before < 0.02 and shown > 0.9 and failed > 0.95
    assert after > 0.9  # without the solution, on questions never trained on
    assert alone < 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_teacher_and_a_reward_together_do_better_than_either(seed):
    copying = task(4, seed)
    teacher = copier(4, seed, steps=80)
    rewarded = {"name": "rloo", "group_size": 8, "kl": {"coef": 0.0}, "reduction": "token_mean"}
    runs = {
        "teacher": ("opd", Unpaid()),
        "reward": (rewarded, Exact()),
        "both": ({**rewarded, "distill": {"coef": 0.1}}, Exact()),
    }
    found = {}
    for name, (spec, source) in runs.items():
        student = new(seed, hidden=32)
        optimize(student, copying, spec, source, seed, 200, teacher=Teacher.other(teacher, student))
        found[name] = copying.success(student)
    best = copying.success(teacher)
    print(f"success: teacher {best:.3f}, students {found}")
    assert found["reward"] < 0.05  # one right answer in 10^5 from random weights
    assert abs(found["teacher"] - best) < 0.05
    assert found["both"] > best + 0.08
