"""A celery worker with two processes, its broker in the current folder, and the client that sends
it tasks."""

import os
import pathlib
import signal
import subprocess
import sys

import celery
import work

for name in ("queue", "control", "results"):
    pathlib.Path(name).mkdir(exist_ok=True)
app = celery.Celery(
    "celery_app",
    broker="filesystem://",
    backend="file://" + os.path.abspath("results"),
    broker_transport_options={"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"},
)
app.conf.worker_hijack_root_logger = False


@app.task(name="work")
def task(count):
    return work.work(count)


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    line = [sys.executable, "-m", "celery", "--workdir", os.getcwd(), "-A", "celery_app", "worker", "-c", "2", "-P", "prefork"]
    path = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
    worker = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})
    counts = [2_000 + index for index in range(20)]
    results = [task.delay(count) for count in counts]
    print("right" if [one.get(timeout=90) for one in results] == counts else "wrong")
    worker.send_signal(signal.SIGTERM)
    print("stopped", worker.wait(60))
