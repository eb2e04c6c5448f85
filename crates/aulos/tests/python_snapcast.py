"""Drives a control server through the library that Home Assistant uses.

Usage: python_snapcast.py PORT. The server has two connected clients, `a` and `b`, and the streams
`default` and `kitchen radio`. Prints `ok` at its end.
"""

import asyncio
import sys

import snapcast.control


async def settle(condition):
    """Waits for what another connection has to be told."""
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it was never told")


async def main(port):
    loop = asyncio.get_running_loop()
    server = await snapcast.control.create_server(loop, "127.0.0.1", port, reconnect=False)
    other = await snapcast.control.create_server(loop, "127.0.0.1", port, reconnect=False)

    assert server.version == "0.34.0", server.version
    version, _ = await server.rpc_version()
    assert version == {"major": 23, "minor": 0, "patch": 0}, version
    assert {client.identifier for client in server.clients} == {"a", "b"}
    assert {stream.identifier for stream in server.streams} == {"default", "kitchen radio"}
    for stream in server.streams:
        assert stream.name == stream.identifier, stream.name
        assert stream.status in ("idle", "playing", "unknown"), stream.status
        assert stream.path is not None

    client, seen = server.client("a"), other.client("a")
    assert client.connected and client.friendly_name == "host-a", client.friendly_name
    await client.set_volume(37)
    await settle(lambda: seen.volume == 37)
    await client.set_muted(True)
    await settle(lambda: seen.muted)
    await client.set_latency(120)
    await settle(lambda: seen.latency == 120)
    await client.set_name("Küche")
    await settle(lambda: seen.name == "Küche")
    status = await server.client_status("a")
    assert status["config"]["volume"] == {"muted": True, "percent": 37}, status

    group = client.group
    await group.set_stream("kitchen radio")
    await settle(lambda: other.group(group.identifier).stream == "kitchen radio")
    await group.set_muted(True)
    await settle(lambda: other.group(group.identifier).muted)
    await group.set_name("upstairs")
    await settle(lambda: other.group(group.identifier).name == "upstairs")
    await group.add_client("b")
    await settle(lambda: len(other.groups) == 1)
    assert sorted(server.group(group.identifier).clients) == ["a", "b"]
    group = server.group(group.identifier)
    await group.remove_client("b")
    await settle(lambda: len(other.groups) == 2)
    assert server.client("b").group.stream == "kitchen radio"
    assert all(one.clients for one in server.groups + other.groups), "an empty group"

    result = await server.stream_control("default", "play", {})
    assert result["code"] == 4, result
    result = await server.stream_control("default", "seek", {"offset": 1.5})
    assert result["code"] == 6, result
    result = await server.stream_setproperty("default", "shuffle", True)
    assert result["code"] == 7, result
    result = await server.stream_setmeta("default", {})
    assert result["code"] == -32601, result

    # What Home Assistant's services `snapshot` and `restore` do.
    client.snapshot()
    await client.set_volume(90)
    await client.set_name("other")
    await client.restore()
    await settle(lambda: seen.volume == 37 and seen.name == "Küche" and seen.muted)
    group = server.group(client.group.identifier)
    group.snapshot()
    await group.set_stream("default")
    await group.restore()
    await settle(lambda: other.group(group.identifier).stream == "kitchen radio")
    assert (await server.group_status(group.identifier))["stream_id"] == "kitchen radio"

    # A group's slider moves every client by its own share.
    await group.add_client("b")
    await settle(lambda: len(other.groups) == 1)
    group = server.group(group.identifier)
    await server.client("b").set_volume(80)
    await group.set_volume(20)
    await settle(lambda: other.group(group.identifier).volume == 20)
    assert group.friendly_name == "upstairs"
    assert group.stream_status in ("idle", "playing", "unknown"), group.stream_status
    assert set(group.streams_by_name()) == {"default", "kitchen radio"}
    assert client.groups_available() == [group]
    await group.remove_client("b")
    await settle(lambda: len(other.groups) == 2)

    uri = "tcp://127.0.0.1:0?name=added by python&sampleformat=48000:16:2&codec=pcm"
    added = await server.stream_add_stream(uri)
    assert added["id"] == "added by python", added
    stream = server.stream("added by python")
    assert stream.status in ("idle", "playing", "unknown"), stream.status
    await settle(lambda: "added by python" in [one.identifier for one in other.streams])
    again = await server.stream_add_stream(uri)
    assert "id" not in again and again["code"] == -32603, again
    await group.set_stream("added by python")
    await settle(lambda: other.group(group.identifier).stream == "added by python")
    removed = await server.stream_remove_stream("added by python")
    assert removed["id"] == "added by python", removed
    await settle(lambda: other.group(group.identifier).stream == "default")
    assert "added by python" not in [one.identifier for one in other.streams]

    await server.delete_client("b")
    await settle(lambda: [one.identifier for one in other.clients] == ["a"])
    server.stop()
    other.stop()
    await reconnects(loop, port)
    print("ok")


async def reconnects(loop, port):
    """The connection breaks; the library comes back by itself and knows what it knew.

    Every piece is cut in two, wherever that is: names here are not ASCII.
    """
    links = []

    async def relay(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        links.append((writer, far_writer))

        async def pump(source, sink, size):
            while data := await source.read(size):
                sink.write(data)
                await sink.drain()
                await asyncio.sleep(0)
            sink.close()

        await asyncio.gather(pump(reader, far_writer, 4096), pump(far_reader, writer, 7),
                             return_exceptions=True)

    proxy = await asyncio.start_server(relay, "127.0.0.1", 0)
    near = proxy.sockets[0].getsockname()[1]
    server = await snapcast.control.create_server(loop, "127.0.0.1", near, reconnect=True)
    seen = []
    server.set_on_disconnect_callback(lambda _: seen.append("gone"))
    server.set_on_connect_callback(lambda: seen.append("back"))
    assert server.client("a").name == "Küche"
    for writer in links.pop():
        writer.close()
    await settle(lambda: seen == ["gone", "back"])
    assert server.client("a").name == "Küche" and server.client("a").group.name == "upstairs"
    status = await server.client_status("a")
    assert status["config"]["name"] == "Küche", status
    server.stop()
    proxy.close()


asyncio.run(asyncio.wait_for(main(int(sys.argv[1])), 60))
