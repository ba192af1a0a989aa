"""The labelling app: people as a reward source. `prefrl annotate FOLDER`, or from Python:

s = annotate.start("my-project")
s.compare("Name a river.", ["The Nile.", "Paris."])
answer = s.wait()
s.export("preferences.jsonl")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from annotate.session import Answer, Session, start

__all__ = ["Answer", "Session", "start"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("annotate.session"), name)
    raise AttributeError(f"module 'annotate' has no attribute {name!r}")
