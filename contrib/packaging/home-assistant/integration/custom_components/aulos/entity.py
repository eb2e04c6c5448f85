"""What the entities of a client, a station and the server have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from homeassistant.core import callback
from homeassistant.helpers.device_registry import DeviceInfo
from homeassistant.helpers.entity import Entity
from homeassistant.helpers.entity_platform import AddConfigEntryEntitiesCallback
from homeassistant.helpers.update_coordinator import CoordinatorEntity

from .const import DOMAIN, MAX_CLIENTS, MAX_STATIONS
from .coordinator import AulosConfigEntry, AulosCoordinator
from .state import Client, Station


class AulosEntity(CoordinatorEntity[AulosCoordinator]):
    """An entity; its unique id is the server's id, its kind and its id."""

    _attr_has_entity_name = True

    def __init__(self, coordinator: AulosCoordinator, kind: str, identifier: str) -> None:
        """Belong to the device of a kind (`client`, `station`) and id."""
        super().__init__(coordinator)
        self.identifier = identifier
        self._attr_unique_id = f"{coordinator.server_id}_{kind}_{identifier}"


class ClientEntity(AulosEntity):
    """An entity of a client."""

    def __init__(self, coordinator: AulosCoordinator, identifier: str) -> None:
        """Name the client's device."""
        super().__init__(coordinator, "client", identifier)
        client = coordinator.data.clients[identifier]
        self._attr_device_info = DeviceInfo(
            identifiers={(DOMAIN, f"{coordinator.server_id}_client_{identifier}")},
            name=client.name or identifier,
            model=client.model or None,
            sw_version=client.version or None,
            via_device=(DOMAIN, coordinator.server_id),
        )

    @property
    def client(self) -> Client | None:
        """The client as it is now; None once it was deleted."""
        return self.coordinator.data.clients.get(self.identifier)

    @property
    def available(self) -> bool:
        """Whether the server answers and knows the client."""
        return super().available and self.client is not None


class StationEntity(AulosEntity):
    """An entity of a station."""

    def __init__(self, coordinator: AulosCoordinator, identifier: str) -> None:
        """Name the station's device."""
        super().__init__(coordinator, "station", identifier)
        self._attr_device_info = DeviceInfo(
            identifiers={(DOMAIN, f"{coordinator.server_id}_station_{identifier}")},
            name=identifier,
            model="Station",
            via_device=(DOMAIN, coordinator.server_id),
        )

    @property
    def station(self) -> Station | None:
        """The station as it is now; None once it was removed."""
        return self.coordinator.data.stations.get(self.identifier)

    @property
    def available(self) -> bool:
        """Whether the server answers and has the station."""
        return super().available and self.station is not None


def add_as_they_come(
    entry: AulosConfigEntry,
    async_add_entities: AddConfigEntryEntitiesCallback,
    of_client: Callable[[str], Iterable[Entity]],
    of_station: Callable[[str], Iterable[Entity]],
) -> None:
    """Add the entities of clients and stations, now and when the server has new ones."""
    coordinator = entry.runtime_data
    clients: set[str] = set()
    stations: set[str] = set()

    def new(known: set[str], present: Iterable[str], limit: int) -> list[str]:
        found = [one for one in present if one not in known][: max(limit - len(known), 0)]
        known.update(found)
        return found

    @callback
    def add() -> None:
        state = coordinator.data
        entities = [
            entity
            for one in new(stations, state.stations, MAX_STATIONS)
            for entity in of_station(one)
        ]
        for one in new(clients, state.clients, MAX_CLIENTS):
            entities.extend(of_client(one))
        if entities:
            async_add_entities(entities)

    add()
    entry.async_on_unload(coordinator.async_add_listener(add))
