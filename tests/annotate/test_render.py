"""What a model wrote, as people see it: all of it, drawn where it can be, and nothing that runs, loads or covers."""

from __future__ import annotations

import html
import random
import re
import time

import pytest

from annotate import render as module
from annotate.maths import MOST_CHARACTERS, is_maths, to_mathml
from annotate.render import MOST_CHARACTERS as MOST
from annotate.render import render, visible


def shown(made):
    """The text that is seen: formulas as their source, numbers of lists as the page writes them."""
    made = re.sub(r'<math alttext="([^"]*)".*?</math>', r"\1", made, flags=re.DOTALL)
    made = re.sub(r'<li value="(\d+)"[^>]*>', r"\1", made)
    return html.unescape(re.sub(r"<[^>]*>", "", made))


PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    '<div style="position:fixed;inset:0;background:#fff">over the buttons</div>',
    '<form action="https://evil.example/x"><input name=q><button>Vote</button></form>',
    "![beacon](https://evil.example/pixel.png)",
    "[click](javascript:alert(1))",
    "[click](data:text/html,<script>alert(1)</script>)",
    '[a](https://x.example "onmouseover=alert(1)")',
    "<iframe src=https://evil.example></iframe>",
    "<a href=javascript:alert(1)>x</a>",
    r"$\href{javascript:alert(1)}{x}$",
    r"$\style{position:fixed}{x}$",
    r"$\text{</mtext><img src=x onerror=alert(1)>}$",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "```html\n<script>alert(1)</script>\n```",
    '<span id="vote" class="vote">x</span>',
]


@pytest.mark.parametrize("text", PAYLOADS)
def test_nothing_of_a_text_runs_loads_or_covers(text):
    made = render(text)
    inside_tags = " ".join(re.findall(r"<[^>]*>", re.sub(r'alttext="[^"]*"', "", made))).lower()
    for word in (
        "script",
        "onerror",
        "onload",
        "onmouseover",
        "style",
        "form",
        "img",
        "iframe",
        "svg",
        "input",
        "src=",
    ):
        assert word not in inside_tags
    assert not re.search(r'\sid="|class="vote|javascript:|data:', inside_tags)
    assert set(re.findall(r'href="([^"]*)"', made)) <= {"https://x.example"}
    letters = re.sub(r"\W", "", text)
    assert all(c in shown(made) for c in letters)


def test_links_say_where_they_lead_and_tell_nobody():
    assert render("[paper](https://a.example/x)") == (
        '<p dir="auto"><a href="https://a.example/x" target="_blank" rel="noopener noreferrer nofollow">paper</a> '
        '<span class="address">(https://a.example/x)</span></p>\n'
    )
    assert "(https://a.example)" not in render("<https://a.example>")
    assert "href" not in render("[out](/logout)")
    assert shown(render("[out](/logout)")) == "out (/logout)\n"


def test_pictures_are_words():
    assert render("![a cat](https://a.example/cat.png)") == (
        '<p dir="auto"><span class="picture">a cat</span> <span class="address">(https://a.example/cat.png)</span></p>\n'
    )


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        (r"so \(a^2\) is", "a^2"),
        (r"so \[a^2\] is", "a^2"),
        ("so $a^2$ is", "a^2"),
        ("so $$a^2$$ is", "a^2"),
        ("so:\n\\[\na^2\n- b\n= c\n\\]\nand", "a^2\n- b\n= c"),
        ("$$\na^2\n$$", "a^2"),
        ("- item\n  $$\n  a^2\n  $$", "a^2"),
        ("> \\[ a^2 \\]", "a^2"),
        ("the $n$th term", "n"),
        ("\\begin{align}a&=1\\\\b&=2\\end{align}", r"\begin{align}a&amp;=1\\b&amp;=2\end{align}"),
        ("| a |\n|---|\n| $x$ |", "x"),
        ("costs $5 and $6, and $x$", "x"),
        (r"$5\%$", r"5\%"),
        ("$a%b$", "a%b"),
    ],
)
def test_mathematics_is_drawn(text, formula):
    made = render(text)
    assert made.count("<math ") == 1
    assert f'alttext="{formula}"' in made


@pytest.mark.parametrize(
    "text",
    [
        "costs $5 and $6",
        "from $5-$6 to $1,000",
        "I have $5 and you have 10$.",
        "US$5 and A$6",
        "$HOME/bin:$PATH",
        "between $10M and 20$",
        "`$x$` and `$y$`",
        "$ x $",
        r"it costs \$5 and \$6",
        "$100 for the first and $200 for the second",
        "a $ b $ c",
    ],
)
def test_prices_are_no_mathematics(text):
    made = render(text)
    assert "<math" not in made
    assert shown(made).replace(" ", "").strip() == text.replace("`", "").replace("\\", "").replace(" ", "")


@pytest.mark.parametrize("text", [r"$\frac{$", r"$\nosuch x$", r"\(a", r"\[a", "$$", r"$\color{white}{x}\nosuch$"])
def test_mathematics_that_cannot_be_drawn_is_shown_as_written(text):
    made = render(text)
    assert "<math" not in made
    assert shown(made).strip() == text


def test_mathematics_loses_nothing_and_invents_nothing():
    assert to_mathml("a%b", display=False) is not None
    assert "(1)" not in to_mathml(r"\begin{align}a&=1\end{align}", display=True)
    assert to_mathml(r"\tag{7} x \label{lost}", display=False) is None
    assert to_mathml("x" * (MOST_CHARACTERS + 1), display=False) is None
    assert to_mathml("{" * 1900 + "}" * 1900, display=False) is None
    assert is_maths("x^2") and not is_maths(" x") and not is_maths("5 and more words")


def test_mathematics_cannot_leave_its_place():
    made = render(
        r"$a\hspace{1000em}b$ $\color{white}{hidden}$ $\phantom{gone}$ $\Huge x$ $\xrightarrow{f}$ $\hspace{1em}$"
    )
    assert made.count("<math ") == 6
    assert 'width="1em"' in made
    for attribute in ("1000em", "mathcolor", "mphantom", "mathsize", "voffset"):
        assert attribute not in re.sub(r'alttext="[^"]*"', "", made)
    for word in ("hidden", "gone"):
        assert word in re.sub(r"<[^>]*>", "", made)


def test_think_is_folded_and_kept():
    assert render("<think>x</think>y") == (
        '<details class="think" dir="auto"><summary dir="auto">&lt;think&gt;</summary><p dir="auto">x</p>\n</details>'
        '<p dir="auto">y</p>\n'
    )
    assert "cut off here" in render("<think>\ncut off here")
    assert "<details" not in render("```\n<think>x</think>\n```")
    assert "&lt;think&gt;" in render("It said <think>x</think> first")
    assert "<details" in render("```\ncode\n```\n<think>x</think>")


def test_generics_line_breaks_and_lists_are_kept():
    text = "Use List<int> and Map<String, T> where a < b"
    assert render(text) == f'<p dir="auto">{html.escape(text)}</p>\n'
    assert render("a\nb") == '<p dir="auto">a<br>b</p>\n'
    assert '<li value="3" dir="auto">a</li>\n<li value="7" dir="auto">b</li>' in render("3. a\n7. b")
    assert render("[foo]: /url 'title'") == "<p dir=\"auto\">[foo]: /url 'title'</p>\n"
    assert shown(render("write &lt; for <")).strip() == "write &lt; for <"


def test_code_keeps_tabs_and_names_its_language():
    made = render("```python title=x\nif a<b:\n\treturn  1\n```")
    assert '<span class="language">python title=x</span>' in made
    assert '<code dir="ltr">if a&lt;b:\n\treturn  1\n</code>' in made


def test_what_nobody_sees_is_spelt_out():
    assert shown(render("a\u202eb\u2066c\x00d\ud800e\U000e0041")) == (
        "a\u27e8U+202E\u27e9b\u27e8U+2066\u27e9c\u27e8U+0000\u27e9d\u27e8U+D800\u27e9e\u27e8U+E0041\u27e9\n"
    )
    arabic = "\u0645\u0631\u062d\u0628\u0627 \u200f\u0628"
    assert render(arabic) == f'<p dir="auto">{arabic}</p>\n'
    assert "\u202e" not in render("`\u202e`") + render("[a](http://x.example/\u202e)") + render("$a\u202e$")


@pytest.mark.parametrize(
    "text",
    [
        "> " * 40 + "deep",
        "".join(" " * (2 * n) + "- a\n" for n in range(60)),
        "| a |\n|---|\n| b | c | d |",
        "1. " * 50 + "deep",
    ],
)
def test_what_markdown_would_leave_out_is_shown_as_plain_text(text):
    made = render(text)
    assert made.startswith('<p class="note" dir="auto">Shown as plain text')
    assert text in html.unescape(made)


WORDS = ["word", "List<int>", "a", "**bold**", "*it*", "`code`", "$x^2$", r"\(y\)", "$5", "&amp;", "\\", "$$", "7"]
LINKS = ["[l](http://a.example)", "![p](http://b.example/c.png)", "<think>", "</think>", "~~gone~~", r"\frac{1}{2}"]
LINES = ["\n", "\n\n", "\n- ", "\n1. ", "\n> ", "\n# ", "\n```\n", "|", "\n|---|---|\n", "\t", "\u202e", "\n$$\n"]
MARKS = ["<", ">", "_", "*", "[", "]", "(", ")"]


@pytest.mark.parametrize("seed", range(150))
def test_every_letter_and_digit_is_visible(seed):
    rng = random.Random(seed)
    text = "".join(rng.choice(WORDS + LINKS + LINES + MARKS) + rng.choice(["", " "]) for _ in range(rng.randint(1, 60)))
    made = shown(render(text))
    expected = re.sub(r"</?think>", "", visible(text))
    for character in set(filter(str.isalnum, expected)):
        assert made.count(character) >= expected.count(character), (character, text)


@pytest.mark.parametrize("seed", range(30))
def test_text_without_markup_is_shown_character_by_character(seed):
    rng = random.Random(seed)
    marks = ".,;:?!@%+={}/'\"^()-"
    letters = "abzXYZ019\u00e4\u00df\u4f60\u597d\u0645\u05d0\u0e01\U0001f600\u2026\u20ac"
    text = "x" + "".join(rng.choice(marks + letters * 2 + "  \t") for _ in range(300))
    assert "".join(shown(render(text)).split()) == "".join(text.split())


def test_a_parser_that_fails_does_not_hide_the_text(monkeypatch):
    def fail():
        raise IndexError

    monkeypatch.setattr(module, "_markdown", fail)
    assert "never seen before" in render("never seen before")


def test_a_long_text_is_shown_whole_and_quickly():
    text = "<b>" + "word " * 2_000_000
    assert len(text) > 10_000_000 > MOST
    start = time.perf_counter()
    made = render(text)
    assert time.perf_counter() - start < 10
    assert html.escape(text) in made and made.startswith('<p class="note"')


@pytest.mark.parametrize(
    "unit", ["[", "![", "*a ", "`a", "> ", "- ", "<", "\\[\n", "$a ", "_*a*_", "[a](", "|a", "<think>", "{", "&", "***"]
)
def test_entangled_markdown_does_not_hang(unit):
    text = (unit * MOST)[: MOST // 4]
    start = time.perf_counter()
    made = render(text)
    assert time.perf_counter() - start < 10
    assert shown(made).count("a") >= text.count("a")


def test_the_second_time_comes_from_the_cache(monkeypatch):
    first = render("cached text")
    monkeypatch.setattr(module, "_render", lambda text: "made again")
    assert render("cached text") == first
    assert render("another text") == "made again"


def test_the_cache_forgets_what_was_used_least():
    cache = module._Cache(10)
    made = []

    def make(text):
        made.append(text)
        return text * 5

    for text in ("a", "b", "a", "c", "a", "b"):
        assert cache.get(text, make) == text * 5
    assert made == ["a", "b", "c", "b"]
