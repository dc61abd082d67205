"""Web servers under requests, reloaded, stopped."""

from program import Program


def server(kind, python="venv", **options):
    return Program(f"server_{kind}", ["{python}", "{scripts}/servers.py", kind], python=python, stderr=False, **options)


PROGRAMS = [
    server("gunicorn", modules=["gunicorn", "setproctitle"], processes=6, short=True),
    server("uvicorn", modules=["uvicorn"], processes=4),
    server("uwsgi", python="system", tools=["uwsgi"], processes=3),
    server("http", python="system", processes=2),
]
