# Settings of the agent of `gctrace apply`, their order in blocks, and who called what. Runs in the
# same namespace as agent.py, before it.
import sys

MOST_LINES = 100


NAMES = ("none", "threshold", "freeze", "disable", "plan", "gen2")


def parse(text):
    """The items of a setting: {name: (step, values)}."""
    items, last = {}, None
    for piece in text.split(","):
        head, _, point = piece.strip().partition("@")
        name, _, value = head.replace("=", ":").partition(":")
        if name.isdigit() and last == "threshold" and len(items[last][1]) < 3:
            value, values = name, list(items[last][1])
        elif name in items or name not in NAMES:
            raise ValueError("unknown setting " + repr(piece))
        else:
            values = []
        name = "threshold" if name.isdigit() else name
        if name in ("threshold", "plan", "gen2"):
            values.append(int(value))
        step = 0 if name in ("threshold", "none") else 2
        if point.startswith("step:"):
            step = int(point[5:])
        elif point == "start":
            step = 0
        elif point:
            raise ValueError("unknown point " + repr(point))
        elif name == last == "threshold":
            step = items[name][0]
        if name == "freeze" and step == 0:
            raise ValueError("freeze@start would freeze nothing")
        items[name] = (step, tuple(values))
        last = name
    items.pop("none", None)
    if "gen2" in items:
        full = items.pop("gen2")[1]
        items["plan"] = (items["plan"][0], items["plan"][1] + full)
    elif "plan" in items:
        items["plan"] = (items["plan"][0], items["plan"][1] + (items["plan"][1][0] * 10,))
    if items.get("plan", (0, (1,)))[1][0] < 1:
        raise ValueError("plan:0")
    return items


def block_setting(block, count):
    """Which setting a block has: the digit sum of its number (Thue-Morse order for two)."""
    total = 0
    while block > 0 and count > 1:
        block, digit = divmod(block, count)
        total += digit
    return total % count


def caller():
    """The line that called a wrapped function."""
    try:
        frame = sys._getframe(3)
    except ValueError:
        return "the start of a thread"
    return "%s:%d %s" % (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def count(lines, key, step):
    if key in lines or len(lines) < MOST_LINES:
        first, times = lines.get(key, (step, 0))
        lines[key] = (first, times + 1)
