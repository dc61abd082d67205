"""Reports the collector's state, and waits to be compared with its memory."""
import gc
import json
import os


def say(phase, read=os.read, write=os.write, dumps=json.dumps, gc=gc):
    facts = {
        "phase": phase,
        "enabled": gc.isenabled(),
        "thresholds": list(gc.get_threshold()),
        "stats": [[g["collections"], g["collected"], g["uncollectable"]] for g in gc.get_stats()],
        "objects": len(gc.get_objects()),
    }
    write(1, dumps(facts).encode() + b"\n")
    read(0, 1)


class AtTheEnd:
    def __del__(self, say=say):
        say("finalizing")


keep = [{i: [i]} for i in range(20000)]
for _ in range(3):
    cycle = [keep]
    cycle.append(cycle)
    del cycle
    gc.collect(0)
for _ in range(2):
    gc.collect(1)
gc.set_threshold(90001, 11, 13)
gc.disable()
gc.collect()
say("disabled")
gc.enable()
say("enabled")
at_the_end = AtTheEnd()
