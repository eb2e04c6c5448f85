"""What a report of a fault needs, without secrets and addresses."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from homeassistant.components.diagnostics import async_redact_data
from homeassistant.const import CONF_HOST, CONF_PASSWORD, CONF_TOKEN, CONF_USERNAME
from homeassistant.core import HomeAssistant

from .coordinator import AulosConfigEntry

REDACTED = {CONF_HOST, CONF_PASSWORD, CONF_TOKEN, CONF_USERNAME, "artUrl"}


async def async_get_config_entry_diagnostics(
    hass: HomeAssistant, entry: AulosConfigEntry
) -> dict[str, Any]:
    """The entry, the connection and the state."""
    coordinator = entry.runtime_data
    state = coordinator.data
    return {
        "entry": async_redact_data(dict(entry.data), REDACTED),
        "connected": coordinator.last_update_success,
        "server": asdict(coordinator.info) if coordinator.info else None,
        "clients": [asdict(one) for one in state.clients.values()],
        "groups": [asdict(one) for one in state.groups.values()],
        "stations": async_redact_data([asdict(one) for one in state.stations.values()], REDACTED),
    }
