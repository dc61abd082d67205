"""Pools of worker processes."""

from program import Program


def pool(kind, python="system", **options):
    return Program(f"pool_{kind}", ["{python}", "{scripts}/pools.py", kind], python=python, **options)


PROGRAMS = [
    pool("fork", processes=3, short=True),
    pool("spawn", processes=4, short=True),
    pool("forkserver", processes=4, short=True),
    pool("futures", processes=3),
    pool("joblib", "venv", modules=["joblib"], processes=3),
    pool("dask", "venv", modules=["distributed"], processes=3, stderr=False),
    pool("ray", "venv", modules=["ray"], processes=4, stderr=False),
    Program("celery", ["{python}", "{scripts}/celery_app.py"], python="venv", modules=["celery"], processes=3),
]
