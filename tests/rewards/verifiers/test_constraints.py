from __future__ import annotations

import time

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.recipes.golds import gold_figures
from prefrl.rewards.verifiers.constraints import CHECKS, constraints, follows
from prefrl.rewards.verifiers.constraints.sentences import count_sentences
from prefrl.types import Prompt

ENGLISH = "the weather is nice today and we walk along the river with our friends"

# constraint, arguments, a text that follows it, one that does not
CASES = [
    ("keywords:existence", {"keywords": ["Moss", "fern"]}, "A fern and some moss.", "A fern."),
    ("keywords:frequency", {"keyword": "oak", "frequency": 2, "relation": "at least"}, "Oak by oak", "oak"),
    ("keywords:frequency", {"keyword": "oak", "frequency": 2, "relation": "less than"}, "Oak", "oak oak"),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "A rocket", "A Rock fell"),
    ("keywords:letter_frequency", {"letter": "e", "let_frequency": 2, "let_relation": "at least"}, "Every", "one"),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 1, "let_relation": "less than"}, "no", "no!"),
    ("language:response_language", {"language": "de"}, "Das Wetter ist heute schön und wir gehen spazieren", ENGLISH),
    ("language:response_language", {"language": "kn"}, "ಇಂದು ಹವಾಮಾನ ಚೆನ್ನಾಗಿದೆ", ENGLISH),
    ("language:response_language", {"language": "zh"}, "今天天气很好。我们沿着河边散步。", ENGLISH),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"}, "One. Two!", "One only."),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One\n***\nTwo", "One\n***\nTwo\n***\nThree"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "two words", "these are three"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "moss"},
        'Ferns.\n\n"Moss" grows.',
        "Moss.\n\nFerns.",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] at [place]", "[name]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP. S. I wait.", "Bye."),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\np.p.s wait", "Bye.\nP.S. wait"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n* b\n* c"),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "My answer is yes. My answer is no."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and *b*", "*a* and **"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        "Section 1\na",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a: 1}"),
    ("detectable_format:title", {}, "<<On moss>>\nMoss.", "<< >>\nMoss."),
    ("combination:two_responses", {}, "One.\n******\nTwo.", "One.\n******\nOne."),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say moss."}, "say moss. Moss.", "Moss. Say moss."),
    ("startend:end_checker", {"end_phrase": "That is all."}, 'So. "that is all."', "That is all. Or not?"),
    ("startend:quotation", {}, '"Moss."', '"Moss.'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "MOSS and FERN",
        "Moss and FERN",
    ),
    ("change_case:english_capital", {}, ENGLISH.upper(), ENGLISH),
    ("change_case:english_lowercase", {}, ENGLISH, ENGLISH.title()),
    ("punctuation:no_comma", {}, "Moss; fern", "Moss, fern"),
]


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), CASES)
def test_each_constraint_tells_good_from_bad(name, arguments, good, bad):
    assert follows(good, name, arguments)
    assert not follows(bad, name, arguments)


def test_all_25_are_tried_and_none_is_met_by_nothing():
    assert {name for name, *_ in CASES} == set(CHECKS)
    assert len(CHECKS) == 25
    assert [name for name, arguments, *_ in CASES for text in ("", " \n") if follows(text, name, arguments)] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dr. Moss paid 3.50 to J. K. Fern. She left!", 2),
        ("See www.moss.org. It is good", 2),
        ("1. Moss\n2. Fern", 1),
        ("What?! Really...", 2),
        ("今天很好。我们走吧。", 2),
        ("Heading\n\nText.", 2),
        ("...", 0),
        ("هل أنت هنا؟ نعم\u06d4", 2),
        ("आज मौसम अच्छा है। हम चलते हैं।", 2),
        ("Wait… what", 2),
    ],
)
def test_sentences(text, count):
    assert count_sentences(text) == count


def test_credit_is_a_fraction_or_all_and_the_strict_value_is_always_there(rollout):
    names = ["punctuation:no_comma", "startend:quotation"]
    asked = rollout("no comma here", instruction_id_list=names, kwargs=[{}, {"num_words": None}])
    (some,) = constraints().verdicts([asked])
    assert (some.score, some.parts) == (0.5, {"fraction": 0.5, "strict": 0.0})
    assert some.evidence == "1: startend:quotation"
    (none,) = constraints(partial="all").verdicts([asked])
    assert (none.score, none.parts) == (0.0, {"fraction": 0.5, "strict": 0.0})


def test_the_loose_rule_forgives_a_first_and_a_last_line_and_stars(rollout):
    assert not follows('Sure:\n"Moss."', "startend:quotation")
    assert follows('Sure:\n"Moss."\nAnything else?', "startend:quotation", loose=True)
    assert follows("**{}**", "detectable_format:json_format", loose=True)
    asked = rollout('Sure:\n"Moss."', instruction_id_list=["startend:quotation"])
    assert [constraints(loose=loose).score([asked])[0].value for loose in (False, True)] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("punctuation:no_coma", {}, "unknown constraint 'punctuation:no_coma'.*Did you mean 'punctuation:no_comma'"),
        ("length_constraints:number_words", {"num_words": 3, "relation": "about"}, "unknown relation 'about'"),
        ("length_constraints:number_words", {"num_words": 3}, "got the arguments .*expected .*'relation'"),
        ("language:response_language", {"language": "xx"}, "unknown language 'xx'"),
        ("keywords:existence", {"keywords": "moss"}, "keywords='moss'; expected a list of words"),
        ("keywords:existence", {"keywords": ["moss", ""]}, "expected a list of words, none of them empty"),
        ("keywords:forbidden_words", {"forbidden_words": []}, "expected a list of words"),
        ("startend:end_checker", {"end_phrase": " "}, "expected a text that is not empty"),
        ("detectable_content:postscript", {"postscript_marker": ""}, "expected a text that is not empty"),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 2.5}, "expected a whole number"),
        ("length_constraints:number_paragraphs", {"num_paragraphs": float("inf")}, "expected a whole number"),
        ("length_constraints:number_paragraphs", {"num_paragraphs": "2"}, "expected a whole number"),
    ],
)
def test_what_is_not_known_is_an_error_and_neither_passes_nor_fails(rollout, name, arguments, said):
    asked = rollout("some words here", instruction_id_list=[name], kwargs=[arguments])
    with pytest.raises(RewardError, match=said):
        constraints().score([asked])
    with pytest.raises(RewardError, match=said):  # before anything is learnt
        gold_figures(constraints(), [Prompt(id="p", text="q", columns=asked.prompt.columns)])


def test_wrong_settings_and_columns(rollout):
    with pytest.raises(ConfigError, match="partial='half'"):
        constraints(partial="half")
    with pytest.raises(RewardError, match="expected a list with at least one name"):
        constraints().score([rollout("a", instruction_id_list=[])])
    with pytest.raises(RewardError, match="expected a mapping for each"):
        constraints().score([rollout("a", instruction_id_list=["punctuation:no_comma"], kwargs=[{}, {}])])


def test_the_same_text_gets_the_same_verdict_every_time():
    said = [follows("ok tak da", "language:response_language", {"language": "pl"}) for _ in range(20)]
    assert len(set(said)) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "text", "followed"),
    [
        ("keywords:forbidden_words", {"forbidden_words": ["C++"]}, "I like C++ more.", False),
        ("keywords:forbidden_words", {"forbidden_words": ["C++"]}, "I like C more.", True),
        ("keywords:forbidden_words", {"forbidden_words": ["a.b"]}, "axb", True),
        ("keywords:forbidden_words", {"forbidden_words": ["下雨"]}, "今天下雨了", False),
        ("keywords:existence", {"keywords": ["C++"]}, "C++ it is", True),
        ("detectable_format:constrained_response", {}, "my answer is NO.", True),
        ("detectable_format:json_format", {}, '{"a": NaN}', False),
        ("detectable_format:json_format", {}, "```JSON\n[1]\n```", True),
        ("detectable_format:title", {}, ">> <<", False),
        ("detectable_format:title", {}, "<<<\t>>", False),
        ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[[a] b] [c\nd]", False),
        ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "\n\n * a\n\n\t- b\n** c", True),
        ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "*\n* b", True),  # as published: one match
        (
            "length_constraints:nth_paragraph_first_word",
            {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "moss"},
            "Ferns.\n\n\n\nMoss.",
            True,
        ),
        ("combination:repeat_prompt", {"prompt_to_repeat": "Say moss."}, "Say moss.", True),
        ("change_case:english_capital", {}, "\u4eca\u5929", False),
    ],
)
def test_edges(name, arguments, text, followed):
    assert follows(text, name, arguments) == followed


HOSTILE = (
    *("\n", "x\n", " ", "a", "[", "<<a", "*a", "\n*", "\n 1", "***\n", "p. "),
    *("好", "😀", "\ud800", "1. \n", "``` ", '{"a":'),
)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_no_text_takes_long(name):
    arguments = next(arguments for case, arguments, *_ in CASES if case == name)
    for piece in HOSTILE:
        start = time.process_time()
        follows("x" + piece * (100_000 // len(piece)) + "x", name, arguments)
        assert time.process_time() - start < 1.0, piece
