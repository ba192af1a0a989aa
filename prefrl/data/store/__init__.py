"""The parts of the preference store; `prefrl.data.preferences.PreferenceStore` puts them together.

engine      connections, one writer at a time
schema      the tables; migrations/ makes them, and brings older files up to date
items       what people are asked, and the known answers
work        who gets which item, and what they say of it
people      accounts, sessions, one-time links; names: which of them look the same
shapes      whether what comes from a file has the types that pages rely on
media, jobs, journal, settings, transfer   pictures, processes, the audit log, the project, export and import
"""

from prefrl.data.store.errors import Conflict, Full, Invalid, NotYours
from prefrl.data.store.records import (
    Assignment,
    Event,
    Flag,
    Gold,
    Invitation,
    ItemState,
    Job,
    Login,
    Person,
    Progress,
    Role,
)

__all__ = [
    "Assignment",
    "Conflict",
    "Event",
    "Flag",
    "Full",
    "Gold",
    "Invalid",
    "Invitation",
    "ItemState",
    "Job",
    "Login",
    "NotYours",
    "Person",
    "Progress",
    "Role",
]
