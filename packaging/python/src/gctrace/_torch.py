"""torch.profiler."""

from typing import Any, Dict


def profiler_options() -> Dict[str, Any]:
    """Arguments of `torch.profiler.profile` with which its traces have collections, so that `gctrace analyze` needs
    no recording of its own: `record_python_gc_info` has an effect with `with_stack=True` only.

    Raises ImportError where PyTorch is not installed, or has no such option (before 2.8).

    >>> with torch.profiler.profile(**gctrace.profiler_options()) as profile:
    ...     train()
    >>> profile.export_chrome_trace("trace.json")
    """
    from torch._C._profiler import _ExperimentalConfig  # type: ignore[import-not-found,unused-ignore]

    try:
        config = _ExperimentalConfig(record_python_gc_info=True)
    except TypeError:
        import torch  # type: ignore[import-not-found,unused-ignore]

        raise ImportError(
            "PyTorch {} does not record collections: gctrace record -- COMMAND does".format(torch.__version__)
        ) from None
    return {"with_stack": True, "experimental_config": config}
