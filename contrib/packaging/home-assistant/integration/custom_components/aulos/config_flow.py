"""How a server is added: by its address, or because it was found on the network."""

from __future__ import annotations

from collections.abc import Mapping
import logging
from typing import Any

import voluptuous as vol

from homeassistant.config_entries import ConfigEntryState, ConfigFlow, ConfigFlowResult
from homeassistant.const import (
    CONF_HOST,
    CONF_PASSWORD,
    CONF_PORT,
    CONF_TOKEN,
    CONF_USERNAME,
    CONF_VERIFY_SSL,
)
from homeassistant.helpers import config_validation as cv
from homeassistant.helpers.aiohttp_client import async_get_clientsession
from homeassistant.helpers.selector import TextSelector, TextSelectorConfig, TextSelectorType
from homeassistant.helpers.service_info.zeroconf import ZeroconfServiceInfo

from .connection import AulosError, LoginRefused, NotAulos, connect, identify, log_in
from .const import CONF_TLS, DEFAULT_PORT, DOMAIN
from .coordinator import address_of
from .state import ServerState

_LOGGER = logging.getLogger(__name__)

_SECRET = TextSelector(TextSelectorConfig(type=TextSelectorType.PASSWORD))
_LOGIN = {
    vol.Optional(CONF_USERNAME): str,
    vol.Optional(CONF_PASSWORD): _SECRET,
    vol.Optional(CONF_TOKEN): _SECRET,
}
_USER_SCHEMA = vol.Schema(
    {
        vol.Required(CONF_HOST): str,
        vol.Required(CONF_PORT, default=DEFAULT_PORT): cv.port,
        vol.Required(CONF_TLS, default=False): bool,
        vol.Required(CONF_VERIFY_SSL, default=True): bool,
        **_LOGIN,
    }
)
_LOGIN_SCHEMA = vol.Schema(_LOGIN)


class AulosConfigFlow(ConfigFlow, domain=DOMAIN):
    """The steps of adding a server; its unique id is the id that it gives itself."""

    VERSION = 1

    def __init__(self) -> None:
        """Begin with no server."""
        self._data: dict[str, Any] = {}
        self._name = ""

    async def async_step_user(
        self, user_input: dict[str, Any] | None = None
    ) -> ConfigFlowResult:
        """Ask for the address and the login."""
        errors: dict[str, str] = {}
        if user_input is not None:
            server_id, error = await self._probe(user_input)
            if server_id:
                await self.async_set_unique_id(server_id)
                self._abort_if_unique_id_configured(updates=_place(user_input))
            if not error:
                return self.async_create_entry(title=self._name, data=user_input)
            errors["base"] = error
        schema = self.add_suggested_values_to_schema(_USER_SCHEMA, user_input or {})
        return self.async_show_form(step_id="user", data_schema=schema, errors=errors)

    async def async_step_zeroconf(
        self, discovery_info: ZeroconfServiceInfo
    ) -> ConfigFlowResult:
        """Ask the server that was found who it is: snapserver announces the same services."""
        tls = discovery_info.type.startswith("_snapcast-https.")
        self._data = {
            CONF_HOST: discovery_info.host,
            CONF_PORT: discovery_info.port or DEFAULT_PORT,
            CONF_TLS: tls,
            # A certificate is for a name, and what was found is an address.
            CONF_VERIFY_SSL: False,
        }
        server_id, error = await self._probe(self._data)
        if server_id is None:
            return self.async_abort(reason=error or "cannot_connect")
        await self.async_set_unique_id(server_id)
        self._abort_if_unique_id_configured(updates=self._moved(server_id))
        self._name = self._name or discovery_info.name.partition(".")[0]
        self.context["title_placeholders"] = {"name": self._name}
        return await self.async_step_discovered()

    async def async_step_discovered(
        self, user_input: dict[str, Any] | None = None
    ) -> ConfigFlowResult:
        """Ask whether the server that was found is to be added, and for the login."""
        return await self._login_step("discovered", user_input)

    async def async_step_reauth(self, entry_data: Mapping[str, Any]) -> ConfigFlowResult:
        """Begin again with the login: the server has refused it."""
        self._data = dict(entry_data)
        self._name = self._get_reauth_entry().title
        return await self.async_step_reauth_confirm()

    async def async_step_reauth_confirm(
        self, user_input: dict[str, Any] | None = None
    ) -> ConfigFlowResult:
        """Ask for another login."""
        return await self._login_step("reauth_confirm", user_input)

    async def _login_step(
        self, step: str, user_input: dict[str, Any] | None
    ) -> ConfigFlowResult:
        errors: dict[str, str] = {}
        if user_input is not None:
            place = {key: value for key, value in self._data.items() if key not in _LOGIN}
            data = place | user_input
            server_id, error = await self._probe(data)
            if not error:
                if step == "reauth_confirm":
                    await self.async_set_unique_id(server_id)
                    self._abort_if_unique_id_mismatch(reason="another_server")
                    return self.async_update_reload_and_abort(self._get_reauth_entry(), data=data)
                return self.async_create_entry(title=self._name, data=data)
            errors["base"] = error
        return self.async_show_form(
            step_id=step,
            data_schema=_LOGIN_SCHEMA,
            errors=errors,
            description_placeholders={"name": self._name},
        )

    def _moved(self, server_id: str) -> dict[str, Any]:
        """What a discovery changes in an entry.

        Anybody on the network can announce anything. A connection that works stays, TLS is not
        given up, and the name that a certificate is checked for is not replaced by an address.
        """
        entry = self.hass.config_entries.async_entry_for_domain_unique_id(DOMAIN, server_id)
        if entry is None or entry.data.get(CONF_TLS, False) != self._data[CONF_TLS]:
            return {}
        works = entry.state is ConfigEntryState.LOADED and entry.runtime_data.last_update_success
        if works or (entry.data.get(CONF_TLS) and entry.data.get(CONF_VERIFY_SSL)):
            return {}
        return {key: self._data[key] for key in (CONF_HOST, CONF_PORT)}

    async def _probe(self, data: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """The server's id, if it says it, and what is wrong, as a key of the texts."""
        address = address_of(data)
        session = async_get_clientsession(self.hass, verify_ssl=address.verify_tls)
        server_id = None
        try:
            async with connect(session, address) as (connection, _):
                server_id = (await identify(connection)).id
                await log_in(connection, address)
                state = ServerState()
                state.set_status(await connection.call("Server.GetStatus"))
                self._name = state.name
        except LoginRefused:
            return server_id, "invalid_auth"
        except NotAulos as error:
            _LOGGER.debug("%s: %s", address.host, error)
            return None, "not_aulos"
        except AulosError as error:
            _LOGGER.debug("%s: %s", address.host, error)
            return server_id, "cannot_connect"
        return server_id, None


def _place(data: Mapping[str, Any]) -> dict[str, Any]:
    """What changes when a server moves; the login stays."""
    return {key: data[key] for key in (CONF_HOST, CONF_PORT, CONF_TLS, CONF_VERIFY_SSL)}
