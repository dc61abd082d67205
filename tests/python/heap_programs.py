"""Programs whose heaps are taken, one for each argument; each prints `ready` and goes on.

leaks          known leaks: exceptions kept with their tracebacks, hooks that are closures, caches on
               methods; waits
busy           allocates and collects all the time, in two threads
signals N      counts N real-time signals, then prints their number
interpreters   a second interpreter with objects of its own; waits
list N         a linked list of N nodes; waits
collect        makes a full collection at each line of standard input
ticks          prints a line every 10 ms
torch          a training in PyTorch whose hook keeps activations and whose list keeps losses; prints
               the number of tensors that the collector tracks, and waits
"""
import functools
import gc
import os
import signal
import sys
import threading
import time


class Batch:
    def __init__(self, number):
        self.rows = [{"number": number} for _ in range(10)]


class Model:
    def __init__(self):
        self.weights = [0] * 100

    @functools.lru_cache(maxsize=None)
    def cached(self, number):
        return [number]

    @functools.lru_cache(maxsize=100)
    def bounded(self, number):
        return [number]


class Activation:
    """What a hook keeps."""


class Layer:
    def __init__(self):
        self.hooks = []

    def register(self, hook):
        self.hooks.append(hook)


failures = []
layer = Layer()


def step(number):
    batch = Batch(number)
    try:
        raise ValueError(number)
    except ValueError as error:
        failures.append(error)


def hooked():
    activation = Activation()

    def hook():
        return activation

    layer.register(hook)


def ready():
    print("ready", flush=True)


def leaks():
    for number in range(10):
        step(number)
        hooked()
        model = Model()
        model.cached(number)
        Model().bounded(number)
    del model
    ready()
    time.sleep(1000)


def busy():
    def run():
        kept = []
        while True:
            node = {"list": [1]}
            node["self"] = node
            kept.append([node])
            if len(kept) > 4_000:
                del kept[:2_000]

    for _ in range(2):
        threading.Thread(target=run, daemon=True).start()
    ready()
    time.sleep(1000)


def signals():
    # Python itself merges signals; its C handler writes a byte for each.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGRTMIN, lambda number, frame: None)
    wanted, seen = int(sys.argv[2]), 0
    ready()
    while seen < wanted:
        seen += len(os.read(reader, 100))
    print(seen, flush=True)
    time.sleep(1000)


def interpreters():
    try:
        import _interpreters as module
    except ImportError:
        try:
            import _xxsubinterpreters as module
        except ImportError:
            print("none", flush=True)
            return
    made = module.create()
    code = "class InTheOther: pass\nkept = [InTheOther() for _ in range(100)]"
    run = getattr(module, "run_string", None) or module.exec
    run(made, code)
    ready()
    time.sleep(1000)


def linked_list():
    head = None
    for _ in range(int(sys.argv[2])):
        head = [head]
    ready()
    time.sleep(1000)


def collect():
    gc.disable()
    ready()
    for _ in sys.stdin:
        gc.collect()
        print("collected", flush=True)


def ticks():
    kept = [[number] for number in range(400_000)]
    ready()
    while True:
        print(len(kept), flush=True)
        time.sleep(0.01)


def growing():
    kept, hooks, seen = [], {}, set()
    for end in (10_000, 40_000):
        for _ in range(len(kept), end):
            layer = Layer()
            kept.append(layer)
            hooks[layer] = layer.hooks
            seen.add(layer)
        ready()
        sys.stdin.read(1)


def torch_leaks():
    import torch

    global kept, losses
    kept = Layer()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    model[0].register_forward_hook(lambda module, inputs, output: kept.register(output))
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for _ in range(20):
        loss = model(torch.randn(4, 8)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    del loss
    print(sum(type(one) is torch.Tensor for one in gc.get_objects()), flush=True)
    time.sleep(1000)


def forged():
    """40 lists whose items are said to be in 20 GiB that are mapped and never written: a few MB resident."""
    import ctypes
    import os

    global kept
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    private_anonymous_noreserve = 0x4022
    base = libc.mmap(None, 20 << 30, 1, private_anonymous_noreserve, -1, 0)
    gc.disable()
    kept = [[] for _ in range(40)]
    for number, one in enumerate(kept):
        ctypes.c_ssize_t.from_address(id(one) + 16).value = 1 << 26
        ctypes.c_void_p.from_address(id(one) + 24).value = base + (number << 29)
        ctypes.c_ssize_t.from_address(id(one) + 32).value = 1 << 26
    ready()
    sys.stdin.read(1)
    os._exit(3)


PROGRAMS = {
    "forged": forged,
    "torch": torch_leaks,
    "growing": growing,
    "leaks": leaks,
    "busy": busy,
    "signals": signals,
    "interpreters": interpreters,
    "list": linked_list,
    "collect": collect,
    "ticks": ticks,
}
if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
