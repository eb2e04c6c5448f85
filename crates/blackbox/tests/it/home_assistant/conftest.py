"""Servers, players and config entries for the tests of the integration of Home Assistant.

The server is the built one, a player is a real snapclient, and Home Assistant is the package of
that name with its own test harness.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
import ctypes
import math
import os
from pathlib import Path
import re
import signal
import socket
import struct
import subprocess
import wave

# Before the harness finds its own package of this name.
import custom_components  # noqa: F401
from homeassistant.config_entries import ConfigEntryState
from homeassistant.core import HomeAssistant
from homeassistant.setup import async_setup_component
import pytest
from pytest_homeassistant_custom_component.common import MockConfigEntry

PATIENCE_S = 40.0
TOKEN = "a-token-of-some-length"
CONFIG = """
[streams]
roots = ["{sounds}"]
[[station]]
name = "default"
codec = "pcm"
sources = ["tone://?hz=997&dbfs=-46&name=tone", "demo://?name=demo"]
[[station]]
name = "kitchen radio"
codec = "pcm"
sources = ["tone://?hz=440&dbfs=-60"]
"""


@pytest.fixture(autouse=True)
def usable(enable_custom_integrations: None, socket_enabled: None) -> None:
    """The integration is found, and sockets of loopback are permitted."""


def run(stack: ExitStack, arguments: list[str | Path], output: Path) -> subprocess.Popen[bytes]:
    """Start a program that ends with this one."""

    def end_with_parent() -> None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)

    with output.open("wb") as log:
        process = subprocess.Popen(
            arguments, stdout=log, stderr=log, preexec_fn=end_with_parent
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


class Server:
    """An aulos server on ports that it keeps when it is started again."""

    def __init__(self, folder: Path, config: str) -> None:
        self.folder = folder
        self.sounds = folder / "sounds"
        self.sounds.mkdir()
        bell = self.sounds / "bell.wav"
        with wave.open(str(bell), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(48_000)
            sine = (int(20_000 * math.sin(at / 10)) for at in range(48_000))
            sound.writeframes(b"".join(struct.pack("<h", one) for one in sine))
        (folder / "aulos.toml").write_text(config.format(sounds=self.sounds))
        self.stream, self.control, self.http = free_ports(3)
        self.stack = ExitStack()
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        ports = {"stream": self.stream, "control": self.control, "http": self.http}
        sets = [("--set", f"listen.{key}=127.0.0.1:{port}") for key, port in ports.items()]
        command = [os.environ["AULOS_BIN"], "serve", "--config", self.folder / "aulos.toml"]
        command += ["--state-dir", self.folder / "state", *(one for two in sets for one in two)]
        output = self.folder / "aulos.out"
        self.process = run(self.stack, command, output)
        await until(lambda: re.search(r"control +127.*\n", output.read_text()))

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    def play(self, name: str) -> Path:
        """Start a player; what it plays is in the file that is returned."""
        sound = self.folder / f"{name}.pcm"
        command = [os.environ["SNAPCLIENT"], "-h", "127.0.0.1", "-p", str(self.stream)]
        command += ["--hostID", name, "--player", f"file:filename={sound}", "--instance", "1"]
        run(self.stack, command, self.folder / f"{name}.log")
        return sound


def free_ports(count: int) -> list[int]:
    """Ports that nobody has; together, so that they differ."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


async def until[T](is_so: Callable[[], T]) -> T:
    """Wait until something is so."""
    for _ in range(int(PATIENCE_S / 0.02)):
        if found := is_so():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE_S} s")


async def start_server(folder: Path, config: str) -> AsyncIterator[Server]:
    server = Server(folder, config)
    try:
        await server.start()
        yield server
    finally:
        server.stack.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async for server in start_server(tmp_path, CONFIG):
        yield server


@pytest.fixture
async def guarded_server(tmp_path: Path) -> AsyncIterator[Server]:
    """One with users."""
    users = f'[[user]]\nname = "home"\nrole = "control"\ntoken = "{TOKEN}"\n' + (
        '[[user]]\nname = "board"\nrole = "control"\npassword = "a password"\n'
    )
    async for server in start_server(tmp_path, users + CONFIG):
        yield server


def data_of(port: int, **more: object) -> dict[str, object]:
    """The data of a config entry for a server on loopback."""
    place = {"host": "127.0.0.1", "port": port, "tls": False, "verify_ssl": True}
    return place | more


async def add(hass: HomeAssistant, server: Server, **more: object) -> MockConfigEntry:
    """Add a server by the config flow, as a user does, and wait until its entities are there."""
    flow = await hass.config_entries.flow.async_init("aulos", context={"source": "user"})
    data = data_of(server.http, **more)
    done = await hass.config_entries.flow.async_configure(flow["flow_id"], data)
    assert done["type"] == "create_entry", done
    await hass.async_block_till_done()
    entry = done["result"]
    assert entry.state is ConfigEntryState.LOADED
    return entry


@pytest.fixture
async def media(hass: HomeAssistant, tmp_path: Path) -> None:
    """Home Assistant's own media."""
    hass.config.media_dirs = {"local": str(tmp_path)}
    assert await async_setup_component(hass, "media_source", {})


@pytest.fixture
def no_faults(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The log has no error and no exception at the end."""
    yield
    found = [one for one in caplog.records if one.levelname == "ERROR" or one.exc_info]
    assert not found, [one.getMessage() for one in found]


