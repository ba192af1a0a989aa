"""One-step word problems, and small records to write as JSON, made from templates: there is nothing to download."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

Row = dict[str, Any]

NAMES = ("Ben", "Ines", "Omar", "Lea", "Tariq", "Mina", "Jonas", "Aiko", "Pavel", "Rosa", "Emil", "Nadia")
THINGS = ("marbles", "stamps", "apples", "shells", "cards", "pencils", "buttons", "coins", "beads", "tickets")
TOWNS = ("Lisbon", "Oslo", "Kyoto", "Quito", "Accra", "Riga", "Porto", "Hanoi", "Lima", "Turin")
JOBS = ("baker", "nurse", "pilot", "farmer", "tailor", "dentist", "painter", "chemist")


class Story(NamedTuple):
    """What is told, with `{a}` and `{b}` for the numbers, and what they have to be joined by."""

    kind: str
    text: str
    sign: str


STORIES = (
    Story("win", "{name} has {a} {thing} and wins {b} more. How many {thing} does {name} have now?", "+"),
    Story("two people", "{name} has {a} {thing}. {other} has {b} {thing}. How many do they have together?", "+"),
    Story("two days", "{name} sold {a} {thing} on Monday and {b} on Tuesday. How many {thing} were sold?", "+"),
    Story("put in", "There are {a} {thing} in a box. {name} puts {b} more in. How many are in the box?", "+"),
    Story("older", "{name} collected {a} {thing}. {other} collected {b} more than {name}. How many has {other}?", "+"),
    Story("before", "{name} gave away {b} {thing} and has {a} left. How many {thing} were there at first?", "+"),
    Story("lose", "{name} had {a} {thing} and lost {b} of them. How many {thing} are left?", "-"),
    Story("give", "{name} has {a} {thing} and gives {other} {b}. How many {thing} does {name} still have?", "-"),
    Story("differ", "{name} has {a} {thing} and {other} has {b}. How many more {thing} does {name} have?", "-"),
    Story("need", "{name} needs {a} {thing} and has {b}. How many {thing} are missing?", "-"),
    Story("change", "A game costs {b} dollars. {name} pays with {a} dollars. How many dollars come back?", "-"),
    Story("found", "{name} had {b} {thing} and found some more. Now there are {a}. How many were found?", "-"),
    Story("boxes", "There are {a} boxes with {b} {thing} each. How many {thing} are there in all?", "*"),
    Story("price", "Each of {name}'s {a} {thing} cost {b} dollars. How many dollars did they cost in all?", "*"),
    Story("rows", "{name} lays {a} rows of {b} {thing}. How many {thing} is that?", "*"),
    Story("weeks", "{name} makes {b} {thing} a day. How many {thing} does {name} make in {a} days?", "*"),
    Story("share", "{name} shares {a} {thing} equally among {b} friends. How many does each one get?", "/"),
    Story("packs", "{name} has {a} {thing} and fills bags of {b}. How many bags does {name} fill?", "/"),
    Story("each", "{b} {thing} cost {a} dollars. How many dollars does one of them cost?", "/"),
    Story("teams", "{a} children make {b} equal teams. How many children are in each team?", "/"),
)
HELD_OUT_STORIES = ("before", "need", "rows", "packs")  # one for each sign


def word_problems(each: int = 30) -> list[Row]:
    """`each` problems of every story, with the equation as a `completion`; by chance, but always the same."""
    rng = random.Random(0)
    return [_problem(story, number, rng) for story in STORIES for number in range(each)]


def by_story(row: Row) -> bool:
    """Whole kinds of stories are held out, so that knowing one by its words is of no use."""
    return row["story"] in HELD_OUT_STORIES


def _problem(story: Story, number: int, rng: random.Random) -> Row:
    a, b, answer = _numbers(story.sign, rng)
    name, other = rng.sample(NAMES, 2)
    question = story.text.format(a=a, b=b, name=name, other=other, thing=rng.choice(THINGS))
    return {
        "id": f"word-problems-{story.kind.replace(' ', '-')}-{number}",
        "prompt": [{"role": "user", "content": question}],
        "completion": f"{a} {story.sign} {b} = {answer}",
        "answer": str(answer),
        "story": story.kind,
    }


def _numbers(sign: str, rng: random.Random) -> tuple[int, int, int]:
    if sign == "+":
        a, b = rng.randint(2, 60), rng.randint(2, 40)
        return a, b, a + b
    if sign == "-":
        b, answer = rng.randint(2, 40), rng.randint(1, 50)
        return b + answer, b, answer
    a, b = rng.randint(2, 9), rng.randint(2, 9)
    return (a, b, a * b) if sign == "*" else (a * b, b, a)


def records(each: int = 6) -> list[Row]:
    """Sentences about people, to be written as JSON with the keys name, age, town and job."""
    rng = random.Random(1)
    return [_record(name, town, rng) for name in NAMES for town in TOWNS for _ in range(each // 3)]


def by_town(row: Row) -> bool:
    """Whole towns are held out."""
    return json.loads(row["answer"])["town"] in TOWNS[-3:]


def _record(name: str, town: str, rng: random.Random) -> Row:
    age, job = rng.randint(18, 79), rng.choice(JOBS)
    truth: Row = {"name": name, "age": age, "town": town, "job": job}
    told = f"{name} is {age} years old, lives in {town} and works as a {job}."
    how = "Write this as a JSON object with the keys name, age, town and job, and nothing else."
    return {
        "id": f"records-{name}-{town}-{age}-{job}",
        "prompt": [{"role": "user", "content": f"{told} {how}"}],
        "answer": json.dumps(truth),
        "schema": json.dumps(
            {
                "type": "object",
                "properties": {key: {"const": value} for key, value in truth.items()},
                "required": list(truth),
                "additionalProperties": False,
            }
        ),
    }
