"""Files of data to what people are asked, with everything counted that is left out.

    table = load_table("pairs.jsonl")
    found = plan(table, rules=Rules(leaks="leave_out"), known=keys_of(store))
    print(found.layout, found.summary())  # which column means what, and what is left out
    for done in carry_out(store, found, by="ann"):
        ...  # tasks stored so far

Nothing is stored before `carry_out`. A server reads what was uploaded through `uploaded` and `read_upload`, within
limits; `load_table` reads whatever it is told.
"""

from prefrl.data.importing.columns import MAY_HAVE, NEEDED, SHAPES, Layout, guess, is_archive
from prefrl.data.importing.convert import key_of, texts_of
from prefrl.data.importing.duplicates import near_duplicates
from prefrl.data.importing.leaks import names_itself
from prefrl.data.importing.plan import Plan, Rules, carry_out, keys_of, plan
from prefrl.data.importing.uploads import Limits, read_hub, read_upload, uploaded

__all__ = [
    "MAY_HAVE",
    "NEEDED",
    "SHAPES",
    "Layout",
    "Limits",
    "Plan",
    "Rules",
    "carry_out",
    "guess",
    "is_archive",
    "key_of",
    "keys_of",
    "names_itself",
    "near_duplicates",
    "plan",
    "read_hub",
    "read_upload",
    "texts_of",
    "uploaded",
]
