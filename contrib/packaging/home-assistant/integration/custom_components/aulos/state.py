"""The state of a server, as its answers and notifications say it.

Nothing here depends on Home Assistant, and no input raises: what has another shape than it should
is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import struct
from typing import Any


@dataclass(slots=True)
class Client:
    """A player of the server. `percent` is its volume, 0 to 100."""

    id: str
    name: str
    connected: bool
    percent: int
    muted: bool
    group: str
    model: str
    version: str


@dataclass(slots=True)
class Group:
    """Clients that play the same stream, the leader first."""

    id: str
    stream: str
    clients: list[str]


@dataclass(slots=True)
class Station:
    """A stream of the server; its id is its name."""

    id: str
    status: str = "idle"
    properties: dict[str, Any] = field(default_factory=dict)
    # Of Aulos.GetStatus: names of the sources, and the one on air.
    sources: list[str] = field(default_factory=list)
    active: str | None = None
    # Values by the names of METERS, those that are known.
    meters: dict[str, float] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        """Title, artist and so on, as far as the source has them."""
        return _dict(self.properties.get("metadata"))

    def can(self, what: str) -> bool:
        """Whether a property such as `canGoNext` is true."""
        return self.properties.get(what) is True


# Words of a record of the meters, in hundredths of LUFS, LU, dBTP and dB.
METERS = (
    "momentary",
    "short_term",
    "integrated",
    "range",
    "true_peak",
    "max_true_peak",
    "gain",
)
_NO_VALUE = -32768
_HEAD = struct.Struct("<BBHIQ")
_RECORD = struct.Struct(f"<{len(METERS)}h")


@dataclass(slots=True)
class ServerState:
    """Everything that is known of a server."""

    name: str = ""
    clients: dict[str, Client] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    stations: dict[str, Station] = field(default_factory=dict)
    _layout: tuple[int, list[str]] = (0, [])

    @property
    def connected_clients(self) -> int:
        """How many clients are connected."""
        return sum(client.connected for client in self.clients.values())

    def clients_of(self, station: str) -> list[Client]:
        """The connected clients that play a station."""
        playing = {group.id for group in self.groups.values() if group.stream == station}
        return [one for one in self.clients.values() if one.connected and one.group in playing]

    def station_of(self, client: Client) -> Station | None:
        """The station that a client plays."""
        group = self.groups.get(client.group)
        return self.stations.get(group.stream) if group else None

    def set_status(self, answer: Any) -> None:
        """Take the result of `Server.GetStatus`; an empty one changes nothing."""
        server = _dict(_dict(answer).get("server"))
        if not server:
            return
        self.name = _text(_dict(_dict(server.get("server")).get("host")).get("name")) or "aulos"
        self.clients, self.groups = {}, {}
        for value in _dicts(server.get("groups")):
            if not (group_id := _text(value.get("id"))):
                continue
            clients = [self._client(client, group_id) for client in _dicts(value.get("clients"))]
            known = {client.id: client for client in clients if client}
            self.clients.update(known)
            stream = _text(value.get("stream_id"))
            self.groups[group_id] = Group(group_id, stream, list(known))
        before, self.stations = self.stations, {}
        for value in _dicts(server.get("streams")):
            if station_id := _text(value.get("id")):
                station = before.get(station_id) or Station(station_id)
                self.stations[station_id] = station
                _set_stream(station, value)

    def set_details(self, answer: Any) -> None:
        """Take the sources of the stations from the result of `Aulos.GetStatus`."""
        for value in _dicts(_dict(answer).get("stations")):
            if station := self.stations.get(_text(value.get("name"))):
                sources = [_text(source.get("name")) for source in _dicts(value.get("sources"))]
                station.sources = [source for source in sources if source]
                station.active = _text(value.get("active")) or None

    def apply(self, method: str, params: dict[str, Any]) -> bool:
        """Take a notification. Return whether it changed something that entities show."""
        if method == "Server.OnUpdate":
            self.set_status(params)
            return True
        if method == "Aulos.OnMeterLayout":
            names = [_text(station.get("name")) for station in _dicts(params.get("stations"))]
            self._layout = (_int(params.get("revision")), names)
            return False
        if method == "Aulos.OnSwitch":
            if station := self.stations.get(_text(params.get("station"))):
                station.active = _text(params.get("to")) or None
            return station is not None
        kind, _, what = method.partition(".On")
        identifier = _text(params.get("id"))
        if kind == "Client" and (client := self.clients.get(identifier)):
            return self._apply_to_client(client, what, params)
        if kind == "Group" and (group := self.groups.get(identifier)):
            if what == "StreamChanged":
                group.stream = _text(params.get("stream_id"))
                return True
            return False
        if kind == "Stream" and (station := self.stations.get(identifier)):
            if what == "Update":
                _set_stream(station, _dict(params.get("stream")))
            elif what == "Properties":
                station.properties = _dict(params.get("properties"))
            else:
                return False
            return True
        return False

    def set_meters(self, frame: bytes) -> bool:
        """Take a frame of meters. Return whether it was understood."""
        if len(frame) < _HEAD.size:
            return False
        kind, version, size, revision, _ = _HEAD.unpack_from(frame)
        layout_revision, names = self._layout
        if (kind, version, revision) != (1, 1, layout_revision) or size < _RECORD.size:
            return False
        for number, name in enumerate(names):
            at = _HEAD.size + number * size
            station = self.stations.get(name)
            if station is None or at + size > len(frame):
                continue
            values = zip(METERS, _RECORD.unpack_from(frame, at), strict=True)
            station.meters = {key: word / 100 for key, word in values if word != _NO_VALUE}
        return True

    def _client(self, value: dict[str, Any], group: str) -> Client | None:
        if not (identifier := _text(value.get("id"))):
            return None
        config, program = _dict(value.get("config")), _dict(value.get("snapclient"))
        volume = _dict(config.get("volume"))
        return Client(
            id=identifier,
            name=_text(config.get("name")) or _text(_dict(value.get("host")).get("name")),
            connected=value.get("connected") is True,
            percent=_percent(volume.get("percent")),
            muted=volume.get("muted") is True,
            group=group,
            model=_text(program.get("name")),
            version=_text(program.get("version")),
        )

    def _apply_to_client(self, client: Client, what: str, params: dict[str, Any]) -> bool:
        if what == "VolumeChanged":
            volume = _dict(params.get("volume"))
            client.percent = _percent(volume.get("percent"))
            client.muted = volume.get("muted") is True
        elif what == "NameChanged":
            client.name = _text(params.get("name")) or client.name
        elif what in ("Connect", "Disconnect"):
            if new := self._client(_dict(params.get("client")), client.group):
                self.clients[client.id] = new
            self.clients[client.id].connected = what == "Connect"
        else:
            return False
        return True


def _set_stream(station: Station, value: dict[str, Any]) -> None:
    station.status = _text(value.get("status"))
    station.properties = _dict(value.get("properties"))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _percent(value: Any) -> int:
    return min(max(int(value), 0), 100) if isinstance(value, int) else 0
