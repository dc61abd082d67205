"""A program whose threads wait, and that prints what they execute and the state of its collector."""

import gc
import json
import os
import queue
import select
import sys
import threading
import time

gc.disable()
kept = [[number] for number in range(3000)]
gc.collect(1)
if len(sys.argv) > 1:
    gc.freeze()
gc.set_threshold(900, 11, 12)


class Consumer:
    def wait(self):
        self.reached.set()
        queue.Queue().get()

    def start(self):
        self.reached = threading.Event()
        threading.Thread(target=self.wait, daemon=True).start()
        self.reached.wait()


def wait_for_input():
    select.select([os.pipe()[0]], [], [])


def stack(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        found.append([code.co_filename, getattr(code, "co_qualname", code.co_name), frame.f_lineno])
        frame = frame.f_back
    return found


def report():
    time.sleep(0.5)
    native = {thread.ident: thread.native_id for thread in threading.enumerate()}
    stacks = {native[ident]: stack(frame) for ident, frame in sys._current_frames().items()}
    del stacks[threading.get_native_id()]
    truth = {
        "stacks": stacks,
        "thresholds": gc.get_threshold(),
        "counts": gc.get_count(),
        "generations": gc.get_stats(),
        "frozen": gc.get_freeze_count(),
        "is_enabled": gc.isenabled(),
    }
    print(json.dumps(truth), flush=True)
    time.sleep(1000)


Consumer().start()
threading.Thread(target=wait_for_input, daemon=True).start()
threading.Thread(target=report, daemon=True).start()
sys.stdin.readline()
