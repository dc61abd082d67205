"""torch.profiler, and the GPU's idle time while collections ran."""

import gc
import sys
from typing import Any, Dict, List, Optional, Tuple


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


class GpuIdle:
    """For how long the GPU was idle while collections ran, by its own clock.

    At the start and at the end of a collection of generation 1 or 2, a CUDA event goes into the stream that the
    thread launches to. The GPU reaches the first when it has done all that was launched before, the second not before
    the end of the collection: the time between is what the stream waited. Nothing waits for the GPU.
    """

    def __init__(self) -> None:
        self.began: Optional[Any] = None
        self.pairs: List[Tuple[Any, Any]] = []
        self.is_known = False
        gc.callbacks.append(self)

    def __call__(self, phase: str, info: Dict[str, Any]) -> None:
        # Generation 0 takes microseconds, hundreds of times a second.
        if info["generation"] == 0:
            return
        if phase == "start":
            self.began = self._event()
        elif self.began is not None:
            began, self.began = self.began, None
            ended = self._event()
            if ended is not None:
                self.pairs.append((began, ended))

    def _event(self) -> Optional[Any]:
        # Not before the program uses the GPU, and in no graph that it captures.
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        if cuda is None or not cuda.is_initialized() or cuda.is_current_stream_capturing():
            return None
        self.is_known = True
        event = cuda.Event(enable_timing=True)
        event.record()
        return event

    def take(self) -> Optional[float]:
        """Idle seconds since the last time, of collections that the GPU has passed by now; `None` unless the program
        uses CUDA through PyTorch."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if not self.is_known and (cuda is None or not cuda.is_initialized()):
            return None
        passed = 0
        idle_ms = 0.0
        for began, ended in self.pairs:
            if not ended.query():
                break
            idle_ms += began.elapsed_time(ended)
            passed += 1
        del self.pairs[:passed]
        return idle_ms / 1e3

    def close(self) -> None:
        if self in gc.callbacks:
            gc.callbacks.remove(self)
