"""Does what systemd does with a .socket unit: opens ports, waits, becomes the server.

Usage: activation.py FOLDER NAMES PROGRAM ARGUMENT... NAMES is the value of LISTEN_FDNAMES; there are
as many ports as names. Their numbers go into FOLDER/ports, and the server begins when FOLDER/go is
there. `PORT0`, `PORT1` and so on in the arguments become the numbers.
"""

import fcntl
import os
import socket
import sys
import time

folder, names, *command = sys.argv[1:]
listeners = []
for _ in names.split(":"):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    listeners.append(listener)
ports = [str(listener.getsockname()[1]) for listener in listeners]
with open(folder + "/ports.new", "w", encoding="ascii") as file:
    file.write(" ".join(ports))
os.rename(folder + "/ports.new", folder + "/ports")
while not os.path.exists(folder + "/go"):
    time.sleep(0.01)
# Away from the numbers that they are to have.
high = [fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD_CLOEXEC, 100) for listener in listeners]
for number, descriptor in enumerate(high):
    os.dup2(descriptor, 3 + number, inheritable=True)
for number, port in reversed(list(enumerate(ports))):
    command = [word.replace(f"PORT{number}", port) for word in command]
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)), LISTEN_FDNAMES=names)
os.execvp(command[0], command)
