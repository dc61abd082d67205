"""An application for web servers. Run by itself it is a server: web.py SOCKET"""

import http.server
import os
import signal
import socketserver
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import work

# Some servers end their processes without Python's knowledge: truth/sitecustomize.py counts after
# each request.
record = getattr(sys.modules.get("sitecustomize"), "record", lambda event: None)


def answer():
    count = work.work(2_000)
    record("now")
    return b"%d" % count


def wsgi(environment, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer()]


async def asgi(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer()})


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer())

    def address_string(self):
        return "-"

    def log_message(self, *arguments):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self):
        connection, _ = super().get_request()
        return connection, ("-", 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Server(sys.argv[1], Handler).serve_forever()
