"""Names that several modules use."""

from typing import Final

DOMAIN: Final = "aulos"
DEFAULT_PORT: Final = 1780

CONF_TLS: Final = "tls"

# Each client is a device with a media player. A server with more is used for other things.
MAX_CLIENTS: Final = 256
MAX_STATIONS: Final = 256
