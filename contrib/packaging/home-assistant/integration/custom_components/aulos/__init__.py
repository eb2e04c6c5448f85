"""Home Assistant's side of aulos, an audio server for synchronized playback."""

from __future__ import annotations

from homeassistant.const import Platform
from homeassistant.core import HomeAssistant
from homeassistant.helpers import device_registry as dr

from .const import DOMAIN
from .coordinator import AulosConfigEntry, AulosCoordinator

PLATFORMS = [Platform.MEDIA_PLAYER, Platform.SENSOR]


async def async_setup_entry(hass: HomeAssistant, entry: AulosConfigEntry) -> bool:
    """Connect to the server of a config entry."""
    coordinator = AulosCoordinator(hass, entry)
    await coordinator.async_config_entry_first_refresh()
    entry.runtime_data = coordinator
    dr.async_get(hass).async_get_or_create(
        config_entry_id=entry.entry_id,
        identifiers={(DOMAIN, coordinator.server_id)},
        name=coordinator.data.name,
        manufacturer="aulos",
        model="Server",
        sw_version=coordinator.info.version if coordinator.info else None,
        configuration_url=str(coordinator.address.url("http", "/")),
    )
    await hass.config_entries.async_forward_entry_setups(entry, PLATFORMS)
    return True


async def async_unload_entry(hass: HomeAssistant, entry: AulosConfigEntry) -> bool:
    """Remove the entities; the connection ends with the entry's tasks."""
    return await hass.config_entries.async_unload_platforms(entry, PLATFORMS)


async def async_remove_config_entry_device(
    hass: HomeAssistant, entry: AulosConfigEntry, device: dr.DeviceEntry
) -> bool:
    """A client or station that the server no longer has may be removed."""
    coordinator = entry.runtime_data
    present = {coordinator.server_id}
    present |= {f"{coordinator.server_id}_client_{one}" for one in coordinator.data.clients}
    present |= {f"{coordinator.server_id}_station_{one}" for one in coordinator.data.stations}
    return not any(name in present for domain, name in device.identifiers if domain == DOMAIN)
