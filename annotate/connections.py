"""Connections that are hung up on when nobody says in time what they want: a machine has only so many."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20.0  # in which the first line and the headers of a request must come


class Connection(H11Protocol):
    """A connection whose requests begin in time; how long a body may take is for `middleware` to say."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self._late = self.loop.call_later(HEAD_SECONDS, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def _hang_up(self) -> None:
        if self.conn.their_state is h11.IDLE:  # no whole request came since
            self.transport.close()
