"""What a player can play, as a tree: sources, the server's sounds, Home Assistant's media."""

from __future__ import annotations

from homeassistant.components import media_source
from homeassistant.components.media_player import BrowseError, BrowseMedia, MediaClass, MediaType
from homeassistant.core import HomeAssistant

from .connection import AulosError
from .coordinator import AulosCoordinator

_ROOT, _SOURCES, _SOUNDS = "aulos://", "aulos://sources", "aulos://sounds"
_SOURCE = "aulos://source/"


def source_of(media_id: str) -> str | None:
    """The name of the source that an id of this tree stands for."""
    return media_id.removeprefix(_SOURCE) if media_id.startswith(_SOURCE) else None


async def browse(
    hass: HomeAssistant,
    coordinator: AulosCoordinator,
    sources: list[str],
    content_id: str | None,
) -> BrowseMedia:
    """The node with this id, with its children. Raises BrowseError for an unknown one."""
    if content_id == _SOURCES:
        return _folder("Sources", _SOURCES, [_item(one, _SOURCE + one) for one in sources])
    if content_id == _SOUNDS:
        return await _sounds(coordinator)
    if content_id and media_source.is_media_source_id(content_id):
        return await _media(hass, content_id)
    if content_id not in (None, "", _ROOT):
        raise BrowseError(f"unknown: {content_id}")
    children = [_folder("Sources", _SOURCES), _folder("Sounds of the server", _SOUNDS)]
    try:
        media = await _media(hass, None)
        children.extend(media.children or [])
    except BrowseError:
        # Home Assistant runs without media sources.
        pass
    return _folder("aulos", _ROOT, children)


async def _sounds(coordinator: AulosCoordinator) -> BrowseMedia:
    try:
        sounds = await coordinator.sounds()
    except AulosError as error:
        raise BrowseError(str(error)) from error
    items = [_item(sound["name"], sound["uri"]) for sound in sounds]
    return _folder("Sounds of the server", _SOUNDS, items)


async def _media(hass: HomeAssistant, content_id: str | None) -> BrowseMedia:
    return await media_source.async_browse_media(
        hass, content_id, content_filter=lambda item: item.media_content_type.startswith("audio/")
    )


def _folder(title: str, content_id: str, children: list[BrowseMedia] | None = None) -> BrowseMedia:
    return BrowseMedia(
        media_class=MediaClass.DIRECTORY,
        media_content_id=content_id,
        media_content_type="",
        title=title,
        can_play=False,
        can_expand=True,
        children=children,
    )


def _item(title: str, content_id: str) -> BrowseMedia:
    return BrowseMedia(
        media_class=MediaClass.MUSIC,
        media_content_id=content_id,
        media_content_type=MediaType.MUSIC,
        title=title,
        can_play=True,
        can_expand=False,
    )
