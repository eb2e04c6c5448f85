"""Tells what it finds of Snapcast's services on the network of one address, until it is ended."""

import sys
import threading
import time

from zeroconf import IPVersion, ServiceBrowser, ServiceListener, Zeroconf

KINDS = ["snapcast", "snapcast-ctrl", "snapcast-http", "snapcast-https"]
TYPES = [f"_{kind}._tcp.local." for kind in KINDS]


def say(text):
    print(text, flush=True)


class Listener(ServiceListener):
    """Asks for each that comes, on a thread of its own, until it is answered."""

    def add_service(self, network, kind, name):
        say(f"new {name}")
        threading.Thread(target=self.ask, args=(network, kind, name), daemon=True).start()

    def update_service(self, network, kind, name):
        self.add_service(network, kind, name)

    def remove_service(self, network, kind, name):
        say(f"gone {name}")

    def ask(self, network, kind, name):
        for _ in range(20):
            info = network.get_service_info(kind, name, 3000)
            addresses = info and info.parsed_addresses(IPVersion.V4Only)
            if addresses:
                text = "none" if info.text == b"\0" else repr(info.text)
                at = " ".join(sorted(addresses))
                say(f"found {name} port {info.port} at {at} text {text}")
                return


network = Zeroconf(interfaces=[sys.argv[1]], ip_version=IPVersion.V4Only)
ServiceBrowser(network, TYPES, Listener())
say("ready")
while True:
    time.sleep(1)
