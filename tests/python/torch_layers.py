"""Models whose memory by layer is known: python torch_layers.py NAME STEPS [truth].

Trains the model for some steps and prints a JSON object: the losses and what a traced program must not change. With
`truth` the memory, too, counted here without gctrace and in a step of its own: weights and gradients by
`parameters()`, tensors saved for the backward pass by hooks of this script, by the layer that was called last, and
optimizer state by `optimizer.state`; of what is distributed over ranks the part of this rank.
"""

import contextlib
import gc
import hashlib
import json
import os
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """The output layer has the embedding's weights."""

    def __init__(self, recomputes, words=1000, width=128):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight
        self.recomputes = recomputes

    def forward(self, words):
        x = self.embedding(words)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recomputes else block(x)
        return self.head(x)


class NeuMF(nn.Module):
    """Neural matrix factorization (He et al., WWW 2017)."""

    def __init__(self, users=2000, items=1500, width=32):
        super().__init__()
        self.gmf_user = nn.Embedding(users, width)
        self.gmf_item = nn.Embedding(items, width)
        self.mlp_user = nn.Embedding(users, width)
        self.mlp_item = nn.Embedding(items, width)
        self.mlp = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.out = nn.Linear(width + 32, 1)

    def forward(self, user, item):
        gmf = self.gmf_user(user) * self.gmf_item(item)
        mlp = self.mlp(torch.cat([self.mlp_user(user), self.mlp_item(item)], 1))
        return self.out(torch.cat([gmf, mlp], 1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 64, 2, batch_first=True)
        self.out = nn.Linear(64, 5)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def mlp():
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers), (torch.randn(32, 64),)


def cnn():
    layers = [
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    ]
    return nn.Sequential(*layers), (torch.randn(16, 3, 32, 32),)


def lora():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    model[0].requires_grad_(False)
    return model, (torch.randn(32, 64),)


def compiled():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    return torch.compile(model, backend="aot_eager", fullgraph=True), (torch.randn(32, 64),)


def compiled_in_place():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    model.compile(backend="aot_eager", fullgraph=True)
    return model, (torch.randn(32, 64),)


class Several(nn.Module):
    """Of a training all at once: see `Program`. Only its parts are called."""

    def __init__(self):
        super().__init__()
        self.words, self.dense = nn.Embedding(500, 16, sparse=True), nn.Linear(16, 16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frozen = nn.Sequential(nn.Linear(16, 16))
            self.packed = torch.ao.quantization.quantize_dynamic(frozen, {nn.Linear})


def several():
    return Several(), (torch.randint(0, 500, (64,)),)


MODELS = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": lambda: (Transformer(False), (torch.randint(0, 1000, (8, 64)),)),
    "checkpointed": lambda: (Transformer(True), (torch.randint(0, 1000, (8, 64)),)),
    "neumf": lambda: (NeuMF(), (torch.randint(0, 2000, (256,)), torch.randint(0, 1500, (256,)))),
    "lstm": lambda: (Recurrent(), (torch.randn(16, 20, 32),)),
    "lora": lora,
    "compiled": compiled,
    "compiled_in_place": compiled_in_place,
    "transformed": mlp,
    "autocast": mlp,
    "half": mlp,
    "offloaded": mlp,
    "several": several,
    "ddp": mlp,
    "zero": mlp,
    "fsdp1": mlp,
    "fsdp2": mlp,
}
COMPILED = ("compiled", "compiled_in_place")
DISTRIBUTED = ("ddp", "zero", "fsdp1", "fsdp2")


def distributed(name, model):
    from torch.distributed import fsdp

    if name == "fsdp1":
        policy = fsdp.wrap.ModuleWrapPolicy({nn.Linear})
        return fsdp.FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
    if name == "fsdp2":
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for module in [*(one for one in model if isinstance(one, nn.Linear)), model]:
            fsdp.fully_shard(module, mesh=mesh)
        return model
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def size(tensor):
    tensor = local(tensor)
    if not tensor.is_sparse:
        return tensor.nbytes
    return tensor._indices().nbytes + tensor._values().nbytes


def storage(tensor):
    return tensor.untyped_storage()


class Program:
    def __init__(self, name):
        self.name = name
        torch.manual_seed(7)
        self.rank = int(os.environ.get("RANK", "0"))
        self.passes = 2 if name == "several" else 1
        if name in DISTRIBUTED:
            torch.distributed.init_process_group("gloo")
        self.model, self.inputs = MODELS[name]()
        if name in DISTRIBUTED:
            self.model = distributed(name, self.model)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if name == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer

            self.optimizers = [ZeroRedundancyOptimizer(trained, torch.optim.AdamW, foreach=True)]
        elif name == "several":
            trained = self.model.dense.parameters()
            self.optimizers = [torch.optim.AdamW(trained), torch.optim.SparseAdam(self.model.words.parameters())]
        else:
            self.optimizers = [torch.optim.AdamW(trained, foreach=True)]

    def loss(self):
        kind = torch.float16 if self.name == "half" else torch.bfloat16
        if self.name == "several":
            # Two models that are trained, and one that is asked.
            model, words = self.model, self.model.words(*self.inputs)
            with torch.inference_mode():
                model.packed(torch.ones(4, 16))
            return model.dense(words).pow(2).mean()
        hooks = torch.autograd.graph.save_on_cpu() if self.name == "offloaded" else contextlib.nullcontext()
        with torch.autocast("cpu", kind, enabled=self.name in ("autocast", "half")), hooks:
            return self.model(*self.inputs).float().pow(2).mean()

    def transform(self):
        """Gradients by a transform, which forbids hooks on saved tensors; its tensors have no storage of their own."""
        weights = {name: one.detach() for name, one in self.model.named_parameters()}
        call = torch.func.functional_call
        torch.func.grad(lambda weights: call(self.model, weights, self.inputs).pow(2).mean())(weights)

    def clear(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def step(self):
        self.clear()
        for _ in range(self.passes):
            loss = self.loss()
            loss.backward()
        if self.name == "transformed":
            self.transform()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()

    def truth(self):
        """Of one step, by layer where a layer is what is called; storages once, weights and buffers left out."""
        self.clear()
        kept, seen, inner = {}, {}, []
        own = {storage(one)._cdata for one in [*self.model.parameters(), *self.model.buffers()]}
        names = {module: self.path(name) for name, module in self.model.named_modules()}

        def pack(tensor):
            data = storage(tensor)
            if data._cdata not in own and data._cdata not in seen:
                # Alive until the end, so that no other storage has this address.
                kept[data._cdata], seen[data._cdata] = data, (inner[-1] if inner else None, data.nbytes())
            return tensor.detach()

        def leave():
            inner.pop()

        handles = []
        if self.name not in (*COMPILED, "checkpointed"):
            for module in names:
                handles.append(module.register_forward_pre_hook(lambda module, _: inner.append(names[module])))
                handles.append(module.register_forward_hook(lambda *_: leave()))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = self.loss()
        [handle.remove() for handle in handles]
        loss.backward()
        for _ in range(self.passes - 1):
            self.loss().backward()
        # Weights that were gathered for a layer have given their memory back.
        seen = [one for key, one in seen.items() if kept[key].nbytes()]
        kept.clear()
        by_layer, weights = {}, {}
        for name, amount in seen:
            by_layer[str(name)] = by_layer.get(str(name), 0) + amount
        for module, name in names.items():
            weights[name] = weights.get(name, 0) + sum(map(size, module.parameters(recurse=False)))
        parameters = list({id(one): one for one in self.model.parameters()}.values())
        states = [getattr(optimizer, "optim", optimizer).state for optimizer in self.optimizers]
        states = [value for state in states for values in state.values() for value in values.values()]
        return {
            "weights": sum(map(size, parameters)),
            "gradients": sum(size(one.grad) for one in parameters if one.grad is not None),
            "saved": sum(amount for _, amount in seen),
            "saved_by_layer": by_layer if handles else None,
            "optimizer": sum(size(one) for one in states if isinstance(one, torch.Tensor)),
            "weights_by_layer": weights,
        }

    def path(self, name):
        """As in reports: those of several models begin with their class, wrappers are left out."""
        if self.name == "several":
            return {"words": "Embedding", "dense": "Linear"}.get(name, name)
        return ".".join(part for part in name.split(".") if part != "_fsdp_wrapped_module")


def main():
    name, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    program = Program(name)
    losses = [program.step() for _ in range(steps)]
    result = {"name": name, "rank": program.rank, "losses": losses}
    if "truth" in sys.argv[3:]:
        result["truth"] = program.truth()
    result["random"] = torch.randn(4).tolist() + [hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()]
    # What waits for a collection depends on when the last one was.
    gc.collect()
    result["modules"] = sorted(sys.modules)
    result["types"] = sorted({f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects()})
    result["hooks"] = [
        len(getattr(torch.nn.modules.module, hooks)) for hooks in ("_global_forward_hooks", "_global_forward_pre_hooks")
    ] + [torch._C._autograd._top_saved_tensors_default_hooks(False) is None]
    if name in COMPILED:
        result["compiled"] = dict(sys.modules["torch._dynamo.utils"].counters["stats"])
    print(json.dumps(result), flush=True)
    if name in DISTRIBUTED:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
