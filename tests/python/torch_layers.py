"""Models whose memory by layer is known: python torch_layers.py NAME STEPS [truth].

Trains the model for some steps and prints a JSON object: the losses and what a traced program must not change. With
`truth` the memory, too, counted here without gctrace and in a step of its own: weights and gradients by
`parameters()`, tensors saved for the backward pass by hooks of this script, by the layer that was called last, and
optimizer state by `optimizer.state`.
"""

import gc
import hashlib
import json
import os
import sys

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


MODELS = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": lambda: (Transformer(False), (torch.randint(0, 1000, (8, 64)),)),
    "checkpointed": lambda: (Transformer(True), (torch.randint(0, 1000, (8, 64)),)),
    "neumf": lambda: (NeuMF(), (torch.randint(0, 2000, (256,)), torch.randint(0, 1500, (256,)))),
    "lstm": lambda: (Recurrent(), (torch.randn(16, 20, 32),)),
    "lora": lora,
    "compiled": compiled,
    "autocast": mlp,
    "half": mlp,
    "ddp": mlp,
}


def storage(tensor):
    return tensor.untyped_storage()


class Program:
    def __init__(self, name):
        self.name = name
        torch.manual_seed(7)
        self.rank = int(os.environ.get("RANK", "0"))
        if name == "ddp":
            torch.distributed.init_process_group("gloo")
        self.model, self.inputs = MODELS[name]()
        if name == "ddp":
            self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, foreach=True)

    def loss(self):
        kind = torch.float16 if self.name == "half" else torch.bfloat16
        with torch.autocast("cpu", kind, enabled=self.name in ("autocast", "half")):
            return self.model(*self.inputs).float().pow(2).mean()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def truth(self):
        """Of one step, by layer where a layer is what is called; storages once, weights and buffers left out."""
        self.optimizer.zero_grad(set_to_none=True)
        kept, seen, inner = {}, {}, []
        own = {storage(one)._cdata for one in [*self.model.parameters(), *self.model.buffers()]}
        names = {module: name for name, module in self.model.named_modules()}

        def pack(tensor):
            data = storage(tensor)
            if data._cdata not in own and data._cdata not in seen:
                # Alive until the end, so that no other storage has this address.
                kept[data._cdata], seen[data._cdata] = data, (inner[-1] if inner else None, data.nbytes())
            return tensor.detach()

        def leave():
            inner.pop()

        handles = []
        if self.name not in ("compiled", "checkpointed"):
            for module in names:
                handles.append(module.register_forward_pre_hook(lambda module, _: inner.append(names[module])))
                handles.append(module.register_forward_hook(lambda *_: leave()))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = self.loss()
        [handle.remove() for handle in handles]
        by_layer = {}
        for name, size in seen.values():
            by_layer[str(name)] = by_layer.get(str(name), 0) + size
        kept.clear()
        loss.backward()
        parameters = list({id(one): one for one in self.model.parameters()}.values())
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        return {
            "weights": sum(one.nbytes for one in parameters),
            "gradients": sum(one.grad.nbytes for one in parameters if one.grad is not None),
            "saved": sum(size for _, size in seen.values()),
            "saved_by_layer": by_layer if handles else None,
            "optimizer": sum(one.nbytes for one in state if isinstance(one, torch.Tensor)),
            "weights_by_layer": {
                name: sum(one.nbytes for one in module.parameters(recurse=False))
                for module, name in names.items()
            },
        }


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
    if name == "compiled":
        result["compiled"] = dict(sys.modules["torch._dynamo.utils"].counters["stats"])
    print(json.dumps(result), flush=True)
    if name == "ddp":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
