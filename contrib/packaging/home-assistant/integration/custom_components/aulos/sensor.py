"""Loudness, source and title of each station, and how many clients are connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from homeassistant.components.sensor import (
    SensorEntity,
    SensorEntityDescription,
    SensorStateClass,
)
from homeassistant.const import EntityCategory
from homeassistant.core import HomeAssistant
from homeassistant.helpers.device_registry import DeviceInfo
from homeassistant.helpers.entity_platform import AddConfigEntryEntitiesCallback

from .const import DOMAIN
from .coordinator import AulosConfigEntry, AulosCoordinator
from .entity import AulosEntity, StationEntity, add_as_they_come
from .state import Station

PARALLEL_UPDATES = 0
# The longest state that Home Assistant stores.
MAX_TEXT = 255


@dataclass(frozen=True, kw_only=True)
class StationSensorDescription(SensorEntityDescription):
    """A value of a station."""

    value: Callable[[Station], float | str | None]


def _meter(key: str, unit: str) -> StationSensorDescription:
    return StationSensorDescription(
        key=key,
        translation_key=key,
        native_unit_of_measurement=unit,
        state_class=SensorStateClass.MEASUREMENT,
        suggested_display_precision=1,
        value=lambda station: station.meters.get(key),
    )


def _title(station: Station) -> str | None:
    title, artist = (station.metadata.get(key) for key in ("title", "artist"))
    artists = [one for one in artist if isinstance(one, str)] if isinstance(artist, list) else []
    words = [*artists, title] if isinstance(title, str) else artists
    return " - ".join(words)[:MAX_TEXT] or None


SENSORS = (
    _meter("momentary", "LUFS"),
    _meter("short_term", "LUFS"),
    _meter("integrated", "LUFS"),
    _meter("range", "LU"),
    _meter("true_peak", "dBTP"),
    _meter("gain", "dB"),
    StationSensorDescription(
        key="source",
        translation_key="source",
        value=lambda station: station.active[:MAX_TEXT] if station.active else None,
    ),
    StationSensorDescription(key="title", translation_key="title", value=_title),
)


async def async_setup_entry(
    hass: HomeAssistant,
    entry: AulosConfigEntry,
    async_add_entities: AddConfigEntryEntitiesCallback,
) -> None:
    """Add the sensors of a server."""
    coordinator = entry.runtime_data
    async_add_entities([ClientsSensor(coordinator)])
    add_as_they_come(
        entry,
        async_add_entities,
        lambda _client: [],
        lambda station: [StationSensor(coordinator, station, one) for one in SENSORS],
    )


class StationSensor(StationEntity, SensorEntity):
    """A value of a station; unknown while it has none, such as the loudness of silence."""

    entity_description: StationSensorDescription

    def __init__(
        self,
        coordinator: AulosCoordinator,
        station: str,
        description: StationSensorDescription,
    ) -> None:
        """Show a value of a station."""
        super().__init__(coordinator, station)
        self.entity_description = description
        self._attr_unique_id = f"{self._attr_unique_id}_{description.key}"

    @property
    def native_value(self) -> float | str | None:
        """The value now."""
        return self.entity_description.value(self.station) if self.station else None


class ClientsSensor(AulosEntity, SensorEntity):
    """How many clients are connected."""

    _attr_translation_key = "clients"
    _attr_entity_category = EntityCategory.DIAGNOSTIC
    _attr_state_class = SensorStateClass.MEASUREMENT

    def __init__(self, coordinator: AulosCoordinator) -> None:
        """Belong to the server's device."""
        super().__init__(coordinator, "server", "clients")
        self._attr_device_info = DeviceInfo(identifiers={(DOMAIN, coordinator.server_id)})

    @property
    def native_value(self) -> int:
        """The number now."""
        return self.coordinator.data.connected_clients
