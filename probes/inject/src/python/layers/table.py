# What the layers of a measured step hold, as rows.

# In paths, of modules that torch puts around others.
WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")


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
            parts = [part for part in name.split(".") if part not in WRAPPERS]
            names.append((".".join(part for part in [prefix, *parts] if part), module, root))
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


def is_freed(key):
    """Whether a storage gave its memory back, as one with weights that FSDP gathered for a layer."""
    data = Storage._new_with_weak_ptr(key)
    return data is not None and data.nbytes() == 0


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
    # What a ZeroRedundancyOptimizer steps is none of its own.
    wrapped = {id(getattr(one, "optim", None)) for one in now["optimizers"]}
    optimizers = len({id(one) for one in now["optimizers"]} - wrapped)
    if not remarks & AT_END:
        remarks |= NO_OPTIMIZER if optimizers == 0 else SEVERAL_OPTIMIZERS if optimizers > 1 else 0
    most = 0
    for saved, outputs in now["passes"]:
        sums = {}
        total = 0
        for key, (module, amount, _) in saved.items():
            if key not in held and not (remarks & SHARDED and is_freed(key)):
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
