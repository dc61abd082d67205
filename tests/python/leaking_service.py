"""A service with three leaks; writes its heap three times, by gcheap.py.

    leaking_service.py FOLDER

FOLDER gets a.gcheap, b.gcheap and c.gcheap: before, during and after requests. Lines that leak are marked `# leak`.
"""

import functools
import gc
import os
import sys

import gcheap

SESSIONS = []


class Session:
    def __init__(self, user):
        self.user = {"name": user}


class Events:
    """Whose handlers are never taken off."""

    def __init__(self):
        self.handlers = []

    def on(self, handler):
        self.handlers.append(handler)  # leak


class Answer:
    pass


events = Events()


@functools.lru_cache(maxsize=None)
def answer(question):
    return Answer()  # leak


def log_in(user):
    session = Session(user)
    SESSIONS.append(session)  # leak
    return session


def handle(number):
    temporary = [Session(n) for n in range(50)]
    session = log_in(number)
    events.on(lambda event: event == number)
    answer(number)
    return session.user, len(temporary)


def main(folder):
    gc.disable()
    for number, name in enumerate(("a", "b", "c")):
        for request in range(200):
            handle(number * 200 + request)
        gc.collect()
        gcheap.write(os.path.join(folder, name + ".gcheap"))


if __name__ == "__main__":
    main(sys.argv[1])
