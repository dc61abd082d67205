# The history of device memory that PyTorch keeps (`--memory-history`).

def history(path, is_end):
    """Has PyTorch keep the history of its device memory from the first call on, and write it as a pickle for its memory
    viewer: at the end, when memory runs out, and wherever the file is not there. Why there is none; None otherwise."""
    try:
        return keep_history(path, is_end)
    except Exception as error:
        first_time, kept["why"] = kept["why"] is None, str(error)
        return "%s: %s" % (type(error).__name__, error) if first_time else None


def keep_history(path, is_end):
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return "the program has used no GPU" if is_end else None
    memory, os = modules["torch.cuda.memory"], modules["os"]
    rank = os.environ.get("RANK", "0")
    if rank != "0" and "%" not in path:
        return "the file is rank 0's: name one with %r" if is_end else None
    if kept["path"] is None:
        if is_end:
            return "the program made too few steps"
        # One that the program has begun itself stays as it is.
        if not torch._C._cuda_isHistoryEnabled():
            memory._record_memory_history(max_entries=MOST_EVENTS, stacks="python")
        torch._C._cuda_attach_out_of_memory_observer(out_of_memory)
        kept["path"] = path.replace("%r", rank).replace("%p", str(os.getpid()))
    elif is_end and not kept["ran_out"] or not os.path.exists(kept["path"]):
        write_history(memory, os)
    return None


def write_history(memory, os):
    part = kept["path"] + ".part"
    memory._dump_snapshot(part)
    os.replace(part, kept["path"])


def out_of_memory(*_):
    """What the allocator calls before it raises: what follows may be far from it."""
    try:
        if not kept["ran_out"]:
            kept["ran_out"] = True
            write_history(modules["torch.cuda.memory"], modules["os"])
    except Exception:
        pass


# Events of a history: at some KB each, what a viewer draws in seconds.
MOST_EVENTS = 100000
kept = {"path": None, "why": None, "ran_out": False}
