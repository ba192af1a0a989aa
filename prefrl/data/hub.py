"""One short question to the hub, where the libraries below ask for minutes, again and again, for every file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 5.0  # seconds that the hub has to answer at all


def silence(name: str, file: str, kind: str = "model") -> Exception | None:
    """Why the hub does not answer; None where it does, if only that it has no such file or repository.

    Args:
        name: repository.
        file: one that most repositories of the kind have.
        kind: model or dataset.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    try:
        get_hf_file_metadata(hf_hub_url(name, file, repo_type=kind), timeout=PATIENCE)
    except Exception as error:  # those of a connection belong to whatever library makes it
        answered = getattr(error, "response", None) is not None
        # A name that nothing can have is explained by those who look it up.
        return None if answered or isinstance(error, ValueError) else error
    return None


@contextmanager
def offline() -> Iterator[None]:
    """Let data sets be taken from the cache, without a question to the hub, until the block ends."""
    import datasets.config
    import huggingface_hub.constants

    modules: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    before = [module.HF_HUB_OFFLINE for module in modules]
    try:
        for module in modules:
            module.HF_HUB_OFFLINE = True
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value
