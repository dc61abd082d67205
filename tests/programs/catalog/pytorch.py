"""PyTorch: loaders with workers, several ranks, the compiler's pool of processes."""

from program import Program


def torch(kind, **options):
    return Program(
        f"torch_{kind}",
        ["{python}", "{scripts}/pytorch.py", kind],
        python="torch",
        modules=["torch"],
        stderr=False,
        environment={"OMP_NUM_THREADS": "1"},
        **options,
    )


PROGRAMS = [
    torch("loader_fork", processes=3),
    torch("loader_spawn", processes=3),
    torch("loader_persistent", processes=3),
    torch("compile", processes=2),
    Program(
        "torchrun",
        ["{python}", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "{scripts}/pytorch.py", "ranks"],
        python="torch",
        modules=["torch"],
        processes=3,
        stderr=False,
        environment={"OMP_NUM_THREADS": "1"},
    ),
]
