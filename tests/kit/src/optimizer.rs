//! A stand-in for PyTorch's optimizers, for tests of what happens at training steps.

/// Python code that puts torch's modules in place, which the injected library finds as it would find
/// torch's own. Each call of `step()` is a step of its optimizer; imports `gc`, `os`, `sys` and
/// `time`.
pub const OPTIMIZER: &str = r"
import gc, os, sys, time, types
hooks = []
torch = types.ModuleType('torch.optim.optimizer')
def register(hook): hooks.append(hook)
torch.register_optimizer_step_post_hook = register
compiler = types.ModuleType('torch.compiler')
compiler.is_compiling = lambda: False
for module in (torch, compiler): sys.modules[module.__name__] = module
gc.collect()
class SGD: pass
optimizer = SGD()
def step():
    for hook in hooks: hook(optimizer, (), {})
";
