"""A media player for each client and each station."""

from __future__ import annotations

from typing import Any

from homeassistant.components import media_source
from homeassistant.components.media_player import (
    ATTR_MEDIA_ENQUEUE,
    BrowseMedia,
    MediaPlayerDeviceClass,
    MediaPlayerEnqueue,
    MediaPlayerEntity,
    MediaPlayerEntityFeature as Feature,
    MediaPlayerState,
    MediaType,
    async_process_play_media_url,
)
from homeassistant.core import HomeAssistant
from homeassistant.exceptions import ServiceValidationError
from homeassistant.helpers import entity_registry as er
from homeassistant.helpers.entity_platform import AddConfigEntryEntitiesCallback

from .browse import browse, source_of
from .const import DOMAIN
from .coordinator import AulosConfigEntry
from .entity import AulosEntity, ClientEntity, StationEntity, add_as_they_come
from .state import Station

PARALLEL_UPDATES = 0

MAX_DURATION_S = 1e9
# The choice of a station's source by the server itself.
AUTOMATIC = "auto"

_ALWAYS = (
    Feature.VOLUME_SET
    | Feature.VOLUME_STEP
    | Feature.VOLUME_MUTE
    | Feature.SELECT_SOURCE
    | Feature.PLAY_MEDIA
    | Feature.MEDIA_ANNOUNCE
    | Feature.BROWSE_MEDIA
)
# Features by the property of a stream that allows them; all need `canControl`.
_BY_PROPERTY = {
    "canPlay": Feature.PLAY,
    "canPause": Feature.PAUSE,
    "canControl": Feature.STOP,
    "canGoNext": Feature.NEXT_TRACK,
    "canGoPrevious": Feature.PREVIOUS_TRACK,
}
_PLAYBACK = {
    "playing": MediaPlayerState.PLAYING,
    "paused": MediaPlayerState.PAUSED,
    "stopped": MediaPlayerState.IDLE,
}
# Keys of `extra` that an announcement takes.
_ANNOUNCE_EXTRA = (
    "volume",
    "key",
    "priority",
    "chime",
    "before",
    "duck_db",
    "release_s",
    "gain_db",
    "loudness_lufs",
)


async def async_setup_entry(
    hass: HomeAssistant,
    entry: AulosConfigEntry,
    async_add_entities: AddConfigEntryEntitiesCallback,
) -> None:
    """Add the players of a server."""
    coordinator = entry.runtime_data
    add_as_they_come(
        entry,
        async_add_entities,
        lambda client: [ClientPlayer(coordinator, client)],
        lambda station: [StationPlayer(coordinator, station)],
    )


class AulosPlayer(AulosEntity, MediaPlayerEntity):
    """What players of clients and stations have in common: the stream that is heard there."""

    _attr_name = None
    _attr_device_class = MediaPlayerDeviceClass.SPEAKER
    _attr_media_content_type = MediaType.MUSIC
    # What the methods of aulos call the target: `client` or `station`.
    _target: str

    @property
    def _stream(self) -> Station | None:
        raise NotImplementedError

    @property
    def supported_features(self) -> Feature:
        """What the stream can besides volume, source and sounds."""
        features = _ALWAYS
        if (stream := self._stream) and stream.can("canControl"):
            for name, feature in _BY_PROPERTY.items():
                if stream.can(name):
                    features |= feature
        return features

    @property
    def state(self) -> MediaPlayerState | None:
        """What the stream does, as its control script says, or else by its sound."""
        if (stream := self._stream) is None:
            return MediaPlayerState.IDLE
        status = stream.properties.get("playbackStatus") or stream.status
        return _PLAYBACK.get(status if isinstance(status, str) else "", MediaPlayerState.IDLE)

    @property
    def media_title(self) -> str | None:
        """The title on air."""
        return self._words("title")

    @property
    def media_artist(self) -> str | None:
        """Its artists."""
        return self._words("artist")

    @property
    def media_album_name(self) -> str | None:
        """Its album."""
        return self._words("album")

    @property
    def media_duration(self) -> int | None:
        """Its length in seconds."""
        duration = self._stream.metadata.get("duration") if self._stream else None
        # Neither what is no number nor what is without an end.
        is_length = isinstance(duration, int | float) and 0 <= duration < MAX_DURATION_S
        return int(duration) if is_length else None

    @property
    def media_image_url(self) -> str | None:
        """Its picture, which Home Assistant fetches and passes on."""
        url = self._words("artUrl")
        return url if url and url.startswith(("http://", "https://")) else None

    def _words(self, key: str) -> str | None:
        value = self._stream.metadata.get(key) if self._stream else None
        if isinstance(value, list):
            value = ", ".join(one for one in value if isinstance(one, str))
        return value if isinstance(value, str) and value else None

    async def async_media_play(self) -> None:
        """Resume."""
        await self._control("play")

    async def async_media_pause(self) -> None:
        """Pause."""
        await self._control("pause")

    async def async_media_stop(self) -> None:
        """Stop."""
        await self._control("stop")

    async def async_media_next_track(self) -> None:
        """Skip to the next track."""
        await self._control("next")

    async def async_media_previous_track(self) -> None:
        """Go back to the previous track."""
        await self._control("previous")

    async def _control(self, command: str) -> None:
        if stream := self._stream:
            await self.coordinator.call("Stream.Control", id=stream.id, command=command, params={})

    async def async_play_media(
        self,
        media_type: MediaType | str,
        media_id: str,
        announce: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Select a source, announce a sound, or play one in place of the programme."""
        if kwargs.get(ATTR_MEDIA_ENQUEUE) in (MediaPlayerEnqueue.ADD, MediaPlayerEnqueue.NEXT):
            raise ServiceValidationError(translation_domain=DOMAIN, translation_key="no_queue")
        if (source := source_of(media_id)) is not None:
            await self.async_select_source(source)
            return
        if media_source.is_media_source_id(media_id):
            item = await media_source.async_resolve_media(self.hass, media_id, self.entity_id)
            media_id = item.url
        uri = async_process_play_media_url(self.hass, media_id)
        params: dict[str, Any] = {self._target: self.identifier, "uri": uri}
        if announce:
            extra = kwargs.get("extra") or {}
            params |= {key: extra[key] for key in _ANNOUNCE_EXTRA if key in extra}
        await self.coordinator.call("Aulos.Announce" if announce else "Aulos.Play", **params)

    async def async_browse_media(
        self,
        media_content_type: MediaType | str | None = None,
        media_content_id: str | None = None,
    ) -> BrowseMedia:
        """Show sources, the server's sounds and Home Assistant's media."""
        return await browse(
            self.hass, self.coordinator, self.source_list or [], media_content_id
        )


class ClientPlayer(ClientEntity, AulosPlayer):
    """A client; its sources are the stations."""

    _target = "client"

    @property
    def supported_features(self) -> Feature:
        """Clients can be grouped."""
        return super().supported_features | Feature.GROUPING

    @property
    def _stream(self) -> Station | None:
        return self.coordinator.data.station_of(self.client) if self.client else None

    @property
    def state(self) -> MediaPlayerState | None:
        """Off while it is not connected."""
        if self.client is None or not self.client.connected:
            return MediaPlayerState.OFF
        return super().state

    @property
    def volume_level(self) -> float | None:
        """0 to 1."""
        return self.client.percent / 100 if self.client else None

    @property
    def is_volume_muted(self) -> bool | None:
        """Whether it is muted."""
        return self.client.muted if self.client else None

    @property
    def source(self) -> str | None:
        """The station that it plays."""
        return self._stream.id if self._stream else None

    @property
    def source_list(self) -> list[str]:
        """All stations."""
        return list(self.coordinator.data.stations)

    @property
    def group_members(self) -> list[str]:
        """The players of its group, the leader first."""
        group = self.coordinator.data.groups.get(self.client.group) if self.client else None
        registry = er.async_get(self.hass)
        found = (
            registry.async_get_entity_id(
                "media_player", DOMAIN, f"{self.coordinator.server_id}_client_{one}"
            )
            for one in (group.clients if group else [])
        )
        return [entity_id for entity_id in found if entity_id]

    async def async_set_volume_level(self, volume: float) -> None:
        """Set the volume, 0 to 1."""
        await self._set_volume({"percent": round(volume * 100)})

    async def async_mute_volume(self, mute: bool) -> None:
        """Mute or unmute."""
        await self._set_volume({"muted": mute})

    async def _set_volume(self, volume: dict[str, Any]) -> None:
        answer = await self.coordinator.call("Client.SetVolume", id=self.identifier, volume=volume)
        volume = answer.get("volume") if isinstance(answer, dict) else None
        self.coordinator.apply(
            "Client.OnVolumeChanged", {"id": self.identifier, "volume": volume}
        )

    async def async_select_source(self, source: str) -> None:
        """Let its group play a station."""
        if self.client is None:
            return
        group = self.client.group
        await self.coordinator.call("Group.SetStream", id=group, stream_id=source)
        self.coordinator.apply("Group.OnStreamChanged", {"id": group, "stream_id": source})

    async def async_join_players(self, group_members: list[str]) -> None:
        """Add other players to its group, which it leads from then on."""
        if self.client is None:
            return
        prefix = f"{self.coordinator.server_id}_client_"
        registry = er.async_get(self.hass)
        clients = [self.identifier]
        for entity_id in group_members:
            entry = registry.async_get(entity_id)
            if entry is None or entry.platform != DOMAIN or not entry.unique_id.startswith(prefix):
                raise ServiceValidationError(
                    translation_domain=DOMAIN,
                    translation_key="other_player",
                    translation_placeholders={"entity_id": entity_id},
                )
            clients.append(entry.unique_id.removeprefix(prefix))
        group = self.coordinator.data.groups.get(self.client.group)
        clients += group.clients if group else []
        await self._set_clients(self.client.group, list(dict.fromkeys(clients)))

    async def async_unjoin_player(self) -> None:
        """Leave the group, for one that plays the same."""
        if self.client and (group := self.coordinator.data.groups.get(self.client.group)):
            others = [one for one in group.clients if one != self.identifier]
            if others:
                await self._set_clients(group.id, others)

    async def _set_clients(self, group: str, clients: list[str]) -> None:
        answer = await self.coordinator.call("Group.SetClients", id=group, clients=clients)
        self.coordinator.apply("Server.OnUpdate", answer if isinstance(answer, dict) else {})


class StationPlayer(StationEntity, AulosPlayer):
    """A station; its sources are those that the server switches between."""

    _target = "station"

    @property
    def _stream(self) -> Station | None:
        return self.station

    @property
    def volume_level(self) -> float | None:
        """The mean of its clients, 0 to 1."""
        clients = self.coordinator.data.clients_of(self.identifier)
        return sum(one.percent for one in clients) / len(clients) / 100 if clients else None

    @property
    def is_volume_muted(self) -> bool | None:
        """Whether all of its clients are muted."""
        clients = self.coordinator.data.clients_of(self.identifier)
        return all(one.muted for one in clients) if clients else None

    @property
    def source(self) -> str | None:
        """The source on air."""
        return self.station.active if self.station else None

    @property
    def source_list(self) -> list[str]:
        """Its sources, and the automatic choice."""
        return [*self.station.sources, AUTOMATIC] if self.station else []

    async def async_set_volume_level(self, volume: float) -> None:
        """Change the volume of all clients by the same, within each group."""
        for group in {one.group for one in self.coordinator.data.clients_of(self.identifier)}:
            await self.coordinator.call(
                "Aulos.SetVolume", group=group, percent=round(volume * 100)
            )
        await self.coordinator.refresh_status()

    async def async_mute_volume(self, mute: bool) -> None:
        """Mute or unmute all of its clients."""
        for client in self.coordinator.data.clients_of(self.identifier):
            await self.coordinator.call(
                "Client.SetVolume", id=client.id, volume={"muted": mute}
            )
        await self.coordinator.refresh_status()

    async def async_select_source(self, source: str) -> None:
        """Put a source on air."""
        await self.coordinator.call("Aulos.SetSource", station=self.identifier, source=source)
