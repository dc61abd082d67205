"""A training on the CPU whose PyTorch says that it uses a GPU, for `--memory-history`: python torch_history.py FILE.

Without a GPU PyTorch has no history to keep; that it is asked to is printed. The snapshot is PyTorch's own, of no
memory. With `none` as second argument nothing is made up; with `full` memory runs out in the end. Half-way FILE is moved
away, if it is there: the next measured step writes it again.
"""
import os
import sys

import torch

file, how = sys.argv[1], "".join(sys.argv[2:])
if how != "none":
    observers = []
    torch.cuda.is_available = torch.cuda.is_initialized = lambda: True
    torch._C._cuda_isHistoryEnabled = lambda: False
    torch._C._cuda_attach_out_of_memory_observer = observers.append
    torch.cuda.memory._record_memory_history = lambda **how: print("history", how)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(2):
    for _ in range(10):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    if os.path.exists(file):
        os.rename(file, "%s.%d" % (file, epoch))
if how == "full":
    for observer in observers:
        observer(0, 1 << 20, 1 << 30, 1 << 10)
    print("observers", len(observers))
print("done")
