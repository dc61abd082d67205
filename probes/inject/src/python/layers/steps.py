# What the library calls: the steps that are measured, and when the next one is.

def result(now, step, every, due):
    with plain(), torch.no_grad():
        rows, most, remarks = table(now, step)
    is_same = rows == state["last"]
    state["last"] = rows
    if not remarks & AT_END:
        state["roots"] = list(now["roots"].values())
        state["optimizers"] = [weak(one) for one in now["optimizers"]]
        state["shapes"] = now["shapes"]
    return (due, now["step"], every, most, remarks, now["cost"], () if is_same else rows, device_memory())


def finish(step, optimizer, every):
    begun = clock()
    for one in optimizer:
        if not any(one is known for known in state["now"]["optimizers"]):
            state["now"]["optimizers"].append(one)
    now = stop()
    if now is None:
        return step + 1
    if now["failed"]:
        release(now)
        raise ValueError(now["failed"])
    if now["scouts"] and not now["compiles"]:
        release(now)
        return step
    if now["compiles"]:
        release(now)
        state["missed"] += 1
        return step + (every or 2 ** min(state["missed"], 10))
    now["cost"] += AROUND_STEP + now["modules"] * AROUND_MODULE + now["saved"] * AROUND_SAVED
    found = list(result(now, step, every, 0))
    release(now)
    ended = clock()
    cost = now["cost"] + ended - begun
    # The length of a step without us.
    steps, length = 1, ended - state["begun"] - cost
    if state["ended"] is not None and step > state["ended"][1] + 1:
        steps, length = step - 1 - state["ended"][1], state["begun"] - state["ended"][0]
    length = max(length / steps, 1000)
    if not every:
        apart = max(cost / BUDGET, (ended - first[0]) * SPACING)
        every = int(apart / length) + 1
    state["ended"] = (ended, step)
    found[0], found[2], found[5] = step + max(every - 1, 0), every, cost
    return tuple(found)


def at_step(step, optimizer, every):
    """At the end of step `step`, that of `optimizer` (a tuple, empty without). The next step at whose end this
    is to be called; or that and a table; or why nothing is measured any more. `every`: 0: as the budget allows."""
    try:
        return measure(step, optimizer, every)
    except Exception as error:
        abandon()
        return "%s: %s" % (type(error).__name__, error)


def measure(step, optimizer, every):
    if not first:
        first.append(clock())
    if state["now"] is None:
        begin(step + 1)
        return step + 1
    found = finish(step, optimizer, every)
    if found == step:
        begin(step + 1)
        return step + 1
    if isinstance(found, tuple) and found[0] == step:
        begin(step + 1)
        found = (step + 1,) + found[1:]
    return found


def also_stepped(optimizer):
    """Another optimizer, within a measured step."""
    now = state["now"]
    if now is not None and not any(one is optimizer for one in now["optimizers"]) and len(now["optimizers"]) < 1000:
        now["optimizers"].append(optimizer)


def forget():
    """The last table was not written."""
    state["last"] = None


def abandon():
    """Ends a measured step without a table."""
    now = state["now"]
    if now is not None:
        now["failed"] = True
        if stop() is None:
            state["now"] = None  # our hooks stay below the program's, and do nothing
            take_off(now)
        release(now)


def at_end(step):
    """What the layers of the last measured step hold at the end; None without."""
    abandon()
    if not state["roots"]:
        return None
    begun = clock()
    optimizers = [one for one in (one() for one in state["optimizers"]) if one is not None]
    now = {"roots": dict(enumerate(state["roots"])), "remarks": AT_END, "passes": [({}, {})], "calls": {},
           "again": set(), "shapes": state["shapes"], "optimizers": optimizers, "step": step, "cost": 0}
    found = result(now, step, 0, 0)
    return found[:5] + (clock() - begun,) + found[6:]


first = []
