"""What Music Assistant does with the snapserver that it starts, through the library that it uses.

Usage: music_assistant.py PORT FOLDER. FOLDER has the control script `control.py` and what it writes.
Prints each step that is done, and `ok` at its end.
"""

import asyncio
import json
import math
import os
import pathlib
import socket
import struct
import sys
import time

import snapcast.control

RATE = 48_000
FULL_SCALE = (1 << 23) - 1
NAME = "Music Assistant - a b"


async def settle(what, condition, limit=10):
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < limit, f"{what}: not within {limit} s"
        await asyncio.sleep(0.05)
    print(f"{what}: after {time.monotonic() - start:.2f} s", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stream_uri(port, name):
    """As Music Assistant writes it: blanks in the name are not escaped."""
    params = f"--queueid=a_b%20--socket=/tmp/ma%2Dsocket%20--streamserver-ip=127.0.0.1%20--streamserver-port={port}"
    return (
        f"tcp://127.0.0.1:{port}?sampleformat={RATE}:24:2&packed_s24le=true&idle_threshold=60000"
        f"&controlscript=control.py&controlscriptparams={params}&name={name}"
    )


async def add(server, name):
    """Tries ports until one is free; the stream has to be in the status afterwards."""
    for _ in range(50):
        result = await server.stream_add_stream(stream_uri(free_port(), name))
        if "id" in result:
            return server.stream(result["id"])
        assert "already exists" not in str(result.get("data")), result
    raise AssertionError("no port")


async def push(stream, hertz, dbfs, seconds):
    """A tone in real time, 24 bits in 3 bytes, little endian."""
    assert stream.path == "", stream.path
    host = stream._stream["uri"]["host"].replace("0.0.0.0", "127.0.0.1")
    _, writer = await asyncio.open_connection(*host.split(":"))
    peak = math.sqrt(2) * 10 ** (dbfs / 20) * FULL_SCALE
    start, chunk = time.monotonic(), RATE // 50
    for number in range(int(seconds * 50)):
        block = b""
        for frame in range(number * chunk, (number + 1) * chunk):
            value = round(peak * math.sin(2 * math.pi * hertz * frame / RATE))
            block += struct.pack("<i", value)[:3] * 2
        writer.write(block)
        await writer.drain()
        await asyncio.sleep(max(0, start + number / 50 - time.monotonic()))
    writer.close()
    await writer.wait_closed()


def lines(folder, name):
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def runs(pid):
    try:
        return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def process_of(folder, name):
    return [start["pid"] for start in lines(folder, "starts") if f"--stream={name}" in start["arguments"]]


async def play_with_titles(server, group, folder):
    stream = await add(server, NAME)
    assert stream.identifier == NAME, stream.identifier
    await group.set_stream(stream.identifier)
    title = lambda: (stream.metadata or {}).get("title")
    await settle("first title", lambda: title() == "One")
    arguments = lines(folder, "starts")[-1]["arguments"]
    assert arguments[:3] == [
        "--queueid=a_b", "--socket=/tmp/ma-socket", "--streamserver-ip=127.0.0.1"
    ], arguments
    assert stream.properties["canGoNext"] and not stream.properties["canSeek"], stream.properties
    pushing = asyncio.ensure_future(push(stream, 997, -12, 2))
    await settle("playing", lambda: stream.status == "playing")
    assert await server.stream_control(NAME, "next", {}) == "ok"
    await settle("next title", lambda: title() == "Two")
    refused = await server.stream_control(NAME, "setPosition", {"position": 7})
    assert refused["code"] == 6, refused
    assert await server.stream_setproperty(NAME, "shuffle", True) == "ok"
    await settle("shuffle", lambda: stream.properties["shuffle"])
    assert await server.stream_setproperty(NAME, "loopStatus", "track") == "ok"
    await settle("loop status", lambda: stream.properties["loopStatus"] == "track")
    assert lines(folder, "calls") == [
        {"command": "next"}, {"shuffle": True}, {"loopStatus": "track"}
    ], lines(folder, "calls")
    await pushing
    await settle("idle", lambda: stream.status == "idle")
    again = await server.stream_add_stream(stream_uri(free_port(), NAME))
    data = again["data"]
    assert data.startswith("Stream with name") and "already exists" in data, again
    return stream


async def announce(server, group, client, folder):
    before, volume = group.stream, client.volume
    name = "d41d8c (announcement)"
    stream = await add(server, name)
    await group.set_stream(stream.identifier)
    await client.set_volume(60)
    await push(stream, 440, -20, 1)
    await settle("announcement idle", lambda: stream.status == "idle")
    # The clients play what is in their buffers.
    await asyncio.sleep(1)
    await client.set_volume(volume)
    await group.set_stream(before)
    await remove(server, name, folder)
    status = await server.client_status(client.identifier)
    assert status["config"]["volume"]["percent"] == volume, status
    assert (await server.group_status(group.identifier))["stream_id"] == before


async def remove(server, name, folder):
    [pid] = process_of(folder, name)
    assert runs(pid), name
    removed = await server.stream_remove_stream(name)
    assert removed["id"] == name, removed
    assert name not in [stream.identifier for stream in server.streams]
    await settle(f"script of {name} ended", lambda: not runs(pid))


async def refused(server, folder):
    """Each is refused with its reason, and leaves nothing behind."""
    for script, why in [
        ("../control.py", "without a path"),
        ("/bin/sh", "without a path"),
        ("link.py", "link out of the directory"),
        ("none.py", "No such file"),
    ]:
        uri = f"tcp://127.0.0.1:{free_port()}?name=x&controlscript={script}"
        result = await server.stream_add_stream(uri)
        assert why in result["data"], result
    # A script that ends at once is started again, and its last words are in the log.
    uri = f"tcp://127.0.0.1:{free_port()}?name=broken&controlscript=broken.sh"
    assert (await server.stream_add_stream(uri))["id"] == "broken"
    await settle("second start", lambda: len(lines(folder, "broken")) == 2)
    await server.stream_remove_stream("broken")
    # As in snapserver a bare `&` ends the name; the answer has the one that counts.
    odd = await server.stream_add_stream(f"tcp://127.0.0.1:{free_port()}?name=A & B + 1%C3%B6")
    assert odd["id"] == "A" and server.stream("A"), odd
    await server.stream_remove_stream("A")


async def main(port, folder):
    loop = asyncio.get_running_loop()
    server = await snapcast.control.create_server(loop, "127.0.0.1", port, reconnect=True)
    major, minor, _ = server.version.split(".")
    assert major == "0" and int(minor) >= 27 and minor != "30", server.version
    for _ in range(100):
        server.synchronize((await server.status())[0])
        if any(client.connected for client in server.clients):
            break
        await asyncio.sleep(0.05)
    [client] = server.clients
    assert client.volume == 20, client.volume
    group = client.group
    await group.set_name("ma_" + "".join(c for c in client.identifier if c.isalnum()))
    result = await server.group_clients(group.identifier, [client.identifier])
    assert "server" in result, result
    server.synchronize(result)

    await play_with_titles(server, group, folder)
    await announce(server, group, client, folder)
    await group.set_stream("default")
    await remove(server, NAME, folder)
    await refused(server, folder)
    assert [stream.identifier for stream in server.streams] == ["default"]
    server.stop()
    print("ok")


asyncio.run(asyncio.wait_for(main(int(sys.argv[1]), pathlib.Path(sys.argv[2])), 24))
