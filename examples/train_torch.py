#!/usr/bin/env python3
"""Trains a small GPT on the text of the standard library, on a GPU if there is one.

    python examples/train_torch.py [--steps 100] [--layers 4] [--width 128] [--workers 2]
"""

import argparse
import pathlib
import sysconfig
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


def standard_library_text(files):
    """The sources of the first modules of the standard library, as one string."""
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    paths = sorted(folder.glob("*.py"))[:files]
    return "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in paths)


class Characters(Dataset):
    """Windows of a text; the target is the window moved by one character."""

    def __init__(self, text, context, samples):
        self.vocabulary = sorted(set(text))
        index = {character: number for number, character in enumerate(self.vocabulary)}
        self.data = torch.tensor([index[character] for character in text])
        self.context = context
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, item):
        generator = torch.Generator().manual_seed(item)
        start = torch.randint(len(self.data) - self.context - 1, (1,), generator=generator).item()
        window = self.data[start : start + self.context + 1]
        return window[:-1], window[1:]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, layers, width, heads, dropout=0.1):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, targets):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(model, loader, device, options):
    """Trains and returns the time of each step in seconds."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    times = []
    started = time.perf_counter()
    for step, (tokens, targets) in enumerate(loader, start=1):
        loss = model(tokens.to(device), targets.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        now = time.perf_counter()
        times.append(now - started)
        started = now
        if step == 1 or step % options.report_every == 0 or step == options.steps:
            print(f"step {step:5d}  loss {loss.item():.3f}  {1e3 * times[-1]:7.1f} ms", flush=True)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2, help="processes that load data")
    parser.add_argument("--files", type=int, default=60, help="modules of the standard library to read")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--report-every", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    dataset = Characters(
        standard_library_text(options.files), options.context, options.steps * options.batch
    )
    loader = DataLoader(dataset, batch_size=options.batch, shuffle=True, num_workers=options.workers)
    model = GPT(
        len(dataset.vocabulary), options.context, options.layers, options.width, options.heads
    ).to(options.device)
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, "
        f"{len(dataset.data):,} characters, device {options.device}",
        flush=True,
    )
    times = sorted(train(model, loader, options.device, options))
    print(f"median step {1e3 * times[len(times) // 2]:.2f} ms, total {sum(times):.1f} s")


if __name__ == "__main__":
    main()
