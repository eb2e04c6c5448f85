"""The connection of a config entry: opened, kept, and opened again when it is cut."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
import logging
import random
from typing import Any

from homeassistant.config_entries import ConfigEntry
from homeassistant.const import (
    CONF_HOST,
    CONF_PASSWORD,
    CONF_PORT,
    CONF_TOKEN,
    CONF_USERNAME,
    CONF_VERIFY_SSL,
)
from homeassistant.core import HomeAssistant
from homeassistant.exceptions import ConfigEntryAuthFailed, HomeAssistantError
from homeassistant.helpers.aiohttp_client import async_get_clientsession
from homeassistant.helpers.update_coordinator import DataUpdateCoordinator, UpdateFailed

from .connection import (
    Address,
    AulosError,
    Connection,
    LoginRefused,
    ServerInfo,
    connect,
    fetch_sounds,
    identify,
    log_in,
)
from .const import CONF_TLS, DOMAIN
from .state import ServerState

_LOGGER = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
METERS_HZ = 0.2

type AulosConfigEntry = ConfigEntry[AulosCoordinator]


def address_of(data: Any) -> Address:
    """The address in the data of a config entry or a form."""
    return Address(
        host=data[CONF_HOST],
        port=int(data[CONF_PORT]),
        tls=data.get(CONF_TLS, False),
        verify_tls=data.get(CONF_VERIFY_SSL, True),
        username=data.get(CONF_USERNAME),
        password=data.get(CONF_PASSWORD),
        token=data.get(CONF_TOKEN),
    )


class AulosCoordinator(DataUpdateCoordinator[ServerState]):
    """Keeps the state of a server by its notifications; there is no polling."""

    config_entry: AulosConfigEntry

    def __init__(self, hass: HomeAssistant, entry: AulosConfigEntry) -> None:
        """Prepare; `_async_update_data` connects."""
        super().__init__(hass, _LOGGER, config_entry=entry, name=DOMAIN)
        self.address = address_of(entry.data)
        self.server_id = entry.unique_id or ""
        self.info: ServerInfo | None = None
        self.data = ServerState()
        self._connection: Connection | None = None
        self._details_asked = False

    async def _async_update_data(self) -> ServerState:
        """Connect for the first time, and keep the connection from then on."""
        stack = AsyncExitStack()
        try:
            reader = await self._open(stack)
        except LoginRefused as error:
            await stack.aclose()
            raise ConfigEntryAuthFailed(str(error)) from error
        except AulosError as error:
            await stack.aclose()
            raise UpdateFailed(str(error)) from error
        self.config_entry.async_create_background_task(
            self.hass, self._keep(stack, reader), f"{DOMAIN} {self.address.host}"
        )
        return self.data

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method for a service; what goes wrong is shown to the user."""
        if self._connection is None:
            raise HomeAssistantError(translation_domain=DOMAIN, translation_key="not_connected")
        try:
            return await self._connection.call(method, params)
        except AulosError as error:
            raise HomeAssistantError(
                translation_domain=DOMAIN,
                translation_key="call_failed",
                translation_placeholders={"method": method, "reason": str(error)},
            ) from error

    def apply(self, method: str, params: dict[str, Any]) -> None:
        """Take a change that this connection made: it is notified to all others only."""
        self._handle_notification(method, params)

    async def refresh_status(self) -> None:
        """Ask for the status after a change of several clients or groups."""
        self.data.set_status(await self.call("Server.GetStatus"))
        self.async_update_listeners()

    async def sounds(self) -> list[dict[str, str]]:
        """The sound files that the server offers. Raises AulosError."""
        return await fetch_sounds(self._session, self.address)

    @property
    def _session(self) -> Any:
        return async_get_clientsession(self.hass, verify_ssl=self.address.verify_tls)

    async def _open(self, stack: AsyncExitStack) -> asyncio.Task[None]:
        connection, reader = await stack.enter_async_context(
            connect(self._session, self.address, self._handle_notification, self._handle_frame)
        )
        self.info = await identify(connection)
        if self.info.id != self.server_id:
            raise AulosError("another server answers at this address")
        await log_in(connection, self.address)
        state = ServerState()
        state.set_status(await connection.call("Server.GetStatus"))
        self.data = state
        state.set_details(await connection.call("Aulos.GetStatus"))
        self._connection = connection
        # Meters begin with a layout, which needs the state.
        await connection.call("Aulos.Subscribe", {"meters": {"hz": METERS_HZ}})
        return reader

    async def _keep(self, stack: AsyncExitStack, reader: asyncio.Task[None]) -> None:
        pause = FIRST_PAUSE_S
        try:
            while True:
                # It ends without an exception, whatever the server did.
                await asyncio.wait([reader])
                await stack.aclose()
                self._lost()
                while True:
                    await asyncio.sleep(pause * random.uniform(0.75, 1.0))
                    pause = min(pause * 2, LONGEST_PAUSE_S)
                    try:
                        reader = await self._open(stack)
                    except LoginRefused:
                        await stack.aclose()
                        self.config_entry.async_start_reauth(self.hass)
                        return
                    except AulosError as error:
                        await stack.aclose()
                        _LOGGER.debug("%s: %s", self.address.host, error)
                    else:
                        break
                pause = FIRST_PAUSE_S
                _LOGGER.info("%s is back", self.address.host)
                self.async_set_updated_data(self.data)
        finally:
            self._connection = None
            await stack.aclose()

    def _lost(self) -> None:
        self._connection = None
        self.last_update_success = False
        _LOGGER.info("The connection to %s is lost", self.address.host)
        self.async_update_listeners()

    def _handle_notification(self, method: str, params: dict[str, Any]) -> None:
        stations = len(self.data.stations)
        if self.data.apply(method, params):
            self.async_update_listeners()
        if len(self.data.stations) != stations:
            self._ask_details()

    def _handle_frame(self, frame: bytes) -> None:
        if self.data.set_meters(frame):
            self.async_update_listeners()

    def _ask_details(self) -> None:
        """Ask for the sources of new stations, once for several notifications."""
        if self._connection is None or self._details_asked:
            return
        self._details_asked = True
        self.config_entry.async_create_background_task(
            self.hass, self._fetch_details(self._connection), f"{DOMAIN} stations"
        )

    async def _fetch_details(self, connection: Connection) -> None:
        try:
            self.data.set_details(await connection.call("Aulos.GetStatus"))
        except AulosError as error:
            _LOGGER.debug("%s: %s", self.address.host, error)
        finally:
            self._details_asked = False
        self.async_update_listeners()
