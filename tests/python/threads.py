"""A process with a thousand threads alive at once, each of which collects.

    threads.py TRUTH.json [--threads 1000]

`explicit` in the truth: {thread id: number of collections requested by the thread and run}.
"""

import argparse
import threading

from recorder import Recorder
from recorder import collect
from recorder import garbage
from recorder import hold_automatic


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("truth")
    parser.add_argument("--threads", type=int, default=1000)
    options = parser.parse_args()

    recorder = Recorder().install()
    threading.stack_size(256 * 1024)
    together = threading.Barrier(options.threads)
    turn = threading.Lock()
    explicit = {}

    def work():
        garbage(300)
        together.wait()
        with turn:  # a call during another thread's collection would do nothing
            hold_automatic()
            collect(0)
            explicit[threading.get_native_id()] = 1

    threads = [threading.Thread(target=work) for _ in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.finish(options.truth, explicit=explicit)


if __name__ == "__main__":
    main()
