"""The ready project."""

from __future__ import annotations

from collections import Counter

from annotating import place

from annotate.api.views import view
from annotate.demo import fill, tasks
from prefrl.data.comparisons import Item
from prefrl.data.store import Assignment


def test_the_demo_has_every_kind_of_item_and_text():
    made, gold = tasks()
    kinds = Counter("clips" if isinstance(task, Item) and task.clips else task.kind for task in made)
    assert kinds["pair"] >= 40 and min(kinds["steps"], kinds["check"]) >= 4 and kinds["clips"] == 2
    assert len({task.id for task in made}) == len(made) and set(gold) <= {task.id for task in made}
    texts = [text for task in made if isinstance(task, Item) for text in (task.first.text, task.second.text)]
    everything = "\n".join(texts)
    for part in (
        "```python",
        "| source |",
        "\\frac",
        "\\[",
        "<think>",
        "List<int>",
        "\u53f6\u5b50",
        "\u0627\u0644",
        "\u05e7",
    ):
        assert part in everything, part
    assert any(task.prompt.messages and len(task.prompt.messages) >= 3 for task in made)
    assert any(not task.second.finished for task in made if isinstance(task, Item))


def test_nothing_of_the_demo_is_left_out_when_it_is_drawn():
    notes = []
    for task in tasks()[0]:
        place_ = Assignment(id="0" * 32, item=task.id, person="ann", exchanged=False, state="leased", lease_until=0.0)
        notes += [task.prompt.question for _ in [0] if 'class="note"' in str(view(place_, task))]
    assert notes == []


def test_a_project_is_filled_once(tmp_path):
    with place(tmp_path) as there:
        assert fill(there.store) == len(tasks()[0])
        assert fill(there.store) == 0
        assert there.store.settings().name == "Demo"
        assert len(there.enter("ann").next(2)) == 2
