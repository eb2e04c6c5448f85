#!/usr/bin/env python3
"""A control script as Music Assistant's: JSON-RPC in lines on standard input and output.

Writes what it is started with and what it is told into its folder.
"""

import json
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
PROPERTIES = {
    "canGoNext": True,
    "canGoPrevious": True,
    "canPlay": True,
    "canPause": True,
    "canSeek": False,
    "canControl": True,
    "playbackStatus": "playing",
    "loopStatus": "none",
    "shuffle": False,
    "volume": 100,
    "mute": False,
    "rate": 1.0,
    "position": 0.0,
    "metadata": {"trackId": "1", "duration": 12.5, "title": "One", "artist": ["A"], "album": "B"},
}


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def note(name, value):
    with open(os.path.join(FOLDER, name), "a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


def notify(method, params):
    send({"method": method, "params": params})


note("starts", {"pid": os.getpid(), "arguments": sys.argv[1:]})
print("a line for the log", file=sys.stderr, flush=True)
notify("Plugin.Stream.Log", {"severity": "info", "message": "connected to the queue"})
notify("Plugin.Stream.Ready", {})
for line in sys.stdin:
    call = json.loads(line)
    method, params = call["method"], call.get("params", {})
    if method.endswith("GetProperties"):
        send({"id": call["id"], "result": PROPERTIES})
    elif method.endswith("SetProperty"):
        note("calls", params)
        PROPERTIES.update(params)
        send({"id": call["id"], "result": PROPERTIES})
    elif method.endswith("Control"):
        note("calls", {"command": params["command"]})
        if params["command"] == "next":
            PROPERTIES["metadata"] = {**PROPERTIES["metadata"], "trackId": "2", "title": "Two"}
        send({"id": call["id"], "result": "ok"})
        notify("Plugin.Stream.Player.Properties", PROPERTIES)
    else:
        error = {"code": -32601, "message": "Method not found"}
        send({"id": call["id"], "error": error})
