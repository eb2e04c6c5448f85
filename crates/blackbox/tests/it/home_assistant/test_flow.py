"""The config flow."""

from ipaddress import ip_address

from homeassistant.config_entries import ConfigEntryState
from homeassistant.core import HomeAssistant
from homeassistant.helpers.service_info.zeroconf import ZeroconfServiceInfo
import pytest

from .conftest import TOKEN, Server, add, data_of, free_ports, until

pytestmark = pytest.mark.usefixtures("no_faults")


def found(port: int, service: str = "_snapcast-http._tcp.local.") -> ZeroconfServiceInfo:
    """What mDNS finds."""
    address = ip_address("127.0.0.1")
    return ZeroconfServiceInfo(
        ip_address=address,
        ip_addresses=[address],
        port=port,
        hostname="house-aulos.local.",
        type=service,
        name=f"House.{service}",
        properties={},
    )


async def begin(hass: HomeAssistant, source: str, data: object = None) -> dict:
    return await hass.config_entries.flow.async_init(
        "aulos", context={"source": source}, data=data
    )


async def go_on(hass: HomeAssistant, flow: dict, data: dict) -> dict:
    return await hass.config_entries.flow.async_configure(flow["flow_id"], data)


async def test_user(hass: HomeAssistant, server: Server) -> None:
    flow = await begin(hass, "user")
    assert (flow["type"], flow["step_id"]) == ("form", "user")
    [closed] = free_ports(1)
    wrong = await go_on(hass, flow, data_of(closed))
    assert wrong["errors"] == {"base": "cannot_connect"}
    done = await go_on(hass, flow, data_of(server.http))
    assert done["type"] == "create_entry"
    entry = done["result"]
    saved = (server.folder / "state" / "server-id").read_text().strip()
    assert entry.unique_id == saved
    # The same server by another way: TLS, on the same port.
    flow = await begin(hass, "user")
    again = await go_on(hass, flow, data_of(server.http, tls=True, verify_ssl=False))
    assert (again["type"], again["reason"]) == ("abort", "already_configured")
    assert entry.data["tls"] is True
    await hass.async_block_till_done()
    assert entry.state is ConfigEntryState.LOADED


async def test_login(hass: HomeAssistant, guarded_server: Server) -> None:
    server, flow = guarded_server, await begin(hass, "user")
    for login in ({}, {"token": "another-token-of-it"}, {"username": "board", "password": "no"}):
        wrong = await go_on(hass, flow, data_of(server.http, **login))
        assert wrong["errors"] == {"base": "invalid_auth"}, login
    login = {"username": "board", "password": "a password"}
    done = await go_on(hass, flow, data_of(server.http, **login))
    assert done["type"] == "create_entry"
    await hass.async_block_till_done()
    entry = done["result"]
    assert entry.state is ConfigEntryState.LOADED

    # The password is changed: the user is asked for a login.
    config = server.folder / "aulos.toml"
    config.write_text(config.read_text().replace("a password", "another password"))
    server.kill()
    await server.start()
    [flow] = await until(hass.config_entries.flow.async_progress)
    assert (flow["step_id"], flow["context"]["source"]) == ("reauth_confirm", "reauth")
    wrong = await go_on(hass, flow, {"token": "another-token-of-it"})
    assert wrong["errors"] == {"base": "invalid_auth"}
    done = await go_on(hass, flow, {"token": TOKEN})
    assert (done["type"], done["reason"]) == ("abort", "reauth_successful")
    await hass.async_block_till_done()
    assert entry.state is ConfigEntryState.LOADED
    assert "username" not in entry.data


async def test_zeroconf(hass: HomeAssistant, server: Server) -> None:
    flow = await begin(hass, "zeroconf", found(server.http))
    assert (flow["type"], flow["step_id"]) == ("form", "discovered")
    done = await go_on(hass, flow, {})
    assert done["type"] == "create_entry"
    entry = done["result"]
    await hass.async_block_till_done()
    # It is found again, under another name and with TLS: a connection that works stays.
    for service in ("_snapcast-http._tcp.local.", "_snapcast-https._tcp.local."):
        again = await begin(hass, "zeroconf", found(server.http, service))
        assert (again["type"], again["reason"]) == ("abort", "already_configured")
    assert (entry.data["port"], entry.data["tls"]) == (server.http, False)
    # The control port is no page.
    other = await begin(hass, "zeroconf", found(server.control))
    assert other["type"] == "abort"
    assert other["reason"] in ("not_aulos", "cannot_connect")


async def test_zeroconf_finds_a_server_that_has_moved(hass: HomeAssistant, server: Server) -> None:
    entry = await add(hass, server)
    await hass.config_entries.async_unload(entry.entry_id)
    before = server.http
    server.kill()
    [server.http] = free_ports(1)
    await server.start()
    assert server.http != before
    # Not by giving up TLS, or a certificate's name.
    for place in ({"tls": True, "verify_ssl": False}, {"tls": True, "verify_ssl": True}):
        hass.config_entries.async_update_entry(entry, data=data_of(before, **place))
        service = "_snapcast-https" if place["verify_ssl"] else "_snapcast-http"
        again = await begin(hass, "zeroconf", found(server.http, f"{service}._tcp.local."))
        assert (again["reason"], entry.data["port"]) == ("already_configured", before)
    hass.config_entries.async_update_entry(entry, data=data_of(before))
    again = await begin(hass, "zeroconf", found(server.http))
    assert (again["reason"], entry.data["port"]) == ("already_configured", server.http)
    await hass.async_block_till_done()
    assert await hass.config_entries.async_setup(entry.entry_id)
    assert entry.state is ConfigEntryState.LOADED


async def test_zeroconf_with_login(hass: HomeAssistant, guarded_server: Server) -> None:
    flow = await begin(hass, "zeroconf", found(guarded_server.http))
    wrong = await go_on(hass, flow, {})
    assert wrong["errors"] == {"base": "invalid_auth"}
    assert (await go_on(hass, flow, {"token": TOKEN}))["type"] == "create_entry"
    await hass.async_block_till_done()


async def test_entry_is_unloaded_and_removed(hass: HomeAssistant, server: Server) -> None:
    entry = await add(hass, server)
    assert await hass.config_entries.async_unload(entry.entry_id)
    assert entry.state is ConfigEntryState.NOT_LOADED
    assert await hass.config_entries.async_setup(entry.entry_id)
    await hass.async_block_till_done()
    assert await hass.config_entries.async_remove(entry.entry_id)
