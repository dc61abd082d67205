# Sizes of tensors, and whose storages they are.

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
    # Those of a transform's inside (torch.func) have none of their own.
    if tensor.layout is not strided or tensor.device.type == "meta" or is_wrapped(tensor):
        return None
    return tensor.untyped_storage()


def place(tensor):
    """Which memory a weight is: tied ones are at the same place."""
    tensor = local(tensor)
    if tensor.layout is not strided or tensor.device.type == "meta" or is_wrapped(tensor):
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
