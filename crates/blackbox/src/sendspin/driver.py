"""What the Sendspin peers share: events as lines of JSON, commands, identities, a trace of frames.

A peer writes one JSON object a line to standard output, with `event` (its kind) and `at_us`
(CLOCK_MONOTONIC), and reads commands from standard input, also one object a line, with `do`.
The end of standard input ends the peer, so that it does not outlive its test.
"""

import asyncio
import dataclasses
import enum
import importlib.metadata
import json
import logging
import sys
import time
from pathlib import Path

from aiohttp import WSMsgType
from aiosendspin.noise.keys import Identity
from aiosendspin.noise.wire import EncryptedWebSocket

MAJOR = int(importlib.metadata.version("aiosendspin").split(".")[0])
"""10 speaks the current dialect, 9 the first one with Noise."""


class MonotonicClock:
    """CLOCK_MONOTONIC, as the tests read it; aiosendspin's own choice is the raw one."""

    def now_us(self):
        return time.monotonic_ns() // 1_000


def emit(event, **values):
    line = {"event": event, "at_us": time.monotonic_ns() // 1_000, **values}
    print(json.dumps(line, default=plain), flush=True)


def plain(value):
    """Messages and values of aiosendspin as JSON; fields without a value are left out."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: value for name, value in fields if value is not None}
    return str(value)


class LogAsEvents(logging.Handler):
    """Warnings of the library: what it had to tolerate, or could not use."""

    def emit(self, record):
        emit("log", level=record.levelname.lower(), text=self.format(record))


def log_as_events(level):
    logging.basicConfig(level=level, handlers=[LogAsEvents()], format="%(name)s: %(message)s")


async def commands():
    """The commands of standard input, until it ends."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield json.loads(line)


def identity_of(path):
    """The key in a file, 64 hexadecimal digits; a new one without a file."""
    if path is None:
        return Identity.generate()
    if not path.exists():
        path.write_text(Identity.generate().private_bytes.hex())
    return Identity.from_private_bytes(bytes.fromhex(path.read_text().strip()))


def trace_frames(path: Path, *classes):
    """Writes every text and what every later frame decrypts to, a line each, to a file.

    `classes` are those of the sockets below the encryption.
    """
    file = path.open("w")

    def note(direction, data):
        if isinstance(data, str):
            text = data
        elif data[0] == 0:
            text = "[0] " + data[1:].decode()
        else:
            text = f"[{data[0]}] {data[1:33].hex()} … {len(data)} bytes"
        file.write(f"{time.monotonic_ns() // 1_000} {direction} {text}\n")
        file.flush()

    def around(owner, name, direction):
        original = getattr(owner, name)

        async def send(self, data, *args, **kwargs):
            note(direction, data)
            return await original(self, data, *args, **kwargs)

        setattr(owner, name, send)

    for owner in classes:
        around(owner, "send_str", ">")
        receive = owner.receive

        async def received(self, *args, receive=receive, **kwargs):
            message = await receive(self, *args, **kwargs)
            if message.type is WSMsgType.TEXT:
                note("<", message.data)
            elif message.type is not WSMsgType.BINARY:
                note("<", f"({message.type.name})")
            return message

        owner.receive = received

    around(EncryptedWebSocket, "_send_plaintext", ">")
    decode = EncryptedWebSocket._decode

    def decoded(self, message):
        result = decode(self, message)
        if result is not None and result.type is WSMsgType.TEXT:
            note("<", b"\0" + result.data.encode())
        elif result is not None and result.type is WSMsgType.BINARY:
            note("<", result.data)
        return result

    EncryptedWebSocket._decode = decoded
