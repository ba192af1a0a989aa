"""Which language a text is in: its script where the script decides, and a statistical guess elsewhere."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

from prefrl.errors import RewardError

# Languages that one script tells from all others that langdetect knows.
SCRIPTS = {
    "kn": "KANNADA",
    "pa": "GURMUKHI",
    "ta": "TAMIL",
    "te": "TELUGU",
    "ml": "MALAYALAM",
    "gu": "GUJARATI",
    "bn": "BENGALI",
    "th": "THAI",
    "ko": "HANGUL",
    "el": "GREEK",
    "he": "HEBREW",
}
_SHARE = 0.5  # of the letters that must be of the script
_MOST = 20_000  # characters that the statistics look at


def is_language(text: str, code: str) -> bool:
    """Whether a text is in the language of an ISO 639-1 code; never so without a letter.

    The statistics look at the first 20,000 characters, which is more than they make use of.

    Raises:
        RewardError: an unknown code, or langdetect is not installed and the script does not decide.
    """
    letters = [character for character in text if character.isalpha()]
    if not letters:
        return False
    if code in SCRIPTS:
        return sum(SCRIPTS[code] in unicodedata.name(c, "") for c in letters) > _SHARE * len(letters)
    known = _factory().langlist
    wanted = {"zh": "zh-cn"}.get(code, code)
    if wanted not in known:
        raise RewardError(f"unknown language {code!r}; valid: {', '.join(sorted({*known, *SCRIPTS}))}")
    found = _detect(text[:_MOST])
    return found == wanted or (code == "zh" and found.startswith("zh"))


@lru_cache(maxsize=1024)
def _detect(text: str) -> str:
    from langdetect.lang_detect_exception import LangDetectException

    detector = _factory().create()
    detector.append(text)
    try:
        return str(detector.detect())
    except LangDetectException:
        return ""


@lru_cache(maxsize=1)
def _factory() -> Any:
    """A detector factory of our own: the module's global one draws at random unless it is seeded."""
    try:
        from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory
    except ImportError:
        raise RewardError("Telling languages apart needs langdetect. Type: pip install 'prefrl[verifiers]'") from None
    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.set_seed(0)
    return factory
