"""Starts a web server, sends it requests, reloads it, stops it, and prints its responses:
servers.py KIND"""

import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

FOLDER = str(pathlib.Path(__file__).parent)
SOCKET = "server.sock"
REQUESTS = 30
PATIENCE_S = 60


class Connection(http.client.HTTPConnection):
    """To a socket in the current folder."""

    def __init__(self):
        super().__init__("localhost", timeout=PATIENCE_S)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(SOCKET)


def request():
    connection = Connection()
    connection.request("GET", "/")
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def wait_until_up(server):
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return request()
        except OSError:
            if server.poll() is not None or time.monotonic() > until:
                sys.exit(f"the server did not start: {server.poll()}")
            time.sleep(0.05)


def requests(count):
    answers = {}
    for _ in range(count):
        answer = request()
        answers[answer] = answers.get(answer, 0) + 1
    return answers


def pids_of(server):
    """Its child processes."""
    children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children")
    return set(children.read_text().split())


def reload(server, sign):
    """Waits until its two workers were replaced; it may have more children than those."""
    until = time.monotonic() + PATIENCE_S
    # The first worker answers before the second exists.
    while len(pids_of(server)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    before = pids_of(server)
    server.send_signal(sign)
    while len(before - pids_of(server)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    return "all new" if len(before - pids_of(server)) >= 2 else "some old"


COMMANDS = {
    "gunicorn": ["-m", "gunicorn", "-w", "2", "--graceful-timeout", "5", "--bind", f"unix:{SOCKET}", "--chdir", FOLDER, "--pythonpath", FOLDER, "web:wsgi"],
    "uvicorn": ["-m", "uvicorn", "--workers", "2", "--uds", SOCKET, "--app-dir", FOLDER, "--log-level", "warning", "web:asgi"],
    "uwsgi": ["--plugin", "python3", "--master", "--die-on-term", "--need-app", "--processes", "2", "--http-socket", SOCKET,
              "--pythonpath", FOLDER, "--module", "web:wsgi"],
    "http": [f"{FOLDER}/web.py", SOCKET],
}  # fmt: skip
RELOAD = {"gunicorn": signal.SIGHUP, "uwsgi": signal.SIGHUP}

if __name__ == "__main__":
    kind = sys.argv[1]
    program = "uwsgi" if kind == "uwsgi" else sys.executable
    if kind == "gunicorn":  # --chdir moves it away from the socket
        SOCKET = os.path.abspath(SOCKET)
        COMMANDS[kind][7] = f"unix:{SOCKET}"
    server = subprocess.Popen([program, *COMMANDS[kind]])
    print("first", wait_until_up(server))
    print("then", requests(REQUESTS))
    if kind in RELOAD:
        print("reload", reload(server, RELOAD[kind]))
        wait_until_up(server)
        print("then", requests(REQUESTS))
    server.send_signal(signal.SIGTERM)
    print("stopped", server.wait(PATIENCE_S))
