"""Datasets in, prompts and pairs out: reading, chat templates, splits."""

from prefrl.data.chat import encode_completion, encode_prompt, eos_ids
from prefrl.data.formats import to_completions, to_pairs, to_prompts, to_rankings, to_unpaired
from prefrl.data.judgements import pairs_of, resolve_ties, to_judgements, weigh_annotators
from prefrl.data.reading import Read, keep_within
from prefrl.data.splits import check_disjoint, split_by_prompt
from prefrl.data.tables import Table, load_table

__all__ = [
    "Read",
    "Table",
    "check_disjoint",
    "encode_completion",
    "encode_prompt",
    "eos_ids",
    "keep_within",
    "load_table",
    "pairs_of",
    "resolve_ties",
    "split_by_prompt",
    "to_completions",
    "to_judgements",
    "to_pairs",
    "to_prompts",
    "to_rankings",
    "to_unpaired",
    "weigh_annotators",
]
