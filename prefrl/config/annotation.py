"""The command that starts the labelling app."""

from __future__ import annotations

from dataclasses import dataclass

from prefrl.config.parts import require


@dataclass(frozen=True, kw_only=True)
class AnnotateConfig:
    """Serve a labelling project to the browsers of those who label.

    Attributes:
        project: its folder, made where there is none; may also come first without this flag.
        store: URL of a Postgres database that holds everything; empty keeps it in the folder.
        demo: fill a project that has no items with ready ones.
        host: address to listen at; 0.0.0.0 lets other machines in.
        port: port to listen at; 0 takes the first free one from 7860.
        url: address that people type, such as https://label.example.org, where a proxy stands in front.
        browser: open the app in the browser of this machine, if it has one.
        invite: one-time link to print, as ROLE or ROLE:NAME; for a NAME that is known it sets a new password.
    """

    project: str = ""
    store: str = ""
    demo: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    url: str = ""
    browser: bool = True
    invite: str = ""

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, f"port is {self.port}", "0 to 65535")
        addressed = not self.url or self.url.startswith(("http://", "https://"))
        require(addressed, f"url is {self.url!r}", "one that starts with http:// or https://")
