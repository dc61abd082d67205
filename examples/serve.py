#!/usr/bin/env python3
"""A web server with nothing but the standard library, and a client that asks it.

Sessions stay in memory; every request parses and answers JSON.

    python examples/serve.py [--requests 4000] [--sessions 20000]
"""

import argparse
import http.client
import http.server
import json
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    sessions = {}

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.sessions.setdefault(body["user"], {"seen": [], "profile": {"tags": []}})
        session["seen"] = [*session["seen"][-20:], {"items": body["items"]}]
        answer = json.dumps({"user": body["user"], "seen": len(session["seen"])}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--sessions", type=int, default=20_000)
    options = parser.parse_args()
    for user in range(options.sessions):
        Handler.sessions[user] = {"seen": [], "profile": {"tags": [str(user)], "links": {}}}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    connection = http.client.HTTPConnection(*server.server_address)
    for request in range(options.requests):
        items = [{"id": item, "size": {"w": item, "h": 1}} for item in range(40)]
        connection.request("POST", "/", json.dumps({"user": request % 500, "items": items}))
        connection.getresponse().read()
    server.shutdown()
    print(f"answered {options.requests} requests")


if __name__ == "__main__":
    main()
