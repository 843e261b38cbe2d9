"""One client for all who use it at the same time: opened by the first, closed by the last."""

from __future__ import annotations

import asyncio
from types import TracebackType

from divtok.endpoints.client import ServerClient
from divtok.endpoints.settings import ServerSettings


class SharedClient:
    """`async with` it as often as needed, within one event loop."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._lock = asyncio.Lock()
        self._users = 0
        self._client: ServerClient | None = None

    async def __aenter__(self) -> ServerClient:
        async with self._lock:
            if self._client is None:
                client = ServerClient(self._settings, proved=True)
                await client.__aenter__()
                self._client = client
            self._users += 1
            return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._users -= 1
        if self._users == 0 and self._client is not None:
            client, self._client = self._client, None
            await client.__aexit__(kind, error, trace)
