"""A program for scripts/bench/auto.py that measures itself.

    auto_program.py KIND STEPS FILE [FOLDER OF THE SIMULATED GPU]

FILE gets the CPU time of the thread that makes the steps, that of its collections (in gc.callbacks), and that of each
of a hundred equal parts of the run outside of collections, in s. Of two ranks, each has a file: FILE and FILE.1.
"""

import asyncio
import collections
import gc
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

PARTS = 100
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/train_simgpu.py"


class Truth:
    def __init__(self, steps):
        self.collecting_s = self.began_s = 0.0
        self.full = [0, 0.0]
        self.each, self.steps, self.ends = max(steps // PARTS, 1), 0, []
        gc.callbacks.append(self.collection)

    def collection(self, phase, info):
        if phase == "start":
            self.began_s = time.thread_time()
            return
        took_s = time.thread_time() - self.began_s
        self.collecting_s += took_s
        if info["generation"] == 2:
            self.full = [self.full[0] + 1, self.full[1] + took_s]

    def stepped(self):
        if self.steps % self.each == 0:
            self.ends.append(time.thread_time() - self.collecting_s)
        self.steps += 1

    def write(self, path):
        parts = [end - begin for begin, end in zip(self.ends, self.ends[1:])]
        found = {"cpu_s": time.thread_time(), "collecting_s": self.collecting_s, "full": self.full, "parts_s": parts}
        pathlib.Path(path).write_text(json.dumps(found))


class Node:
    def __init__(self, value):
        self.value, self.left, self.right = value, None, None


def numbers(turns=3000):
    x = 0
    for i in range(turns):
        x += i * i % 7
    return x


def cycles(count):
    for _ in range(count):
        a = []
        b = [a]
        a.append(b)


def tree(depth):
    node = Node(depth)
    if depth:
        node.left, node.right = tree(depth - 1), tree(depth - 1)
    return node


def step_of(kind, steps):
    """The step of a program without libraries."""
    kept, window, cache = [], collections.deque(maxlen=40_000), collections.OrderedDict()
    text = json.dumps([{"id": i, "tags": [str(i), {"n": i}], "name": f"name {i}"} for i in range(60)])
    if kind in ("static", "changes", "service"):
        kept.append([[i, [i]] for i in range(330_000)])

    def step(i):
        if kind in ("static", "service") or kind == "changes" and i > steps // 2:
            numbers()
            window.extend([i] for i in range(200))
            cycles(50)
        elif kind == "growing":
            numbers()
            kept.extend([i] for i in range(40))
        elif kind == "cycles":
            numbers()
            cycles(300)
        elif kind == "trees":
            cache[i] = tree(7)
            if len(cache) > 1_500:
                cache.popitem(last=False)
        elif kind == "records":
            records = json.loads(text)
            cache[i % 5_000] = [r for r in records if r["id"] % 7 == i % 7]
            numbers(1_000)
        else:
            numbers()

    return step


def network_step():
    """A step of PyTorch whose samples know their batch."""
    import torch

    class Sample:
        def __init__(self, batch, at):
            self.batch, self.at, self.features = batch, at, [at % 7 / 7.0, at % 5 / 5.0]
            batch.append(self)

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    recent = collections.deque(maxlen=100)

    def step(i):
        batch = []
        for at in range(i, i + 200):
            Sample(batch, at)
        recent.append(batch)
        optimizer.zero_grad()
        model(torch.tensor([sample.features for sample in batch])).square().mean().backward()
        optimizer.step()

    return step


def serve(requests, truth):
    """An HTTP server of asyncio and its clients, in one process: no step is known."""
    users = {i: {"id": i, "name": f"user {i}", "friends": [(i * k) % 50_000 for k in range(1, 5)]} for i in range(50_000)}
    sessions = collections.OrderedDict()

    async def answer(reader, writer):
        while line := await reader.readline():
            while await reader.readline() != b"\r\n":
                pass
            number = int(line.split(b" ")[1].rsplit(b"/")[-1])
            try:
                user = users[number]
                found = {**user, "friends": [dict(users[friend]) for friend in user["friends"]]}
                status = b"200 OK"
            except KeyError as error:
                found, status = {"error": str(error), "trace": [str(error.__traceback__.tb_lineno)]}, b"404 Not Found"
            sessions[number] = found
            if len(sessions) > 20_000:
                sessions.popitem(last=False)
            body = json.dumps(found).encode()
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
            await writer.drain()
        writer.close()

    async def client(path, first):
        reader, writer = await asyncio.open_unix_connection(path)
        for number in range(first, requests, 20):
            writer.write(b"GET /users/%d HTTP/1.1\r\nHost: here\r\n\r\n" % (number * 7919 % 52_000))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r")[0]))
            truth.stepped()
        writer.close()

    async def main():
        server = await asyncio.start_unix_server(answer, "socket")
        await asyncio.gather(*(client("socket", first) for first in range(20)))
        server.close()

    asyncio.run(main())
    os.unlink("socket")


def train_simgpu(steps, folder, truth):
    """One rank of examples/train_simgpu.py."""
    spec = importlib.util.spec_from_file_location("train_simgpu", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    if "RANK" not in os.environ:
        identity = example.UniqueId()
        example.load(folder, "libnccl.so.2").ncclGetUniqueId(example.byref(identity))
        job = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TRAIN_NCCL_ID": bytes(identity).hex()}
        ranks = [
            subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **job, "RANK": str(rank)})
            for rank in range(2)
        ]
        sys.exit(max(rank.wait() for rank in ranks))
    own = example.train_step

    def stepped(*arguments):
        truth.stepped()
        own(*arguments)

    example.train_step = stepped
    sizes = {"--layers": 4, "--kernel-us": 10, "--samples": 60_000, "--copies": 20, "--tensor-bytes": 4096}
    words = [str(word) for pair in sizes.items() for word in pair]
    sys.argv = ["train_simgpu.py", "--library", folder, "--steps", str(steps), "--ranks", "2", *words]
    example.main()


def main():
    kind, steps, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    truth = Truth(steps)
    if kind == "simgpu":
        train_simgpu(steps, sys.argv[4], truth)
    elif kind == "web":
        serve(steps, truth)
    else:
        step = network_step() if kind == "torch" else step_of(kind, steps)

        def train_step(i):
            step(i)

        for i in range(steps):
            (step if kind == "service" else train_step)(i)
            truth.stepped()
    rank = os.environ.get("RANK", "0")
    truth.write(path if rank == "0" else f"{path}.{rank}")


if __name__ == "__main__":
    main()
