"""Finding the code in a completion."""

from __future__ import annotations

import pytest

from prefrl.rewards.verifiers.code_text import blocks, extract_code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f(): pass", "def f(): pass"),
        ("    return 1\n", "    return 1\n"),
        ("A\n```python\nx = 1\n```\nB", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("~~~py\nx = 1\n~~~", "x = 1\n"),
        ("```python\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n"),
        ("```python\ndef f(): pass\n```\nUse it:\n```python\nf()\n```", "def f(): pass\n"),
        ("```python\nclass f: pass\n```\n```python\nprint(g)\n```", "class f: pass\n"),
        ("```python\nx = 1\n```\n```bash\nrm -rf x\n```", "x = 1\n"),
        ("```python\nx = '''\n```text\n'''\n", "x = '''\n```text\n'''\n"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("```python title=a\nx = 1", "x = 1"),
        ("<think>```python\nx = 0\n```</think>```python\nx = 1\n```", "x = 1\n"),
        ("<think>```python\nx = 0\n```</think>\n\nx = 1", "\n\nx = 1"),
        ("```bash\nls\n```", None),
        ("```python\n```", None),
        ("<think>I wonder\n```python\nx = 1\n```", None),
        ("  \n", None),
    ],
)
def test_extraction(text: str, code: str | None) -> None:
    assert extract_code(text, ["f"]) == code


def test_blocks() -> None:
    assert blocks("```c++\na\n```\n~~~\nb\n```\n~~~") == [("c++", "a\n"), ("", "b\n```\n")]
