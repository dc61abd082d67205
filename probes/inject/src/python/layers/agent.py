# Memory by layer of PyTorch, for one step of training at a time. Run by the injected library in a
# namespace of its own, at the end of the program's first step: torch is imported by then. Nothing is
# imported here, no class is defined, and between measured steps nothing is registered and no object of
# the program is held. `at_step` is what the library calls, with the interpreter's lock held.
#
# In a measured step every module has hooks, and so have tensors that are saved for backward. Storages are
# told apart by the address of their head, which a weak reference keeps from being used again.

torch = modules["torch"]
nn_module = modules["torch.nn.modules.module"]
autograd = torch._C._autograd
Tensor, Storage, strided = torch.Tensor, torch.UntypedStorage, torch.strided
graph_task = torch._C._current_graph_task_id
is_compiling = torch.compiler.is_compiling
plain = torch._C.DisableTorchFunctionSubclass
top_hooks = getattr(autograd, "_top_saved_tensors_default_hooks", None)
thread_id = modules["_thread"].get_ident
clock = modules["time"].perf_counter_ns
weak = modules["_weakref"].ref

# Of a row.
FROZEN, OFFLOADED, RECOMPUTED, NOT_CALLED, REST, NO_LAYER = 1, 2, 4, 8, 16, 32
# Of a table: the bits of `RingLayers::remarks`.
(SAVED_FORBIDDEN, OWN_HOOKS, COMPILED, SHARDED, REPLICATED, ZERO, QUANTIZED, SPARSE, INFERENCE, SEVERAL_MODELS,
 NO_OPTIMIZER, SEVERAL_OPTIMIZERS, SEVERAL_PASSES, OTHER_THREADS, AT_END) = (1 << bit for bit in range(15))

# Rows of a table; smaller layers are summed up in one more.
MOST_ROWS = 1000
# Storages that are told apart in a step; a step has some hundred thousand at most.
MOST_STORAGES = 1 << 20
# Share of the time that measuring may take, and of the time so far that two measured steps are apart.
BUDGET, SPACING = 0.003, 0.01
# What a measured step takes beside our own code, in ns: once, and per call of a module and of a saved tensor's hook
# (the slower way to call modules, from C++ to Python). So that what is said is about what scripts/bench/layers.py
# measures.
AROUND_STEP, AROUND_MODULE, AROUND_SAVED = 100000, 10000, 4000

state = {"now": None, "last": None, "begun": None, "ended": None, "roots": [], "optimizers": [], "shapes": {}, "missed": 0}


def tensors(value, depth=0):
    if isinstance(value, Tensor):
        yield value
    elif depth < 4:
        if isinstance(value, dict):
            value = list(value.values())
        elif hasattr(type(value), "__dataclass_fields__"):
            value = [getattr(value, name, None) for name in type(value).__dataclass_fields__]
        if isinstance(value, (list, tuple)):
            for one in value:
                yield from tensors(one, depth + 1)


def local(tensor):
    """What this rank has of a tensor that is distributed over several."""
    part = getattr(tensor, "_local_tensor", None)
    return part if isinstance(part, Tensor) else tensor


def size(tensor):
    tensor = local(tensor)
    if tensor.device.type == "meta":
        return 0
    if tensor.layout is strided:
        return tensor.nbytes
    parts = ("_indices", "_values") if tensor.layout is torch.sparse_coo else ("crow_indices", "col_indices", "ccol_indices", "row_indices", "values")
    total = 0
    for name in parts:
        try:
            part = getattr(tensor, name)()
        except RuntimeError:  # not of this layout
            continue
        total += part.nbytes
    return total


def storage(tensor):
    """Of a strided tensor that has one."""
    tensor = local(tensor)
    if tensor.layout is not strided or tensor.device.type == "meta":
        return None
    return tensor.untyped_storage()


def place(tensor):
    """Which memory a weight is: tied ones are at the same place."""
    tensor = local(tensor)
    if tensor.layout is not strided or tensor.device.type == "meta":
        return id(tensor)
    return (str(tensor.device), tensor.data_ptr(), tensor.nbytes) if tensor.nbytes else id(tensor)


def see(now, kept):
    """Begins another pass of forward and backward, if the last one's backward has begun."""
    if now["unpacked"]:
        now["unpacked"] = False
        if len(now["passes"]) < 1000:
            now["passes"].append(({}, {}))
    return now["passes"][-1][kept]


def keep(now, seen, tensor, of, requires_grad):
    """Notes whose a storage is: the first layer's."""
    data = storage(tensor)
    if data is None:
        return
    key = data._cdata
    if key not in seen and len(now["weak"]) < MOST_STORAGES:
        now["weak"].append(data._weak_ref())
        seen[key] = (of, data.nbytes(), tensor.nbytes if requires_grad else 0)


def before(module, arguments):
    now, begun = state["now"], clock()
    if now is None:
        return
    try:
        is_backward = graph_task() != -1
        if not is_backward and thread_id() != now["thread"]:
            now["remarks"] |= OTHER_THREADS
            return
        stack = now["inner"] if is_backward else now["stack"]
        if not stack and not is_backward:
            if id(module) not in now["roots"]:
                now["roots"][id(module)] = weak(module)
                watch_compiler(now)
            check_hooks(now)
        stack.append(module)
    except Exception as error:
        now["failed"] = "%s: %s" % (type(error).__name__, error)
    now["cost"] += clock() - begun


def after(module, arguments, output):
    now, begun = state["now"], clock()
    if now is None:
        return
    try:
        is_backward = graph_task() != -1
        if not is_backward and thread_id() != now["thread"]:
            return
        stack = now["inner"] if is_backward else now["stack"]
        # A forward that raised leaves its modules behind.
        if any(one is module for one in stack):
            while stack.pop() is not module:
                pass
        name = id(module)
        if is_backward:
            now["again"].add(name)
            return
        now["calls"][name] = now["calls"].get(name, 0) + 1
        outputs = see(now, 1)
        with plain():
            for tensor in tensors(output):
                if name not in now["shapes"]:
                    now["shapes"][name] = str(list(tensor.shape))
                if tensor.is_inference():
                    now["remarks"] |= INFERENCE
                keep(now, outputs, tensor, name, tensor.requires_grad and not tensor.is_leaf)
    except Exception as error:
        now["failed"] = "%s: %s" % (type(error).__name__, error)
    now["cost"] += clock() - begun
    now["modules"] += 1


# Compiled code has none of it (see steps/optimizer.rs), and no graph ends here.
before_call = lambda module, arguments: None if is_compiling() else before(module, arguments)
after_call = lambda module, arguments, output: None if is_compiling() else after(module, arguments, output)


def pack(tensor):
    now, begun = state["now"], clock()
    # One that has a gradient function would have itself, by what the function saves: it would never be freed.
    # Torch checks by its version that it is not changed meanwhile, unless it has hooks.
    kept = (tensor if tensor.grad_fn is None else tensor.detach(), tensor._version)
    if now is None:
        return kept
    try:
        if graph_task() == -1:
            with plain():
                of = id(now["stack"][-1]) if now["stack"] else None
                keep(now, see(now, 0), tensor, of, False)
    except Exception as error:
        now["failed"] = "%s: %s" % (type(error).__name__, error)
    now["cost"] += clock() - begun
    now["saved"] += 1
    return kept


def unpack(kept):
    now, (tensor, version) = state["now"], kept
    if now is not None:
        now["unpacked"] = True
        now["saved"] += 1
    if tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "[%s %s] is at version %d; expected version %d instead."
            % (tensor.type(), list(tensor.shape), tensor._version, version)
        )
    return tensor


def check_hooks(now):
    """Whether tensors that are saved now are seen by other hooks than ours."""
    if not now["hooked"]:
        return
    top = top_hooks(False)
    if top is not None and top[0] is not pack and not getattr(top[0], "_checkpoint_internal", False):
        if "checkpoint" not in getattr(top[0], "__qualname__", ""):
            now["remarks"] |= OWN_HOOKS


def forbid(message, *rest, **named):
    """In place of torch's function while hooks of ours are in place, which it would refuse."""
    now = state["now"]
    try:
        if now is not None and now["hooked"] and is_ours():
            unhook(now)
            now["remarks"] |= SAVED_FORBIDDEN
    except Exception:
        pass
    return disable_hooks(message, *rest, **named)


disable_hooks = autograd._saved_tensors_hooks_disable


def is_ours():
    top = top_hooks(False)
    return top is not None and top[0] is pack


def hook(now):
    """Has saved tensors seen; only below hooks of the program, so that both are taken off in order."""
    if top_hooks is None or top_hooks(False) is not None:
        now["remarks"] |= OWN_HOOKS
        return
    try:
        autograd._push_saved_tensors_default_hooks(pack, unpack)
    except RuntimeError:
        now["remarks"] |= SAVED_FORBIDDEN
        return
    now["hooked"] = True
    autograd._saved_tensors_hooks_disable = forbid


def unhook(now):
    autograd._pop_saved_tensors_default_hooks()
    now["hooked"] = False
    if autograd._saved_tensors_hooks_disable is forbid:
        autograd._saved_tensors_hooks_disable = disable_hooks


has_hooks = getattr(nn_module, "_has_any_global_hook", None)


def has_other_hooks():
    """In place of torch's function while hooks of ours are in place: compiled modules warn of any."""
    names = ("_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_pre_hooks", "_global_forward_hooks")
    hooks = [hook for name in names for hook in getattr(nn_module, name, {}).values()]
    return any(hook is not before_call and hook is not after_call for hook in hooks)


def compiling():
    """What torch's compiler calls as it begins, if it was imported; None if it has none, or not yet."""
    return getattr(modules.get("torch._dynamo.callback"), "callback_handler", None)


def compile_begins(*_):
    """Code that is compiled with hooks in place would have them, or be compiled again without: none are."""
    now = state["now"]
    if now is not None:
        now["compiles"] = True
        take_off(now)


def watch_compiler(now):
    handler = compiling()
    if handler is not None and not now["watches"]:
        handler.register_start_callback(compile_begins)
        now["watches"] = True


def begin(step):
    begun = clock()
    now = {
        "step": step, "thread": thread_id(), "roots": {}, "stack": [], "inner": [], "calls": {}, "again": set(),
        "shapes": {}, "passes": [({}, {})], "weak": [], "optimizers": [], "unpacked": False, "hooked": False,
        "failed": False, "compiles": False, "watches": False, "remarks": 0, "cost": 0, "modules": 0, "saved": 0, "handles": [],
    }
    hook(now)
    watch_compiler(now)
    now["handles"] = [
        nn_module.register_module_forward_pre_hook(before_call),
        nn_module.register_module_forward_hook(after_call, always_call=True),
    ]
    if has_hooks is not None:
        nn_module._has_any_global_hook = has_other_hooks
    state["now"], state["begun"] = now, begun
    now["cost"] += clock() - begun


def stop():
    """Ends a measured step; `None` while hooks of the program are above ours."""
    now = state["now"]
    if now["hooked"]:
        if thread_id() != now["thread"] or not is_ours():
            return None
        unhook(now)
    take_off(now)
    if now["watches"]:
        compiling().remove_start_callback(compile_begins)
    state["now"] = None
    return now


def take_off(now):
    for handle in now["handles"]:
        handle.remove()
    if getattr(nn_module, "_has_any_global_hook", None) is has_other_hooks:
        nn_module._has_any_global_hook = has_hooks


def release(now):
    for key in now["weak"]:
        Storage._free_weak_ref(key)
    now["weak"] = []


def own_weights(roots):
    """Of each root its modules and their names."""
    found = []
    for root in roots:
        named = list(root.named_modules())
        found.append((root, named, sum(size(p) for _, m in named for p in m._parameters.values() if p is not None)))
    inner = {id(module) for root, named, _ in found for name, module in named if module is not root}
    found = [one for one in found if id(one[0]) not in inner]
    with_weights = [one for one in found if one[2]]
    counts, names = {}, []
    for root, named, weights in found:
        kind = type(root).__name__
        counts[kind] = counts.get(kind, 0) + 1
        prefix = kind if counts[kind] == 1 else "%s#%d" % (kind, counts[kind])
        if len(with_weights) == 1 and weights:
            prefix = ""
        for name, module in named:
            names.append((".".join(part for part in (prefix, name) if part), module, root))
    return names, len(with_weights)


def remark_on(module):
    kind = type(module)
    names = {base.__name__ for base in kind.__mro__}
    remarks = 0
    if "OptimizedModule" in names or getattr(module, "_compiled_call_impl", None) is not None:
        remarks |= COMPILED
    if "FullyShardedDataParallel" in names or "FSDPModule" in names:
        remarks |= SHARDED
    if "DistributedDataParallel" in names:
        remarks |= REPLICATED
    if ".quantized" in kind.__module__ or "bitsandbytes" in kind.__module__:
        remarks |= QUANTIZED
    return remarks


def main_device(weights):
    sums = {}
    for tensor in weights:
        sums[tensor.device] = sums.get(tensor.device, 0) + size(tensor)
    return max(sums, key=sums.get) if sums else None


def table(now, step):
    """The rows of a measured step, or at the end what layers hold then."""
    names, models = own_weights([root for root in (one() for one in now["roots"].values()) if root is not None])
    remarks = now["remarks"] | (SEVERAL_MODELS if models > 1 else 0)
    if len(now["passes"]) > 1:
        remarks |= SEVERAL_PASSES
    devices = {}
    for _, _, root in names:
        if id(root) not in devices:
            devices[id(root)] = main_device([p for p in root.parameters()])
    owners, held, rows, at = {}, set(), [], {}
    for name, module, root in names:
        if id(module) in at:
            continue
        remarks |= remark_on(module)
        weights = gradients = buffers = flags = 0
        tied, own = [], []
        for label, tensor in module._parameters.items():
            if tensor is None:
                continue
            data = storage(tensor)
            if data is not None:
                held.add(data._cdata)
            elif tensor.layout is not strided:
                remarks |= SPARSE
            if local(tensor) is not tensor:
                remarks |= SHARDED
            if tensor.is_quantized:
                remarks |= QUANTIZED
            where = place(tensor)
            if where in owners:
                tied.append("%s = %s" % (label, owners[where][0]))
                continue
            owners[where] = (".".join(part for part in (name, label) if part), len(rows))
            own.append(tensor)
            weights += size(tensor)
            gradient = tensor.grad if tensor.is_leaf else None
            if gradient is not None:
                gradients += size(gradient)
                if local(gradient).layout is not strided:
                    remarks |= SPARSE
        for tensor in module._buffers.values():
            data = None if tensor is None else storage(tensor)
            if data is not None and data._cdata not in held:
                held.add(data._cdata)
                buffers += size(tensor)
        device = devices[id(root)]
        if own:
            if not any(tensor.requires_grad for tensor in own):
                flags |= FROZEN
            if any(tensor.device != device for tensor in own):
                flags |= OFFLOADED
                device = own[0].device
            if not now["calls"].get(id(module)) and not remarks & AT_END:
                flags |= NOT_CALLED
        if id(module) in now["again"]:
            flags |= RECOMPUTED
        at[id(module)] = len(rows)
        rows.append([name, type(module).__name__, now["shapes"].get(id(module), ""), "; ".join(tied),
                     "" if device is None else str(device), flags, now["calls"].get(id(module), 0),
                     weights, gradients, buffers, 0, 0, 0, 0])
    nowhere = ["", "", "", "", "", NO_LAYER, 0, 0, 0, 0, 0, 0, 0, 0]
    row_of = lambda module: rows[at[module]] if module in at else nowhere
    states = set()
    for optimizer in now["optimizers"]:
        if type(optimizer).__name__ in ("ZeroRedundancyOptimizer", "DeepSpeedZeroOptimizer"):
            remarks |= ZERO
        for parameter, values in list(optimizer.state.items()):
            owner = owners.get(place(parameter)) if isinstance(parameter, Tensor) else None
            row = nowhere if owner is None else rows[owner[1]]
            for tensor in tensors(values):
                data = storage(tensor)
                key = id(tensor) if data is None else (data._cdata, tensor.data_ptr())
                if key not in states:
                    states.add(key)
                    row[10] += size(tensor)
    optimizers = len({id(one) for one in now["optimizers"]})
    if not remarks & AT_END:
        remarks |= NO_OPTIMIZER if optimizers == 0 else SEVERAL_OPTIMIZERS if optimizers > 1 else 0
    most = 0
    for saved, outputs in now["passes"]:
        sums = {}
        total = 0
        for key, (module, amount, _) in saved.items():
            if key not in held:
                total += amount
                sums.setdefault(module, [0, 0, 0])[1] += amount
        for module, amount, gradient in outputs.values():
            one = sums.setdefault(module, [0, 0, 0])
            one[0] += amount
            one[2] += gradient
        most = max(most, total)
        for module, one in sums.items():
            if module not in at:
                module = None
            row = row_of(module)
            row[11:14] = [max(pair) for pair in zip(row[11:14], one)]
    rows.append(nowhere)
    return shortened(rows), most, remarks


def shortened(rows):
    """Without rows that have nothing; the largest, if there are many, in their order."""
    rows = [row for row in rows if any(row[7:]) or row[3]]
    if len(rows) > MOST_ROWS:
        least = sorted((sum(row[7:]) for row in rows), reverse=True)[MOST_ROWS - 1]
        rest = ["", "", "", "", "", REST, 0, 0, 0, 0, 0, 0, 0, 0]
        some = []
        for row in rows:
            if sum(row[7:]) >= least and len(some) < MOST_ROWS:
                some.append(row)
            else:
                rest[6] += 1
                rest[7:] = [sum(pair) for pair in zip(rest[7:], row[7:])]
        rows = some + [rest]
    return tuple(tuple(row) for row in rows)


def device_memory():
    """Of each GPU that the program uses: number, allocated, at peak, reserved, at peak, free in split blocks."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return ()
    rows = []
    for device in range(min(torch.cuda.device_count(), 64)):
        stats = torch.cuda.memory_stats_as_nested_dict(device)
        of = lambda kind, when: stats.get(kind, {}).get("all", {}).get(when, 0)
        if of("reserved_bytes", "peak"):
            rows.append((device, of("allocated_bytes", "current"), of("allocated_bytes", "peak"),
                         of("reserved_bytes", "current"), of("reserved_bytes", "peak"),
                         of("inactive_split_bytes", "current")))
    return tuple(rows)


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
