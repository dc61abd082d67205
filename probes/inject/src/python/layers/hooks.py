# A measured step: the hooks of modules and of saved tensors, put in place at its start and taken off at its end.

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
    if now is not None and now["scouts"]:
        find_compiled()
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


def hint():
    """What torch ends that error with, of a tensor of ours: its words differ by version and mode."""
    top = None if top_hooks is None else top_hooks(False)
    modes = getattr(torch._C, "_len_torch_dispatch_stack", int)()
    if modes or top is not None and top[0] is not pack:
        return ""
    if top is not None:
        autograd._pop_saved_tensors_default_hooks()
    try:
        with plain(), torch.enable_grad():
            changed = torch.zeros(1, device="cpu", requires_grad=True).exp()
        with plain(), torch.no_grad():
            changed.add_(1)
        changed.grad_fn._saved_result
    except RuntimeError as error:
        return str(error).partition(" instead.")[2]
    finally:
        if top is not None:
            autograd._push_saved_tensors_default_hooks(pack, unpack)
    return ""


def unpack(kept):
    now, (tensor, version) = state["now"], kept
    if now is not None:
        now["unpacked"] = True
        now["saved"] += 1
    if tensor._version != version:
        # As torch says it (saved_variable.cpp), but which output it is, which hooks are not told.
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "[%s %s] is at version %d; expected version %d instead.%s"
            % (tensor.type(), list(tensor.shape), tensor._version, version, hint())
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
        find_compiled()
        take_off(now)


def find_compiled():
    """Notes modules that run now as compiled by `Module.compile()`. Their code looks for hooks of all modules: with ours
    in place it would be compiled again, in each measured step, until torch gives up and compiles no more of it."""
    try:
        code, frame = nn_module.Module._wrapped_call_impl.__code__, modules["sys"]._getframe()
        while frame is not None:
            if frame.f_code is code:
                module = frame.f_locals["self"]
                if module._compiled_call_impl is not None and not any(one() is module for one in state["compiled"]):
                    state["compiled"].append(weak(module))
            frame = frame.f_back
    except Exception:  # in a PyTorch that has other names for them
        pass


def call_without_hooks(module, call):
    """In place of the compiled call of such a module: our hooks are around it instead."""
    def compiled(*arguments, **named):
        now = state["now"]
        if now is None or thread_id() != now["thread"] or not now["handles"]:
            return call(*arguments, **named)
        before(module, arguments)
        remove_hooks(now)
        output = None
        try:
            output = call(*arguments, **named)
        finally:
            if now is state["now"] and not now["compiles"]:
                add_hooks(now)
            after(module, arguments, output)
        return output

    return compiled


def has_compiled():
    """Whether torch's compiler has compiled anything."""
    counters = getattr(modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("stats"))


def watch_compiler(now):
    handler = compiling()
    if handler is not None and not now["watches"]:
        handler.register_start_callback(compile_begins)
        now["watches"] = True


def begin(step):
    begun = clock()
    scouts = not state["scouted"] and has_compiled()
    state["scouted"] = state["scouted"] or scouts
    now = {
        "step": step, "thread": thread_id(), "roots": {}, "stack": [], "inner": [], "calls": {}, "again": set(),
        "shapes": {}, "passes": [({}, {})], "weak": [], "optimizers": [], "unpacked": False, "hooked": False,
        "failed": False, "compiles": False, "watches": False, "remarks": 0, "cost": 0, "modules": 0, "saved": 0, "handles": [],
        "scouts": scouts, "replaced": [],
    }
    hook(now)
    watch_compiler(now)
    if not scouts:
        replace_compiled(now)
        add_hooks(now)
        if has_hooks is not None:
            nn_module._has_any_global_hook = has_other_hooks
    state["now"], state["begun"] = now, begun
    now["cost"] += clock() - begun


def replace_compiled(now):
    state["compiled"] = [one for one in state["compiled"] if one() is not None]
    for module in [one() for one in state["compiled"]]:
        call = module.__dict__.get("_compiled_call_impl")
        if call is not None:
            module.__dict__["_compiled_call_impl"] = call_without_hooks(module, call)
            now["replaced"].append((module, call, module.__dict__["_compiled_call_impl"]))


def add_hooks(now):
    now["handles"] = [
        nn_module.register_module_forward_pre_hook(before_call),
        nn_module.register_module_forward_hook(after_call, always_call=True),
    ]


def remove_hooks(now):
    handles, now["handles"] = now["handles"], []
    for handle in handles:
        handle.remove()


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
    remove_hooks(now)
    for module, call, ours in now["replaced"]:
        # The program may have compiled it again.
        if module.__dict__.get("_compiled_call_impl") is ours:
            module.__dict__["_compiled_call_impl"] = call
    now["replaced"] = []
    if getattr(nn_module, "_has_any_global_hook", None) is has_other_hooks:
        nn_module._has_any_global_hook = has_hooks


def release(now):
    for key in now["weak"]:
        Storage._free_weak_ref(key)
    now["weak"] = []
