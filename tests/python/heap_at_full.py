"""Programs whose heap is taken at a full collection, one for each first argument.

truth N FILE   at the end of full collection N writes the addresses of all tracked objects to FILE,
               from an entry in gc.callbacks: those of gc.get_objects(), one for each line as ADDRESS
               TYPE; with a leading `+` those that the entry itself has made; with a leading `=` the
               number of those in the permanent generation, which gc.get_objects() leaves out
counts N       N full collections; prints their number before and after, and a line after each
children N     two processes, one after the other, that each make N full collections, without any of
               its own; prints the pid of each
removes        a full collection, then gc.callbacks.clear(), then three more
many N         8 processes at once that each make N full collections; waits for them
"""
import gc
import os
import subprocess
import sys

gc.disable()


def full():
    return gc.get_stats()[2]["collections"]


class Node:
    def __init__(self):
        self.me = self
        self.data = [{}, ()]


KEPT = [Node() for _ in range(500)]


def truth(at, path):
    # Whatever the entry needs is there before.
    found, own, frozen, wanted = [], [], [], int(at)

    def ended(phase, info):
        if phase == "stop" and info["generation"] == 2 and full() == wanted:
            frozen.append(gc.get_freeze_count())
            mine = [sys._getframe(), info]
            found.extend(gc.get_objects())
            own.extend([id(one) for one in mine] + [id(mine)])

    gc.callbacks.append(ended)
    for _ in range(wanted + 2):
        for _ in range(100):
            Node()
        gc.collect()
    gc.callbacks.remove(ended)
    own += [id(found), id(own), id(frozen)]
    with open(path, "w", encoding="utf-8") as file:
        for one in found:
            file.write(f"{id(one)} {type(one).__module__}.{type(one).__qualname__}\n")
        for one in own:
            file.write(f"+{one}\n")
        file.write(f"={frozen[0]}\n")
    print(full())


def counts(times):
    print(full(), flush=True)
    for _ in range(int(times)):
        gc.collect()
        print(full(), flush=True)


def children(times):
    for _ in range(2):
        own = f"import gc, os; gc.disable(); print(os.getpid(), flush=True); [gc.collect() for _ in range({times})]"
        subprocess.run([sys.executable, "-S", "-c", own], check=True)


def removes():
    gc.collect()
    gc.callbacks.clear()
    for _ in range(3):
        gc.collect()
    print(full())


def many(times):
    own = f"import gc; gc.disable(); [gc.collect() for _ in range({times})]"
    running = [subprocess.Popen([sys.executable, "-S", "-c", own]) for _ in range(8)]
    print([process.wait() for process in running])


if __name__ == "__main__":
    {"truth": truth, "counts": counts, "children": children, "removes": removes, "many": many}[
        sys.argv[1]
    ](*sys.argv[2:])
    sys.stdout.flush()
    if os.environ.get("NO_SHUTDOWN"):
        os._exit(0)
