"""Players and sensors against a running server, with real clients."""

import array
from pathlib import Path

import aiohttp
from homeassistant.core import HomeAssistant, State
from homeassistant.exceptions import HomeAssistantError, ServiceValidationError
from homeassistant.helpers import device_registry as dr
from homeassistant.helpers import entity_registry as er
import pytest
from pytest_homeassistant_custom_component.components.diagnostics import (
    get_diagnostics_for_config_entry,
)

from .conftest import TOKEN, Server, add, until

pytestmark = pytest.mark.usefixtures("no_faults")


async def rpc(server: Server, method: str, **params: object) -> dict:
    """A call of another controller."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    url = f"http://127.0.0.1:{server.http}/jsonrpc"
    async with aiohttp.ClientSession() as session, session.post(url, json=request) as answer:
        return (await answer.json())["result"]


def player(hass: HomeAssistant, kind: str, identifier: str) -> State:
    """The state of the player of a client or station."""
    [entry] = hass.config_entries.async_entries("aulos")
    unique_id = f"{entry.unique_id}_{kind}_{identifier}"
    entity_id = er.async_get(hass).async_get_entity_id("media_player", "aulos", unique_id)
    assert entity_id, unique_id
    return hass.states.get(entity_id)


async def do(hass: HomeAssistant, service: str, player: State, **data: object) -> None:
    data["entity_id"] = player.entity_id
    await hass.services.async_call("media_player", service, data, blocking=True)


async def clients(hass: HomeAssistant, server: Server, *names: str) -> list[Path]:
    """Start clients and wait until Home Assistant has them."""
    sounds = [server.play(name) for name in names]
    registry = er.async_get(hass)

    def all_here() -> bool:
        known = {one.unique_id for one in registry.entities.values()}
        return all(any(one.endswith(f"_client_{name}") for one in known) for name in names)

    await until(all_here)
    await hass.async_block_till_done()
    return sounds


async def test_entities(hass: HomeAssistant, server: Server) -> None:
    entry = await add(hass, server)
    await clients(hass, server, "room")
    entities = er.async_entries_for_config_entry(er.async_get(hass), entry.entry_id)
    sensors = "momentary short_term integrated range true_peak gain source title".split()
    stations = ("default", "kitchen radio")
    expected = {("sensor", "server_clients"), ("media_player", "client_room")}
    expected |= {("media_player", f"station_{one}") for one in stations}
    expected |= {("sensor", f"station_{one}_{key}") for one in stations for key in sensors}
    prefix = f"{entry.unique_id}_"
    assert {(one.domain, one.unique_id.removeprefix(prefix)) for one in entities} == expected
    names = {one.name for one in dr.async_get(hass).devices.values()}
    assert names > {"default", "kitchen radio"}

    await until(lambda: player(hass, "station", "default").state == "playing")
    default = player(hass, "station", "default")
    assert default.attributes["source"] == "tone"
    assert default.attributes["source_list"] == ["tone", "demo", "auto"]
    assert player(hass, "client", "room").attributes["source_list"] == list(stations)
    registry = er.async_get(hass)

    def value(key: str) -> str:
        entity_id = registry.async_get_entity_id("sensor", "aulos", prefix + key)
        return hass.states.get(entity_id).state

    await until(lambda: value("server_clients") == "1")
    assert value("station_default_source") == "tone"
    # A sine of two channels at -46 dBFS, weighted (BS.1770): -46.0 LUFS.
    await until(lambda: value("station_default_momentary") not in ("unknown", "unavailable"))
    assert float(value("station_default_momentary")) == pytest.approx(-46.0, abs=0.3)
    title = "A title"
    await rpc(server, "Aulos.SetNowPlaying", station="default", title=title, artist="Someone")
    await until(lambda: value("station_default_title") == f"Someone - {title}")
    assert player(hass, "station", "default").attributes["media_title"] == title
    assert player(hass, "client", "room").attributes["media_artist"] == "Someone"


async def test_volume_both_ways(hass: HomeAssistant, server: Server) -> None:
    await add(hass, server)
    await clients(hass, server, "room")

    async def volume() -> dict:
        return (await rpc(server, "Client.GetStatus", id="room"))["client"]["config"]["volume"]

    room = player(hass, "client", "room")
    await do(hass, "volume_set", room, volume_level=0.37)
    assert await volume() == {"percent": 37, "muted": False}
    assert player(hass, "client", "room").attributes["volume_level"] == 0.37
    await do(hass, "volume_mute", room, is_volume_muted=True)
    assert await volume() == {"percent": 37, "muted": True}
    assert player(hass, "client", "room").attributes["is_volume_muted"] is True
    await rpc(server, "Client.SetVolume", id="room", volume={"percent": 61, "muted": False})
    await until(lambda: player(hass, "client", "room").attributes["volume_level"] == 0.61)
    assert player(hass, "client", "room").attributes["is_volume_muted"] is False
    station = player(hass, "station", "default")
    assert station.attributes["volume_level"] == 0.61
    await do(hass, "volume_set", station, volume_level=0.2)
    await do(hass, "volume_mute", station, is_volume_muted=True)
    assert await volume() == {"percent": 20, "muted": True}
    assert player(hass, "client", "room").attributes["volume_level"] == 0.2


async def test_sources_and_groups_both_ways(hass: HomeAssistant, server: Server) -> None:
    await add(hass, server)
    await clients(hass, server, "bath", "hall", "room")

    async def groups() -> list[tuple[str, list[str]]]:
        status = (await rpc(server, "Server.GetStatus"))["server"]["groups"]
        return sorted(
            (group["stream_id"], sorted(client["id"] for client in group["clients"]))
            for group in status
        )

    bath, hall, room = (player(hass, "client", one) for one in ("bath", "hall", "room"))
    await do(hass, "select_source", room, source="kitchen radio")
    assert ("kitchen radio", ["room"]) in await groups()
    assert player(hass, "client", "room").attributes["source"] == "kitchen radio"
    await do(hass, "join", room, group_members=[hall.entity_id])
    assert ("kitchen radio", ["hall", "room"]) in await groups()
    members = player(hass, "client", "hall").attributes["group_members"]
    assert members == [room.entity_id, hall.entity_id]
    assert player(hass, "client", "hall").attributes["source"] == "kitchen radio"
    await do(hass, "unjoin", hall)
    assert ("kitchen radio", ["hall"]) in await groups()
    assert player(hass, "client", "hall").attributes["group_members"] == [hall.entity_id]
    with pytest.raises(ServiceValidationError):
        station = player(hass, "station", "default")
        await do(hass, "join", room, group_members=[station.entity_id])

    # Another controller.
    status = (await rpc(server, "Server.GetStatus"))["server"]["groups"]
    group = next(one["id"] for one in status if one["clients"][0]["id"] == "bath")
    await rpc(server, "Group.SetClients", id=group, clients=["bath", "room"])
    expected = [bath.entity_id, room.entity_id]
    await until(
        lambda: player(hass, "client", "room").attributes["group_members"] == expected
    )
    await rpc(server, "Group.SetStream", id=group, stream_id="kitchen radio")
    await until(lambda: player(hass, "client", "bath").attributes["source"] == "kitchen radio")

    # The source of a station.
    await do(hass, "select_source", player(hass, "station", "default"), source="demo")
    await until(lambda: player(hass, "station", "default").attributes["source"] == "demo")
    # It has no control script: what the stream cannot do is not offered.
    assert not player(hass, "station", "default").attributes["supported_features"] & 0b110001


async def test_announcement_is_heard(
    hass: HomeAssistant, server: Server, media: None, hass_ws_client
) -> None:
    await add(hass, server)
    [room_sound, hall_sound] = await clients(hass, server, "room", "hall")
    room = player(hass, "client", "room")
    await until(lambda: room_sound.exists() and room_sound.stat().st_size > 192_000)

    socket = await hass_ws_client()
    numbers = iter(range(1, 100))

    async def browse(**node: str) -> dict:
        request = {"id": next(numbers), "type": "media_player/browse_media"}
        await socket.send_json(request | {"entity_id": room.entity_id} | node)
        return (await socket.receive_json())["result"]

    root = await browse()
    titles = [child["title"] for child in root["children"]]
    assert titles[:2] == ["Sources", "Sounds of the server"]
    ids = [child["media_content_id"] for child in root["children"]]
    assert any(one.startswith("media-source://") for one in ids), ids
    [sources, sounds] = [
        await browse(media_content_id=one, media_content_type="music") for one in ids[:2]
    ]
    assert [child["title"] for child in sources["children"]] == ["default", "kitchen radio"]
    [bell] = sounds["children"]
    assert bell["title"] == "bell.wav"

    call = {"media_content_type": "music", "media_content_id": bell["media_content_id"]}
    extra = {"volume": 100, "priority": 8, "chime": True}
    await do(hass, "play_media", room, **call, announce=True, extra=extra)
    await until(lambda: peak(room_sound) > 4_000)
    assert peak(hall_sound) < 400, "the other client heard it"
    with pytest.raises(ServiceValidationError):
        await do(hass, "play_media", room, **call, enqueue="add")
    call["media_content_id"] = "file:///etc/passwd"
    with pytest.raises(HomeAssistantError):
        await do(hass, "play_media", room, **call, announce=True)
    call["media_content_id"] = sources["children"][1]["media_content_id"]
    await do(hass, "play_media", room, **call)
    assert player(hass, "client", "room").attributes["source"] == "kitchen radio"


async def test_sound_is_played_in_place_of_the_programme(
    hass: HomeAssistant, server: Server
) -> None:
    await add(hass, server)
    [room_sound, hall_sound] = await clients(hass, server, "room", "hall")
    room = player(hass, "client", "room")
    await until(lambda: room_sound.exists() and room_sound.stat().st_size > 192_000)
    call = {"media_content_type": "music", "media_content_id": f"file://{server.sounds}/bell.wav"}
    await do(hass, "play_media", room, **call)
    await until(lambda: peak(room_sound) > 4_000)
    # The programme is back: what comes now is quiet again.
    await until(lambda: peak(room_sound, last=96_000) < 400)
    assert player(hass, "client", "room").attributes["source"] == "default"
    assert peak(hall_sound) < 400, "the other client heard it"


def peak(sound: Path, last: int | None = None) -> int:
    """The highest sample of 16 bits that a client has played, or of the last bytes of it."""
    samples = array.array("h")
    played = sound.read_bytes()
    played = played[: len(played) // 2 * 2]
    samples.frombytes(played[-last:] if last else played)
    return max(max(samples), -min(samples)) if samples else 0


async def test_killed_server_is_unavailable_until_it_is_back(
    hass: HomeAssistant, server: Server
) -> None:
    await add(hass, server)
    await until(lambda: player(hass, "station", "default").state == "playing")
    server.kill()
    await until(lambda: player(hass, "station", "default").state == "unavailable")
    await server.start()
    await until(lambda: player(hass, "station", "default").state == "playing")
    await do(hass, "select_source", player(hass, "station", "default"), source="demo")


async def test_diagnostics_have_no_secrets(
    hass: HomeAssistant, guarded_server: Server, hass_client
) -> None:
    entry = await add(hass, guarded_server, token=TOKEN)
    found = await get_diagnostics_for_config_entry(hass, hass_client, entry)
    assert [one["id"] for one in found["stations"]] == ["default", "kitchen radio"]
    assert found["connected"] is True
    assert TOKEN not in str(found)
    assert "127.0.0.1" not in str(found["entry"])
