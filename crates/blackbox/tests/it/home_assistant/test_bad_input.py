"""A server that answers nonsense, closes in the middle, or has thousands of clients."""

from collections.abc import AsyncIterator, Callable
import json
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from homeassistant.config_entries import ConfigEntryState
from homeassistant.core import HomeAssistant
from homeassistant.helpers import entity_registry as er
import pytest
from pytest_homeassistant_custom_component.common import MockConfigEntry

from .conftest import data_of, until

pytestmark = pytest.mark.usefixtures("no_faults")

NONSENSE: list[Any] = [None, True, 7, "text", [], [1, None], {}, {"server": 1}]
STATUS = {
    "server": {
        "groups": [
            {
                "id": "g",
                "stream_id": "s",
                "clients": [{"id": "c", "connected": True, "host": {"name": "room"}}],
            }
        ],
        "streams": [{"id": "s", "status": "playing", "properties": {}}],
        "server": {"host": {"name": "house"}},
    }
}
ANSWERS: dict[str, Any] = {
    "Aulos.GetInfo": {"name": "aulos", "version": "0", "id": "x"},
    "Server.GetStatus": STATUS,
    "Aulos.GetStatus": {"stations": []},
    "Aulos.Subscribe": {},
}


class Fake:
    """A WebSocket that answers as it is told."""

    def __init__(self) -> None:
        self.answer: Callable[[str], Any] = lambda method: ANSWERS.get(method)
        # Sent after each answer.
        self.extra: list[str | bytes] = []
        self.closes_after: str | None = None
        self.sockets: list[web.WebSocketResponse] = []
        self.port = 0

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        async for message in socket:
            call = json.loads(message.data)
            if self.closes_after == call["method"]:
                await socket.close()
                break
            answer = {"jsonrpc": "2.0", "id": call["id"], "result": self.answer(call["method"])}
            await socket.send_str(json.dumps(answer))
            for one in self.extra:
                await (socket.send_str if isinstance(one, str) else socket.send_bytes)(one)
        return socket


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    fake = Fake()
    application = web.Application()
    application.router.add_get("/jsonrpc", fake.serve)
    async with TestServer(application, host="127.0.0.1") as server:
        fake.port = server.port
        yield fake
        for socket in fake.sockets:
            await socket.close()


async def set_up(hass: HomeAssistant, fake: Fake) -> MockConfigEntry:
    entry = MockConfigEntry(domain="aulos", unique_id="x", data=data_of(fake.port))
    entry.add_to_hass(hass)
    await hass.config_entries.async_setup(entry.entry_id)
    await hass.async_block_till_done()
    return entry


@pytest.mark.parametrize("nonsense", NONSENSE, ids=str)
@pytest.mark.parametrize("method", ANSWERS)
async def test_nonsense_as_an_answer(
    hass: HomeAssistant, fake: Fake, method: str, nonsense: Any
) -> None:
    fake.answer = lambda asked: nonsense if asked == method else ANSWERS[asked]
    entry = await set_up(hass, fake)
    refused = method == "Aulos.GetInfo"
    expected = ConfigEntryState.SETUP_RETRY if refused else ConfigEntryState.LOADED
    assert entry.state is expected
    flow = await hass.config_entries.flow.async_init("aulos", context={"source": "user"})
    done = await hass.config_entries.flow.async_configure(flow["flow_id"], data_of(fake.port))
    assert done["type"] == ("form" if refused else "abort")
    assert await hass.config_entries.async_unload(entry.entry_id)


async def test_nonsense_as_notifications(hass: HomeAssistant, fake: Fake) -> None:
    methods = [
        f"{kind}.On{what}"
        for kind in ("Server", "Client", "Group", "Stream", "Aulos")
        for what in (
            "Update", "VolumeChanged", "NameChanged", "Connect", "Disconnect", "Mute",
            "StreamChanged", "Properties", "MeterLayout", "Switch",
        )
    ]
    values = [*NONSENSE, {"id": 1}, *({"id": one, "stream": 1} for one in "gcs")]
    values += [{"id": one, "volume": [], "properties": 1, "client": {"id": []}} for one in "gcs"]
    fake.extra = [json.dumps({"method": one, "params": two}) for one in methods for two in values]
    fake.extra += ["nonsense", "[" * 100_000, "[]", "7", '{"id": [], "error": 1}', '{"id": 1}']
    fake.extra += [b"", b"\1", b"\1\1" + bytes(30), bytes(4_000)]
    entry = await set_up(hass, fake)
    assert entry.state is ConfigEntryState.LOADED
    # What was said at last is known, whatever came before.
    update = {"method": "Server.OnUpdate", "params": STATUS}
    await fake.sockets[-1].send_str(json.dumps(update))
    for duration in (float("nan"), float("inf"), -1, 10**400, "1", 60):
        metadata = {"title": 7, "artist": [1], "artUrl": "file:///etc/passwd"}
        told = {"id": "s", "properties": {"metadata": metadata | {"duration": duration}}}
        notification = {"method": "Stream.OnProperties", "params": told}
        await fake.sockets[-1].send_str(json.dumps(notification))
    registry = er.async_get(hass)
    entity_id = await until(
        lambda: registry.async_get_entity_id("media_player", "aulos", "x_station_s")
    )

    def attributes() -> dict[str, Any]:
        state = hass.states.get(entity_id)
        return dict(state.attributes) if state else {}

    await until(lambda: attributes().get("media_duration") == 60)
    assert hass.states.get(entity_id).state == "playing"
    assert not attributes().keys() & {"entity_picture", "media_title", "media_artist"}


@pytest.mark.parametrize("method", ANSWERS)
async def test_closed_in_the_middle(hass: HomeAssistant, fake: Fake, method: str) -> None:
    fake.closes_after = method
    entry = await set_up(hass, fake)
    assert entry.state is ConfigEntryState.SETUP_RETRY
    fake.closes_after = None
    await hass.config_entries.async_reload(entry.entry_id)
    await hass.async_block_till_done()
    assert entry.state is ConfigEntryState.LOADED
    # And again when it is opened anew.
    fake.closes_after = method
    opened = len(fake.sockets)
    await fake.sockets[-1].close()
    await until(lambda: len(fake.sockets) > opened)
    fake.closes_after = None
    await until(lambda: entry.runtime_data.last_update_success)


async def test_thousands_of_clients(hass: HomeAssistant, fake: Fake) -> None:
    groups = [
        {"id": f"g{one}", "stream_id": "s", "clients": [{"id": f"c{one}", "connected": True}]}
        for one in range(8192)
    ]
    status = {"server": STATUS["server"] | {"groups": groups}}
    fake.answer = lambda asked: status if asked == "Server.GetStatus" else ANSWERS[asked]
    entry = await set_up(hass, fake)
    assert entry.state is ConfigEntryState.LOADED
    entities = er.async_entries_for_config_entry(er.async_get(hass), entry.entry_id)
    assert sum("_client_" in one.unique_id for one in entities) == 256
    clients = next(one.entity_id for one in entities if one.unique_id == "x_server_clients")
    assert hass.states.get(clients).state == "8192"
