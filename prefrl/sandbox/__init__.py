"""A sandbox for code that nobody has read.

    sandbox = Sandbox()                      # the strongest level that this machine offers, or an error
    with sandbox.session(Limits(seconds=2.0)) as session:
        submission = session.submission("def double(x): return 2 * x")
        submission.call("double", [21]).value   # 42

Inputs go in and outputs come back; what an output should have been never enters. See `levels` for what each level is.
"""

from prefrl.sandbox.box import Sandbox, shared
from prefrl.sandbox.client import Answer, Look, Run, Session, Submission
from prefrl.sandbox.inside.values import Opaque, ValueFault
from prefrl.sandbox.levels import LEVELS, Offer, check, probe
from prefrl.sandbox.slot import Limits, SandboxError, Setup

__all__ = [
    "LEVELS",
    "Answer",
    "Limits",
    "Look",
    "Offer",
    "Opaque",
    "Run",
    "Sandbox",
    "SandboxError",
    "Session",
    "Setup",
    "Submission",
    "ValueFault",
    "check",
    "probe",
    "shared",
]
