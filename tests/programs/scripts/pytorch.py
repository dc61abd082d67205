"""Small training by PyTorch: pytorch.py loader_fork|loader_spawn|loader_persistent|compile|ranks"""

import os
import sys

import torch
import work


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        work.work(500)
        return torch.full((8,), float(index))


def load(method="fork", persistent=False):
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=8, num_workers=2, multiprocessing_context=method, persistent_workers=persistent
    )
    print("sum", sum(batch.sum().item() for _ in range(2) for batch in loader))


def train(steps=10):
    model = torch.nn.Linear(8, 1)
    torch.nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    return model, optimizer, steps


def step(model, optimizer):
    work.work(1_000)
    loss = model(torch.ones(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def ranks():
    torch.distributed.init_process_group("gloo")
    model, optimizer, steps = train()
    model = torch.nn.parallel.DistributedDataParallel(model)
    for _ in range(steps):
        step(model, optimizer)
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    if torch.distributed.get_rank() == 0:
        print("ranks", int(total.item()))
    torch.distributed.destroy_process_group()


def compiled():
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    function = torch.compile(lambda x: (x.sin() + x.cos()).sum())
    print("compiled", round(function(torch.ones(100)).item(), 3))


if __name__ == "__main__":
    kind = sys.argv[1]
    if kind == "loader_fork":
        load("fork")
    elif kind == "loader_spawn":
        load("spawn")
    elif kind == "loader_persistent":
        load("forkserver", persistent=True)
    elif kind == "compile":
        compiled()
    else:
        ranks()
