"""Small labelling projects for tests."""

from __future__ import annotations

from prefrl.data.comparisons import Item, StepItem
from prefrl.types import Completion, Prompt


def chat(text, id=None):
    return Prompt(id=id or text, messages=({"role": "user", "content": text},))


def pair(question="q", first="one", second="two", **more):
    return Item(prompt=chat(question), first=Completion(text=first), second=Completion(text=second), **more)


def text_pair(question="q", first="one", second="two", **more):
    prompt = Prompt(id=question, text=question)
    return Item(prompt=prompt, first=Completion(text=first), second=Completion(text=second), **more)


def solution(question="1+1+1?", steps=("1+1=2", "2+1=3", "so 3"), **more):
    return StepItem(prompt=chat(question), steps=tuple(steps), **more)
