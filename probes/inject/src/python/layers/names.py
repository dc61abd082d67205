# Memory by layer of PyTorch, for one step of training at a time: what all parts of the agent use. They are run by the
# injected library as one, in a namespace of their own, at the end of the program's first step: torch is imported by
# then. Nothing is imported here, no class is defined, and between measured steps nothing is registered and no object
# of the program is held. `at_step` is what the library calls, with the interpreter's lock held.
#
# In a measured step every module has hooks, and so have tensors that are saved for backward. Storages are
# distinguished by the address of their head, which a weak reference keeps from being used again.
#
# Where torch's compiler was used, the first measured step only looks which modules it compiled in place.

torch = modules["torch"]
nn_module = modules["torch.nn.modules.module"]
autograd = torch._C._autograd
Tensor, Storage, strided = torch.Tensor, torch.UntypedStorage, torch.strided
graph_task = torch._C._current_graph_task_id
is_compiling = torch.compiler.is_compiling
plain = torch._C.DisableTorchFunctionSubclass
top_hooks = getattr(autograd, "_top_saved_tensors_default_hooks", None)
is_wrapped = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", lambda tensor: False)
thread_id = modules["_thread"].get_ident
clock = modules["time"].perf_counter_ns
weak = modules["_weakref"].ref

# Storages that are distinguished in a step; a step has some hundred thousand at most.
MOST_STORAGES = 1 << 20
# Share of the time that measuring may take, and of the time so far that two measured steps are apart.
BUDGET, SPACING = 0.003, 0.01
# What a measured step takes beside our own code, in ns: once, and per call of a module and of a saved tensor's hook
# (the slower way to call modules, from C++ to Python). So that the stated cost is about what scripts/bench/layers.py
# measures.
AROUND_STEP, AROUND_MODULE, AROUND_SAVED = 100000, 10000, 4000

state = {"now": None, "last": None, "begun": None, "ended": None, "roots": [], "optimizers": [], "shapes": {}, "missed": 0,
         "scouted": False, "compiled": []}
