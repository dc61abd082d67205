"""The package's metrics in trainers and trackers, read back from what these wrote.

    package_trainers.py FOLDER       (PYTHONPATH with the package; a Python with PyTorch, transformers, lightning,
                                      tensorboard, wandb, mlflow-skinny and opentelemetry-sdk)
"""

import gc
import glob
import json
import math
import os
import subprocess
import sys
import time

FOLDER = sys.argv[1]
os.environ.update(WANDB_MODE="offline", WANDB_DIR=FOLDER, WANDB_SILENT="true", HF_HUB_OFFLINE="1")
os.environ.update(MLFLOW_TRACKING_URI="file:" + FOLDER + "/mlruns", MLFLOW_ALLOW_FILE_STORE="true")
NAMES = {"gc/share", "gc/longest_ms", "gc/collections"}
gc.disable()
import torch

MODEL = torch.nn.Linear(4, 1)


def right(found, collections):
    assert set(found) >= NAMES, found
    assert found["gc/collections"] == collections, (found, collections)
    assert found["gc/longest_ms"] > 0 and 0 < found["gc/share"] <= 1, found


def loops():
    from torch.utils.tensorboard import SummaryWriter

    from gctrace.trainers import StepMetrics

    import mlflow
    import wandb

    run = wandb.init(project="gc", dir=FOLDER)
    writer = SummaryWriter(FOLDER + "/board")
    metrics = StepMetrics()
    with mlflow.start_run():
        for step in range(1, 3):
            for _ in range(step):
                gc.collect()
            found = metrics.take()
            right(found, step)
            run.log(found)
            mlflow.log_metrics(found, step=step)
            for name, value in found.items():
                writer.add_scalar(name, value, step)
    writer.close()
    run.finish()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(FOLDER + "/board")
    board.Reload()
    assert [one.value for one in board.Scalars("gc/collections")] == [1, 2]
    (history,) = glob.glob(FOLDER + "/mlruns/*/*/metrics/gc/collections")
    with open(history) as lines:
        assert [float(line.split()[1]) for line in lines] == [1, 2]
    (offline,) = glob.glob(FOLDER + "/wandb/offline-run-*/run-*.wandb")
    assert rows_of_wandb(offline) == [1, 2]


def rows_of_wandb(path):
    """`gc/collections` of each logged step in an offline run: records of protobuf in LevelDB's log format."""
    from wandb.proto import wandb_internal_pb2

    BLOCK, HEADER = 32_768, 7
    with open(path, "rb") as file:
        data = file.read()
    assert data[:4] == b":W&B", data[:HEADER]
    at, part, rows = HEADER, b"", []
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        # 1: whole, 4: the last part.
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(part)
            part = b""
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            if "gc/collections" in items:
                rows.append(float(json.loads(items["gc/collections"])))
    return rows


def hugging_face():
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from gctrace.trainers import add_to

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            gc.collect()
            return {"x": torch.ones(4), "labels": torch.ones(1)}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 1)

        def forward(self, x, labels):
            return {"loss": (self.inner(x) - labels).square().mean()}

    class Reporter(TrainerCallback):
        def __init__(self):
            self.logs = []

        def on_log(self, args, state, control, logs=None, **_):
            self.logs.append(dict(logs))

    reporter = Reporter()
    arguments = TrainingArguments(
        output_dir=FOLDER + "/hf",
        per_device_train_batch_size=1,
        num_train_epochs=1,
        logging_steps=4,
        report_to=["tensorboard"],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    os.environ["TENSORBOARD_LOGGING_DIR"] = FOLDER + "/hf-board"
    trainer = Trainer(model=Model(), args=arguments, train_dataset=Data(), callbacks=[reporter])
    own = gc.get_threshold()
    add_to(trainer, "threshold=9000")
    trainer.train()
    assert gc.get_threshold() == own
    steps = [logs for logs in reporter.logs if "loss" in logs]
    history = [logs for logs in trainer.state.log_history if "loss" in logs]
    assert len(steps) == len(history) == 2, reporter.logs
    # The loader fetches the next batch before a step ends.
    collections = [logs["gc/collections"] for logs in steps]
    assert sum(collections) == 8 and all(2 <= one <= 6 for one in collections), collections
    for logs, kept in zip(steps, history):
        right(logs, logs["gc/collections"])
        assert all(math.isclose(kept[name], logs[name]) for name in NAMES), (kept, logs)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = glob.glob(FOLDER + "/hf*/**/events.*", recursive=True)
    board = EventAccumulator(os.path.dirname(files[0]))
    board.Reload()
    (name,) = [name for name in board.Tags()["scalars"] if name.endswith("gc/collections")]
    assert [one.value for one in board.Scalars(name)] == collections


def lightning():
    import csv

    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import CSVLogger

    from gctrace.trainers import lightning_callback

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            gc.collect()
            return self.inner(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), batch_size=1)
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=CSVLogger(FOLDER, name="lightning"),
        log_every_n_steps=4,
        callbacks=[lightning_callback("threshold=9000")],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    own = gc.get_threshold()
    trainer.fit(Module(), data)
    assert gc.get_threshold() == own
    (path,) = glob.glob(FOLDER + "/lightning/*/metrics.csv")
    with open(path) as file:
        rows = [row for row in csv.DictReader(file) if row.get("gc/collections")]
    assert [float(row["gc/collections"]) for row in rows] == [4, 4], rows


def open_telemetry():
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from gctrace.otel import instrument

    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    end = instrument(longest_ms=0)
    with trace.get_tracer("mine").start_as_current_span("request") as request:
        began_ns = time.time_ns()
        gc.collect()
        ended_ns = time.time_ns()
    gc.collect()
    end()
    gc.collect()
    pauses = [span for span in exporter.get_finished_spans() if span.name == "gc.pause"]
    assert len(pauses) == 2, pauses
    inside, outside = pauses
    assert inside.parent.span_id == request.get_span_context().span_id, inside
    assert inside.context.trace_id == request.get_span_context().trace_id
    # Both clocks: the begin of a span is that of the system, and may be set meanwhile.
    assert began_ns <= inside.start_time <= inside.end_time and inside.start_time <= ended_ns
    assert outside.parent is None and outside.attributes["gc.generation"] == 2, outside
    (resource,) = reader.get_metrics_data().resource_metrics
    (metric,) = [one for scope in resource.scope_metrics for one in scope.metrics]
    (point,) = metric.data.data_points
    assert metric.name == "cpython.gc.pause" and point.count == 2 and point.attributes == {"generation": 2}, metric
    end = instrument(longest_ms=60_000)
    gc.collect()
    end()
    assert len(exporter.get_finished_spans()) == 3
    ends_at_once()


def ends_at_once():
    """A program that ends before its pauses were passed on."""
    program = """
import gc
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

gc.disable()
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
from gctrace.otel import instrument

instrument(longest_ms=0)
gc.collect()
gc.collect()
"""
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=120, check=True)
    assert ended.stdout.count(b'"name": "gc.pause"') == 2, ended.stdout


loops()
hugging_face()
lightning()
open_telemetry()
print("ok")
