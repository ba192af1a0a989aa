"""Labelling apps on the same pairs, for `benchmarks/annotate_rivals.py`."""
