"""A connection to the server: JSON-RPC 2.0 in the text frames of a WebSocket.

Nothing here depends on Home Assistant. What the server sends is checked where it is used, so that
an answer of another shape is an error of the call, and a notification of another shape has no
effect.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
import json
from typing import Any

import aiohttp
from yarl import URL

CONNECT_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = 10.0
# The server pings every 25 s; a connection on which nothing comes for two of them is lost.
HEARTBEAT_S = 25.0
# The status of the 8192 clients that a server remembers is below 8 MiB.
MAX_MESSAGE = 16 * 1024 * 1024
MAX_SOUNDS = 1000


class AulosError(Exception):
    """A call failed, with the reason that the server gave."""


class ConnectionLost(AulosError):
    """There is no connection, or it has ended."""


class LoginRefused(AulosError):
    """A login is needed, or the one that was sent is wrong."""


class NotAulos(AulosError):
    """Something else answers at this address."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and how to log in there: with a token, a user and password, or not."""

    host: str
    port: int
    tls: bool = False
    verify_tls: bool = True
    username: str | None = None
    password: str | None = None
    token: str | None = None

    def url(self, scheme: str, path: str) -> URL:
        """The URL of a resource; `scheme` is that without TLS."""
        scheme = f"{scheme}s" if self.tls else scheme
        return URL.build(scheme=scheme, host=self.host, port=self.port, path=path)

    @property
    def login(self) -> tuple[str, str] | None:
        """Scheme and credentials, as `Server.Authenticate` and HTTP take them."""
        if self.token:
            return "Bearer", self.token
        if self.username:
            pair = f"{self.username}:{self.password or ''}"
            return "Basic", base64.b64encode(pair.encode()).decode()
        return None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself before a login."""

    id: str
    version: str


type NotificationHandler = Callable[[str, dict[str, Any]], None]
type FrameHandler = Callable[[bytes], None]


class Connection:
    """An open connection. `run` reads it and must be running while calls are made."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        on_notification: NotificationHandler,
        on_frame: FrameHandler,
    ) -> None:
        """Take over an open WebSocket."""
        self._socket = socket
        self._on_notification = on_notification
        self._on_frame = on_frame
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0

    async def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Return the result of a call.

        Raises AulosError with the server's reason, LoginRefused or ConnectionLost.
        """
        self._last_id += 1
        call_id = self._last_id
        answer = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answer
        request = {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params or {}}
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._socket.send_str(json.dumps(request))
                return await answer
        except TimeoutError:
            raise ConnectionLost(f"no answer to {method}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(str(error)) from error
        finally:
            self._waiting.pop(call_id, None)

    async def run(self) -> None:
        """Read until the connection ends; then all calls fail."""
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._handle_text(message.data)
                    # Who waits for this answer uses it before the next notification changes it.
                    await asyncio.sleep(0)
                elif message.type is aiohttp.WSMsgType.BINARY:
                    self._on_frame(message.data)
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionLost("the connection was closed"))

    def _handle_text(self, text: str) -> None:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        if isinstance(method := message.get("method"), str):
            if isinstance(params := message.get("params"), dict):
                self._on_notification(method, params)
            return
        call_id = message.get("id")
        answer = self._waiting.get(call_id) if isinstance(call_id, int) else None
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(_error(message["error"]))
        else:
            answer.set_result(message.get("result"))


def _error(error: Any) -> AulosError:
    if not isinstance(error, dict):
        return AulosError("failed")
    text = str(error.get("data") or error.get("message") or "failed")
    return LoginRefused(text) if error.get("code") in (401, 403) else AulosError(text)


@asynccontextmanager
async def connect(
    session: aiohttp.ClientSession,
    address: Address,
    on_notification: NotificationHandler = lambda _method, _params: None,
    on_frame: FrameHandler = lambda _frame: None,
) -> AsyncIterator[tuple[Connection, asyncio.Task[None]]]:
    """Open a connection and read it in a task, which ends with it.

    Raises ConnectionLost, or NotAulos if there is an HTTP server without this WebSocket.
    """
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            socket = await session.ws_connect(
                address.url("ws", "/jsonrpc"),
                heartbeat=HEARTBEAT_S,
                max_msg_size=MAX_MESSAGE,
                ssl=address.verify_tls,
            )
    except aiohttp.WSServerHandshakeError as error:
        raise NotAulos(f"status {error.status}") from error
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise ConnectionLost(str(error) or type(error).__name__) from error
    connection = Connection(socket, on_notification, on_frame)
    reader = asyncio.create_task(connection.run())
    try:
        yield connection, reader
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        await socket.close()


async def identify(connection: Connection) -> ServerInfo:
    """Ask who answers; this needs no login.

    Raises NotAulos for another server, such as snapserver, or an aulos without an id.
    """
    try:
        info = await connection.call("Aulos.GetInfo")
    except (ConnectionLost, LoginRefused):
        raise
    except AulosError as error:
        raise NotAulos(str(error)) from error
    if not isinstance(info, dict) or info.get("name") != "aulos":
        raise NotAulos("not aulos")
    if not isinstance(server_id := info.get("id"), str) or not server_id:
        raise NotAulos("the server has no id")
    return ServerInfo(server_id, str(info.get("version")))


async def log_in(connection: Connection, address: Address) -> None:
    """Log in if the address has credentials. Raises LoginRefused."""
    if address.login:
        scheme, param = address.login
        await connection.call("Server.Authenticate", {"scheme": scheme, "param": param})


async def fetch_sounds(session: aiohttp.ClientSession, address: Address) -> list[dict[str, str]]:
    """The sound files that the server offers, each with `name` and `uri`.

    Raises ConnectionLost, or LoginRefused if the user may not see them.
    """
    headers = {"Authorization": " ".join(address.login)} if address.login else None
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            url = address.url("http", "/api/v1/sounds")
            async with session.get(url, headers=headers, ssl=address.verify_tls) as response:
                if response.status in (401, 403):
                    raise LoginRefused(f"status {response.status}")
                response.raise_for_status()
                answer = await response.json()
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise ConnectionLost(str(error) or type(error).__name__) from error
    sounds = answer.get("sounds") if isinstance(answer, dict) else None
    if not isinstance(sounds, list):
        raise ConnectionLost("not a list of sounds")
    return [
        {"name": sound["name"], "uri": sound["uri"]}
        for sound in sounds[:MAX_SOUNDS]
        if isinstance(sound, dict)
        and isinstance(sound.get("name"), str)
        and isinstance(sound.get("uri"), str)
    ]
