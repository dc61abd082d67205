"""Metrics of the collector for trainers and trackers, with the logger that the program has.

- plain loops: `metrics = StepMetrics()`, then `wandb.log(metrics.take())`, `mlflow.log_metrics(...)`,
  `for name, value in metrics.take().items(): writer.add_scalar(name, value, step)`;
- Hugging Face: `add_to(trainer)`, before `trainer.train()`;
- Lightning: `Trainer(callbacks=[lightning_callback()])`.

Of each interval between two logged steps: `gc/share` (of its time), `gc/longest_ms`, `gc/collections`, as
`gctrace.summary`; with `gpu=True` and where PyTorch uses CUDA also `gpu/idle_gc`, the share of its time in which the
stream was idle while a collection of generation 1 or 2 ran. `setting`, as of `gctrace.apply`, is applied at the trainer's steps. Nothing is imported but the
trainer that is named.
"""

from typing import Any, Dict, Optional

from ._measure import mark, summary
from ._settings import Applied, apply, step
from ._torch import GpuIdle


class StepMetrics:
    """Collections since the last time that they were taken."""

    def __init__(self, gpu: bool = False) -> None:
        self._gpu = GpuIdle() if gpu else None
        self._since = mark()

    def take(self) -> Dict[str, float]:
        """The metrics of the interval, which ends here."""
        found, self._since = summary(self._since), mark()
        metrics = {
            "gc/share": found.share,
            "gc/longest_ms": 1e3 * found.longest_s,
            "gc/collections": float(found.pauses),
        }
        idle_s = None if self._gpu is None else self._gpu.take()
        if idle_s is not None:
            metrics["gpu/idle_gc"] = idle_s / found.interval_s if found.interval_s > 0 else 0.0
        return metrics

    def close(self) -> None:
        """Ends what measures the GPU."""
        if self._gpu is not None:
            self._gpu.close()


def add_to(trainer: Any, setting: str = "", gpu: bool = False) -> None:
    """Has a `transformers.Trainer` log the metrics with its own, wherever it reports to."""
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class GcMetrics(TrainerCallback):  # type: ignore[misc,unused-ignore]
        """The collector in each logged interval."""

        metrics: Optional[StepMetrics] = None
        applied: Optional[Applied] = None

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.metrics = StepMetrics(gpu)
            self.applied = apply(setting) if setting else None

        def on_step_end(self, *_: Any, **__: Any) -> None:
            step()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            # Of evaluations and the end there is no interval of steps.
            if self.metrics is None or logs is None or "loss" not in logs:
                return
            found = self.metrics.take()
            logs.update(found)
            # The trainer's own history is a copy from before.
            if state.log_history:
                state.log_history[-1].update(found)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            if self.metrics is not None:
                self.metrics.close()
            if self.applied is not None:
                self.applied.undo()

    # Before those that report.
    trainer.callback_handler.callbacks.insert(0, GcMetrics())


def lightning_callback(setting: str = "", gpu: bool = False) -> Any:
    """A callback that logs the metrics to all loggers of a Lightning `Trainer`, every `log_every_n_steps`."""
    try:
        from lightning.pytorch import Callback  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        from pytorch_lightning import Callback  # type: ignore[import-not-found,import-untyped,unused-ignore]

    class GcMetrics(Callback):  # type: ignore[misc,unused-ignore]
        """The collector in each logged interval."""

        metrics: Optional[StepMetrics] = None
        applied: Optional[Applied] = None

        def on_train_start(self, *_: Any) -> None:
            self.metrics = StepMetrics(gpu)
            self.applied = apply(setting) if setting else None

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            step()
            if self.metrics is not None and trainer.global_step % trainer.log_every_n_steps == 0:
                found = self.metrics.take()
                for logger in trainer.loggers:
                    logger.log_metrics(found, step=trainer.global_step)

        def on_train_end(self, *_: Any) -> None:
            if self.metrics is not None:
                self.metrics.close()
            if self.applied is not None:
                self.applied.undo()

    return GcMetrics()
