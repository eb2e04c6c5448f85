#!/usr/bin/env python3
"""A Sendspin server of aiosendspin that plays a WAV file, over and over, to whoever connects.

All clients are in one group. To one that joins while it plays, aiosendspin sends what it keeps of
the last seconds twice. What a controller asks for is shown and done.
"""

import argparse
import asyncio
import wave
from pathlib import Path

import aiohttp
from aiohttp import web
from aiosendspin.models.types import MediaCommand, PairMethod
from aiosendspin.noise import pairing_token
from aiosendspin.noise.pairing import PairingAttempt
from aiosendspin.noise.trust_store import FileServerPairingStore, InMemoryServerPairingStore
from aiosendspin.server import AudioFormat, SendspinServer
from aiosendspin.server.roles.metadata.state import Metadata
from driver import (
    MAJOR,
    MonotonicClock,
    commands,
    emit,
    identity_of,
    log_as_events,
    plain,
    trace_frames,
)
from PIL import Image

BLOCK_S = 0.02
AHEAD_US = 2_000_000
"""How far ahead of its time the file is sent."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wav", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0: any")
    parser.add_argument("--name", default="server")
    parser.add_argument("--identity", type=Path)
    parser.add_argument("--store", type=Path, help="file of what is paired")
    parser.add_argument("--legacy", action="store_true", help="accept plain text")
    parser.add_argument("--strict", action="store_true", help="refuse what deviates")
    parser.add_argument("--trust", action="store_true", help="approve unpaired clients")
    parser.add_argument("--hold", action="store_true", help="play by command only")
    parser.add_argument("--dial", action="append", default=[], metavar="URL")
    parser.add_argument("--title", default="Title")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--log", default="WARNING")
    return parser.parse_args()


class Station:
    """One group that plays one file."""

    def __init__(self, server, options):
        self.server = server
        self.options = options
        self.group = None
        self.playing = None
        self.loop = asyncio.get_running_loop()
        with wave.open(str(options.wav)) as file:
            self.format = AudioFormat(
                file.getframerate(), file.getsampwidth() * 8, file.getnchannels()
            )
            self.block = int(file.getframerate() * BLOCK_S)
            stride = file.getsampwidth() * file.getnchannels()
            samples = file.readframes(file.getnframes())
            size = self.block * stride
            self.blocks = [samples[at : at + size] for at in range(0, len(samples), size)]

    def on_server_event(self, _server, event):
        kind = type(event).__name__
        emit("client", kind=kind, **plain(event))
        if kind == "ClientConnectedEvent":
            self.loop.create_task(self.admit(event.client_id))
        elif kind == "ClientDisconnectedEvent":
            client = self.server.get_client(event.client_id)
            if client and self.group and len(self.group.clients) > 1:
                self.loop.create_task(self.group.remove_client(client))

    async def admit(self, client_id):
        if self.options.trust:
            await self.server.trust_unpaired(client_id)
        client = self.server.get_client(client_id)
        client.add_event_listener(
            lambda _client, event: emit("player", kind=type(event).__name__, **plain(event))
        )
        if self.group is None or not self.group.clients:
            self.group = client.group
            self.group.add_event_listener(self.on_group_event)
            controller = self.group.group_role("controller")
            controller.set_supported_commands(
                [MediaCommand.PLAY, MediaCommand.PAUSE, MediaCommand.STOP, MediaCommand.NEXT]
            )
            self.show(self.options.title)
        elif client not in self.group.clients:
            await self.group.add_client(client)
        emit("admitted", client_id=client_id)
        if not self.options.hold:
            self.play()

    def on_group_event(self, _group, event):
        kind = type(event).__name__
        values = plain(event)
        emit("group", kind=kind, **(values if isinstance(values, dict) else {}))
        if kind in ("ControllerStopEvent", "ControllerPauseEvent"):
            self.loop.create_task(self.stop())
        elif kind == "ControllerPlayEvent":
            self.play()

    def show(self, title):
        self.group.group_role("metadata").set_metadata(
            Metadata(
                title=title,
                artist="Artist",
                album="Album",
                track_progress=0,
                track_duration=0,
                playback_speed=1_000,
            )
        )

    def play(self):
        if self.playing is None or self.playing.done():
            self.playing = self.loop.create_task(self.feed(self.group.start_stream()))

    async def stop(self):
        if self.playing:
            self.playing.cancel()
            self.playing = None
        await self.group.stop()

    async def feed(self, stream):
        try:
            while True:
                for block in self.blocks:
                    if stream.is_stopped:
                        return
                    stream.prepare_audio(block, self.format)
                    await stream.commit_audio()
                    await stream.sleep_to_limit_buffer(AHEAD_US)
        except Exception as error:
            emit("failed", reason=f"{type(error).__name__}: {error}")

    async def obey(self, command):
        match command.pop("do"):
            case "play":
                self.play()
            case "stop":
                await self.stop()
            case "title":
                self.show(command["title"])
            case "art":
                color = command["color"]
                image = Image.new("RGB", (80, 40), tuple(color)) if color else None
                await self.group.group_role("artwork").set_album_artwork(image)
            case "volume":
                self.group.group_role("controller").set_volume(command["volume"])
            case "mute":
                self.group.group_role("controller").set_mute(command["muted"])
            case "trust":
                await self.server.trust_unpaired(command["client_id"])
            case "dial":
                self.server.connect_to_client(command["url"])
            case "pair":
                await self.pair(command["token"])
            case "quit":
                return False
            case other:
                raise ValueError(f"unknown command {other}")
        return True

    async def pair(self, token):
        decode = pairing_token.decode_psk_token if MAJOR >= 10 else pairing_token.decode_token
        token = decode(token)
        bound = {"client_id": token.client_id} if MAJOR >= 10 else {}
        attempt = PairingAttempt(
            method=PairMethod.PAIRING_PSK, pairing_psk=token.pairing_psk, **bound
        )
        await self.server.initiate_pairing(token.client_id, attempt)
        emit("paired", client_id=token.client_id)


async def main():
    options = arguments()
    log_as_events(options.log)
    if options.trace:
        trace_frames(options.trace, aiohttp.ClientWebSocketResponse, web.WebSocketResponse)
    identity = identity_of(options.identity)
    if options.store:
        store = await FileServerPairingStore.open(options.store)
    else:
        store = InMemoryServerPairingStore()
    server = SendspinServer(
        asyncio.get_running_loop(),
        identity,
        options.name,
        pairing_store=store,
        allow_unencrypted=options.legacy,
        allow_noncompliant_clients=not options.strict,
        clock=MonotonicClock(),
    )
    station = Station(server, options)
    server.add_event_listener(station.on_server_event)
    # Without `start_server`, which would announce itself in the network.
    runner = web.AppRunner(server._create_web_application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", options.port)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    emit("ready", server_id=identity.peer_id, port=port, major=MAJOR)
    for url in options.dial:
        server.connect_to_client(url)
    async for command in commands():
        try:
            if not await station.obey(command):
                break
        except Exception as error:
            emit("failed", reason=f"{type(error).__name__}: {error}")
    await server.close()
    await runner.cleanup()


asyncio.run(main())
