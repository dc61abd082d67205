"""Web applications whose sessions stay in memory.

    uvicorn web:app            FastAPI
    gunicorn -w 2 web:answer   WSGI, two processes

Each request keeps what it parsed; each hundredth writes a file.
"""

import json
import os
import tempfile

SESSIONS = {user: {"profile": [[user], [str(user)]], "seen": []} for user in range(100_000)}


def remember(body):
    items = [[item, {"size": [item, 1]}] for item in body["items"]]
    seen = SESSIONS[body["user"]]["seen"]
    seen.append(items)
    if len(seen) % 20 == 0:
        store(seen)
    return len(seen)


def store(seen):
    """In the handler, where everybody waits for the disk."""
    with tempfile.TemporaryFile("w") as file:
        json.dump(seen, file)
        file.flush()
        os.fsync(file.fileno())


def answer(environ, start_response):
    """The WSGI application."""
    body = json.load(environ["wsgi.input"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(remember(body)).encode()]


try:
    import fastapi
except ImportError:
    app = None
else:
    app = fastapi.FastAPI()

    @app.post("/")
    async def post(body: dict):
        return remember(body)
