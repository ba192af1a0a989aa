"""Names of people: which can be, which are the same one, and which only look the same."""

from __future__ import annotations

import unicodedata

from prefrl.data.store.errors import Invalid
from prefrl.data.store.texts import storable

LONGEST_NAME = 100
# Letters that show nothing though they count as printable: fillers, a joiner, and the choice between two drawings.
_INVISIBLE = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10)}
_INVISIBLE |= {0x180B, 0x180C, 0x180D, 0x180F, *range(0xE0100, 0xE01F0)}
# Cyrillic and Greek letters that look like a Latin one, and digits; after Unicode's list of confusable characters.
_LIKE = {
    "\u0410\u0391": "A", "\u0412\u0392": "B", "\u0421\u03f9": "C", "\u0415\u0395": "E", "\u041d\u0397": "H",
    "\u0406\u0399\u04c0": "l", "\u0408": "J", "\u041a\u039a": "K", "\u041c\u039c": "M", "\u039d": "N",
    "\u041e\u039f": "O", "\u0420\u03a1": "P", "\u0405": "S", "\u0422\u03a4": "T", "\u03a7\u0425": "X",
    "\u0423\u03a5\u04ae": "Y", "\u0396": "Z", "\u051a": "Q", "\u051c": "W", "\u0430\u03b1": "a", "\u0441\u03f2": "c",
    "\u0501": "d", "\u0435": "e", "\u04bb": "h", "\u0456\u03b9": "i", "\u0458": "j", "\u04cf": "l", "\u043e\u03bf": "o",
    "\u0440\u03c1": "p", "\u051b": "q", "\u0455": "s", "\u03bd": "v", "\u051d": "w", "\u0445": "x",
    "\u0443\u03b3": "y", "I1|": "l", "0": "O",
}  # fmt: skip
_LATIN = str.maketrans({character: latin for alike, latin in _LIKE.items() for character in alike})


def checked_name(name: str) -> str:
    """The name as it is kept.

    Raises:
        Invalid: nothing of it can be seen, part of it cannot, or it is too long.
    """
    called = unicodedata.normalize("NFC", name).strip()
    seen = called.isprintable() and not any(ord(character) in _INVISIBLE for character in called)
    if not called or len(called) > LONGEST_NAME or not seen:
        raise Invalid(
            f"Got the name {name[:LONGEST_NAME]!r}; expected 1 to {LONGEST_NAME} characters that can be seen."
        )
    return called


def fold(name: str) -> str:
    """The same for all ways of writing one name, in any case: by it people sign in."""
    return storable(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip())


def skeleton(name: str) -> str:
    """The same for names that look the same, whatever letters they are made of."""
    return " ".join(unicodedata.normalize("NFKC", name).translate(_LATIN).casefold().split())
