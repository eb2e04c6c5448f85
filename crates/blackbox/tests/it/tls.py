"""A Snapcast client with TLS, over Python's ssl (OpenSSL): says Hello, asks for the time, counts.

tls.py PORT SECONDS CERTIFICATE [SCHEME PARAM]

The certificate is pinned; the name is `localhost`. Prints one JSON object. Layout of the messages:
header of 26 bytes, little endian: type, id, refers-to (u16), sent and received (i32 s, i32 us), size.
"""

import json
import socket
import ssl
import statistics
import struct
import sys
import time

HEADER = struct.Struct("<HHHiiiiI")
CODEC_HEADER, CHUNK, SETTINGS, TIME, HELLO, ERROR = 1, 2, 3, 4, 5, 8


def clock_us():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def message(kind, number, payload):
    now = clock_us()
    return HEADER.pack(kind, number, 0, now // 1_000_000, now % 1_000_000, 0, 0, len(payload)) + payload


def hello(auth):
    body = {
        "MAC": "02:00:00:00:0a:0a", "ID": "python", "HostName": "python", "Version": "0.34.0",
        "ClientName": "Snapclient", "OS": "Linux", "Arch": "x86_64", "Instance": 1,
        "SnapStreamProtocolVersion": 2,
    }
    if auth:
        body["Auth"] = {"scheme": auth[0], "param": auth[1]}
    text = json.dumps(body).encode()
    return message(HELLO, 2, struct.pack("<I", len(text)) + text)


def main():
    port, seconds, certificate, auth = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]
    context = ssl.create_default_context(cafile=certificate)
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tls = context.wrap_socket(plain, server_hostname="localhost")
    found = {"version": tls.version(), "settings": 0, "headers": 0, "chunks": 0, "gaps": 0}
    offsets, held, last, asked, number = [], b"", None, 0.0, 3
    tls.sendall(hello(auth))
    tls.settimeout(0.05)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found["settings"] and time.monotonic() - asked > 0.1:
            asked = time.monotonic()
            tls.sendall(message(TIME, number, bytes(8)))
            number += 1
        try:
            got = tls.recv(65536)
            if not got:
                found["closed"] = True
                break
            held += got
        except (TimeoutError, ssl.SSLWantReadError):
            continue
        except OSError as error:
            found["closed"] = str(error)
            break
        while len(held) >= HEADER.size:
            kind, _, refers, sent_s, sent_us, _, _, size = HEADER.unpack_from(held)
            if len(held) < HEADER.size + size:
                break
            now, payload = clock_us(), held[HEADER.size:HEADER.size + size]
            held = held[HEADER.size + size:]
            if kind == SETTINGS:
                found["settings"] += 1
            elif kind == CODEC_HEADER:
                found["headers"] += 1
            elif kind == ERROR:
                length = struct.unpack_from("<I", payload, 4)[0]
                found["error"] = [struct.unpack_from("<I", payload)[0], payload[8:8 + length].decode(), refers]
            elif kind == TIME:
                there = struct.unpack_from("<ii", payload)
                back = now - (sent_s * 1_000_000 + sent_us)
                offsets.append((there[0] * 1_000_000 + there[1] - back) / 2)
            elif kind == CHUNK:
                found["chunks"] += 1
                stamp = struct.unpack_from("<ii", payload)
                stamp = stamp[0] * 1_000_000 + stamp[1]
                # 20 ms of sound in every chunk of this station.
                found["gaps"] += last is not None and abs(stamp - last - 20_000) > 2
                last = stamp
    found["offset_us"] = statistics.median(offsets) if offsets else None
    print(json.dumps(found))


main()
