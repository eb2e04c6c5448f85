#!/usr/bin/env python3
"""A Sendspin client of aiosendspin: a player, controller and display.

Every picture that a channel shows becomes an event (`artwork`), decoded by Pillow.

Every chunk becomes an event when it arrives (`chunk`: server's timestamp, frames, CRC-32 of the
decoded samples) and another shortly before it sounds (`play`: its time on CLOCK_MONOTONIC by
aiosendspin's own clock filter). The decoded samples go to a file, in the order of arrival:
interleaved little-endian integers of the stream's width.
"""

import argparse
import asyncio
import dataclasses
import io
import zlib
from pathlib import Path

import aiohttp
from aiohttp import web
from aiosendspin.audio.codecs import create_decoder
from aiosendspin.client import ClientListener, SendspinClient
from aiosendspin.client import listener as listening
from aiosendspin.models.artwork import ArtworkChannel
from aiosendspin.models.core import DeviceInfo
from aiosendspin.models.player import ClientHelloPlayerSupport, SupportedAudioFormat
from aiosendspin.models.types import (
    ArtworkSource,
    AudioCodec,
    GoodbyeReason,
    MediaCommand,
    PictureFormat,
    PlayerCommand,
    Roles,
)
from aiosendspin.noise import pairing_token
from aiosendspin.noise.keys import generate_psk, psk_id_for
from aiosendspin.noise.session import NoiseCipherSuite
from aiosendspin.noise.trust_store import (
    FileClientPairingStore,
    InMemoryClientPairingStore,
    PairingPsk,
)
from PIL import Image
from zeroconf import ServiceStateChange
from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

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

PLAY_AHEAD_US = 30_000
"""How long before it sounds a chunk's time is asked for, as a sound card would be fed."""

VOLUME_COMMANDS = [PlayerCommand.VOLUME, PlayerCommand.MUTE]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="server to dial")
    parser.add_argument("--discover", metavar="ADDRESS", help="dial the first server announced")
    parser.add_argument("--listen", type=int, metavar="PORT", help="wait for a server")
    parser.add_argument("--announce", metavar="ADDRESS", help="where it listens, by mDNS")
    parser.add_argument("--name", default="player")
    parser.add_argument("--identity", type=Path, help="file of the private key, made if missing")
    parser.add_argument("--store", type=Path, help="file of what is paired")
    parser.add_argument("--unpaired", action="store_true", help="offer unpaired access")
    parser.add_argument("--roles", default="player,controller,metadata")
    parser.add_argument("--format", action="append", metavar="CODEC:RATE:BITS:CHANNELS")
    parser.add_argument("--artwork", action="append", metavar="SOURCE:FORMAT:WIDTH:HEIGHT")
    parser.add_argument("--capacity", type=int, default=4_000_000, help="bytes of the buffer")
    parser.add_argument("--delay", type=float, default=0, help="milliseconds of output delay")
    parser.add_argument("--lead", type=float, default=250, help="required_lead_time_ms")
    parser.add_argument("--buffer", type=float, default=250, help="min_buffer_ms")
    parser.add_argument("--volume", type=int, default=100, help="what it has at first")
    parser.add_argument("--suite", default="25519_ChaChaPoly_SHA256")
    parser.add_argument("--sound", type=Path, help="file of the decoded samples")
    parser.add_argument("--trace", type=Path, help="file of all frames, decrypted")
    parser.add_argument("--log", default="WARNING")
    return parser.parse_args()


def parse_format(text):
    codec, rate, bits, channels = text.split(":")
    return SupportedAudioFormat(
        codec=AudioCodec(codec),
        channels=int(channels),
        sample_rate=int(rate),
        bit_depth=int(bits),
    )


def parse_channel(text):
    source, picture_format, width, height = text.split(":")
    prefix = "" if MAJOR >= 10 else "media_"
    size = {f"{prefix}width": int(width), f"{prefix}height": int(height)}
    return ArtworkChannel(ArtworkSource(source), PictureFormat(picture_format), **size)


def artwork_of(options):
    """What the client says of its channels: in its state, or in the first dialect in its hello."""
    channels = [parse_channel(text) for text in options.artwork or []]
    if MAJOR >= 10:
        return {"artwork_channels": channels or None}
    from aiosendspin.models.artwork import ClientHelloArtworkSupport

    return {"artwork_support": ClientHelloArtworkSupport(channels) if channels else None}


def on_artwork(channel, data):
    values = {}
    if data:
        with Image.open(io.BytesIO(data)) as image:
            values = {"format": image.format, "width": image.width, "height": image.height}
            pixels = image.convert("RGB")
            places = [(x, y) for y in range(4) for x in range(4)]
            values["pixels"] = [
                pixels.getpixel(((2 * x + 1) * image.width // 8, (2 * y + 1) * image.height // 8))
                for x, y in places
            ]
    emit("artwork", channel=channel, bytes=len(data), **values)


class Player:
    """What the client has been told, and the samples that it was given."""

    def __init__(self, options):
        self.sound = options.sound.open("wb") if options.sound else None
        self.decoder = None
        self.format = None
        self.waiting = asyncio.Queue()
        self.volume = options.volume
        self.muted = False
        self.available = True

    async def attach(self, options, identity, store):
        formats = options.format or ["pcm:48000:16:2", "flac:48000:16:2"]
        support = ClientHelloPlayerSupport(
            supported_formats=[parse_format(text) for text in formats],
            buffer_capacity=options.capacity,
            **({"supported_commands": VOLUME_COMMANDS} if MAJOR < 10 else {}),
        )
        roles = [Roles(f"{role}@v1") for role in options.roles.split(",")]
        delay = {"output_delay_ms" if MAJOR >= 10 else "static_delay_ms": options.delay}
        accepted = [*VOLUME_COMMANDS, PlayerCommand.SET_OUTPUT_DELAY] if MAJOR >= 10 else None
        self.client = client = SendspinClient(
            identity,
            options.name,
            roles,
            pairing_store=store,
            device_info=DeviceInfo(product_name="aiosendspin", manufacturer="tests"),
            player_support=support if Roles.PLAYER in roles else None,
            required_lead_time_ms=options.lead,
            min_buffer_ms=options.buffer,
            state_supported_commands=accepted or [PlayerCommand.SET_STATIC_DELAY],
            initial_volume=options.volume,
            clock=MonotonicClock(),
            cipher_suite=NoiseCipherSuite(options.suite),
            **artwork_of(options),
            **delay,
        )
        client.add_group_update_listener(lambda payload: emit("group", **plain(payload)))
        client.add_metadata_listener(lambda state: self.on_state("metadata", state))
        client.add_controller_state_listener(lambda state: self.on_state("controller", state))
        client.add_stream_start_listener(self.on_stream_start)
        client.add_stream_end_listener(lambda roles: self.on_stream_end("stream_end", roles))
        client.add_stream_clear_listener(lambda roles: self.on_stream_end("stream_clear", roles))
        client.add_artwork_listener(on_artwork)
        client.add_audio_chunk_listener(self.on_chunk)
        client.add_server_command_listener(self.on_command)
        client.add_disconnect_listener(lambda: emit("disconnected"))

    def on_state(self, role, state):
        emit(role, **(plain(getattr(state, role)) if state else {}))

    def on_stream_start(self, message):
        emit("stream_start", **plain(message.payload))

    def on_stream_end(self, event, roles):
        self.decoder = self.format = None
        self.waiting = asyncio.Queue()
        emit(event, roles=roles)

    def on_chunk(self, timestamp_us, data, audio_format, send_ahead_us=None):
        if audio_format != self.format:
            # A stream may change its format without an end.
            self.format = audio_format
            pcm = audio_format.pcm_format
            self.decoder = create_decoder(
                audio_format.codec.value,
                sample_rate=pcm.sample_rate,
                bit_depth=pcm.bit_depth,
                channels=pcm.channels,
                codec_header=audio_format.codec_header,
            )
        samples = self.decoder.decode(data)
        pcm = audio_format.pcm_format
        if self.sound:
            self.sound.write(samples)
            self.sound.flush()
        frames = len(samples) // pcm.frame_size
        emit(
            "chunk",
            server_us=timestamp_us,
            frames=frames,
            rate=pcm.sample_rate,
            crc32=zlib.crc32(samples),
            bytes=len(data),
            send_ahead_us=send_ahead_us,
        )
        self.waiting.put_nowait((timestamp_us, frames))

    def on_command(self, payload):
        command = payload.player
        if command is None:
            return
        emit("command", **plain(command))
        if command.volume is not None:
            self.volume = command.volume
        if command.mute is not None:
            self.muted = command.mute
        asyncio.get_running_loop().create_task(self.send_state())

    async def send_state(self):
        await self.client._admitted_connection.send_player_state(
            available=self.available, volume=self.volume, muted=self.muted
        )

    async def report_play_times(self):
        clock = MonotonicClock()
        while True:
            queue = self.waiting
            try:
                server_us, frames = await asyncio.wait_for(queue.get(), 0.1)
            except TimeoutError:
                continue
            while queue is self.waiting:
                play_us = self.client.compute_play_time(server_us)
                left = play_us - clock.now_us() - PLAY_AHEAD_US
                if left <= 0 and self.client.is_time_synchronized():
                    emit("play", server_us=server_us, frames=frames, play_us=play_us)
                    break
                await asyncio.sleep(min(max(left, 2_000), 100_000) / 1e6)

    async def obey(self, command):
        client = self.client
        match command.pop("do"):
            case "state":
                self.volume = command.get("volume", self.volume)
                self.muted = command.get("muted", self.muted)
                self.available = command.get("available", self.available)
                await self.send_state()
            case "control":
                await client.send_group_command(MediaCommand(command.pop("command")), **command)
            case "leave":
                await client._admitted_connection.send_leave()
            case "channels":
                channels = [parse_channel(text) for text in command["channels"]]
                await client.set_artwork_channels(channels)
            case "format":
                await client.set_preferred_format(parse_format(command["format"]))
            case "clock":
                filter = client._admitted_connection._time_filter
                emit("clock", synchronized=filter.is_synchronized, error_us=filter.error)
            case "goodbye":
                await client.disconnect(GoodbyeReason(command["reason"]))
            case "quit":
                return False
            case other:
                raise ValueError(f"unknown command {other}")
        return True


async def provision(options, identity):
    """What is paired, with a key by which a server may pair; its token."""
    if options.store:
        store = await FileClientPairingStore.open(options.store)
    else:
        store = InMemoryClientPairingStore()
    config = await store.get_pairing_config()
    await store.store_pairing_config(
        dataclasses.replace(config, unpaired_access_enabled=options.unpaired)
    )
    known = await store.pairing_psk()
    psk = known.psk if known else generate_psk()
    await store.set_pairing_psk(PairingPsk(psk_id=psk_id_for(psk), psk=psk))
    token = pairing_token.PSKPairingToken(client_id=identity.peer_id, pairing_psk=psk)
    encode = pairing_token.encode_psk_token if MAJOR >= 10 else pairing_token.encode_token
    return store, encode(token)


def on_connected(client):
    emit(
        "connected",
        server_id=client.server_info.server_id,
        server_name=client.server_info.name,
        psk=client.noise_psk.category,
        activities=client.activities,
        roles=client._admitted_connection._active_roles,
    )


async def watch_activation(client):
    """An event for each change of what the server activated, and one for the clock.

    The library has no callback for them.
    """
    shown = None
    synchronized = False
    while True:
        connection = client._admitted_connection
        now = None
        if connection and connection.connected and connection.server_info:
            now = (connection.activities, connection._active_roles, connection.noise_psk)
        if now and now != shown:
            on_connected(client)
        shown = now
        if not synchronized and now and connection.is_time_synchronized():
            synchronized = True
            emit("synchronized", error_us=connection._time_filter.error)
        await asyncio.sleep(0.005)


async def discover(address):
    """The URL of the first server that is announced."""
    found = asyncio.get_running_loop().create_future()
    kind = "_sendspin-server._tcp.local."

    async def resolve(name):
        info = await zeroconf.async_get_service_info(kind, name, timeout=10_000)
        if info is None or found.done():
            return
        path = info.properties[b"path"].decode()
        found.set_result(f"ws://{info.parsed_addresses()[0]}:{info.port}{path}")

    def on_change(zeroconf, service_type, name, state_change):
        if state_change is ServiceStateChange.Added:
            asyncio.get_running_loop().create_task(resolve(name))

    async with AsyncZeroconf(interfaces=[address]) as zeroconf:
        browser = AsyncServiceBrowser(zeroconf.zeroconf, kind, handlers=[on_change])
        url = await found
        await browser.async_cancel()
    emit("discovered", url=url)
    return url


async def main():
    options = arguments()
    log_as_events(options.log)
    if options.trace:
        trace_frames(options.trace, aiohttp.ClientWebSocketResponse, web.WebSocketResponse)
    identity = identity_of(options.identity)
    store, token = await provision(options, identity)
    player = Player(options)
    await player.attach(options, identity, store)
    client = player.client
    tasks = [
        asyncio.create_task(player.report_play_times()),
        asyncio.create_task(watch_activation(client)),
    ]
    listener = None
    if options.listen is not None:
        # Its own choice is the address of the default route, which a test's network has not.
        listening.get_local_ip = lambda: options.announce
        listener = ClientListener(
            identity.peer_id,
            client.attach_websocket,
            port=options.listen,
            host=options.announce or "127.0.0.1",
            advertise_mdns=options.announce is not None,
            client_name=options.name,
        )
        await listener.start()
    emit("ready", client_id=identity.peer_id, token=token, major=MAJOR)
    url = await discover(options.discover) if options.discover else options.url
    if url:
        try:
            await client.connect(url)
        except Exception as error:
            emit("refused", reason=f"{type(error).__name__}: {error}")
    async for command in commands():
        try:
            if not await player.obey(command):
                break
        except Exception as error:
            emit("failed", reason=f"{type(error).__name__}: {error}")
    if client.connected:
        await client.disconnect(GoodbyeReason.SHUTDOWN)
    for task in tasks:
        task.cancel()
    if listener:
        await listener.stop()


asyncio.run(main())
