"""The comparison of scripts/gpu-check.sh, on made-up inputs."""

import datetime
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
sys.dont_write_bytecode = True

import gpu_check

STEPS = {"pid": 7, "begin_ns": 5_000_000_000, "end_ns": 6_000_000_000, "gpu": "GPU-a"}


def launch(name, cat, ts=5_500_000.0, pid=7, correlation=1):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 8, "ts": ts, "args": {"correlation": correlation}}


def sample(ts, gpu=0, **figures):
    return {"ph": "M", "name": "gctrace_gpu_sample", "pid": 0, "ts": ts, "args": {"gpu": gpu, **figures}}


class Launches(unittest.TestCase):
    def test_ours_are_those_of_the_process_within_the_steps(self):
        events = [
            launch("cuLaunchKernel", "cuda_driver"),
            launch("cuLaunchKernelEx", "cuda_driver"),
            launch("cuLaunchKernel", "cuda_driver", ts=4_999_999.0),
            launch("cuLaunchKernel", "cuda_driver", ts=6_000_001.0),
            launch("cuLaunchKernel", "cuda_driver", pid=9),
            launch("cuStreamSynchronize", "cuda_driver"),
            launch("cuLaunchKernel", "cpu_op"),
        ]
        self.assertEqual(gpu_check.our_launches(events, STEPS), ["cuLaunchKernel", "cuLaunchKernelEx"])

    def test_theirs_count_nested_layers_once(self):
        events = [
            launch("cuLaunchKernel", "cuda_driver", correlation=3),
            launch("cudaLaunchKernel", "cuda_runtime", correlation=3),
            launch("cuLaunchKernelEx", "cuda_driver", correlation=4),
            launch("cudaMemcpyAsync", "cuda_runtime", correlation=5),
        ]
        self.assertEqual(gpu_check.their_launches(events), ["cudaLaunchKernel", "cuLaunchKernelEx"])

    def test_one_launch_too_few_is_told(self):
        rows = gpu_check.compare_launches(["cuLaunchKernel"] * 2, ["cudaLaunchKernel"] * 3, 3)
        self.assertFalse(rows[0].ok)
        rows = gpu_check.compare_launches(["cuLaunchKernel"] * 3, ["cudaLaunchKernel"] * 3, 3)
        self.assertTrue(all(row.ok for row in rows))

    def test_nothing_recorded_is_no_success(self):
        self.assertFalse(gpu_check.compare_launches([], [], 0)[0].ok)


class Figures(unittest.TestCase):
    def test_ours_are_those_of_the_gpu_within_the_steps(self):
        events = [
            {"name": "gctrace_gpu", "args": {"gpu": 1, "uuid": "GPU-a"}},
            {"name": "gctrace_gpu", "args": {"gpu": 0, "uuid": "GPU-b"}},
            sample(5_200_000.0, gpu=0, utilization_percent=1),
            sample(5_200_000.0, gpu=1, utilization_percent=80, memory_used_bytes=3 << 20, power_mw=300_500),
            sample(6_200_000.0, gpu=1, utilization_percent=5),
        ]
        figures = gpu_check.our_figures(events, STEPS)
        self.assertEqual(dict(figures), {"utilization": [80], "memory_mib": [3], "power_w": [300.5]})

    def test_theirs_by_the_same_clock(self):
        # 1970-01-01 00:01:45.5 is 5.5 s on the trace's clock.
        text = (
            "1970/01/01 00:01:45.500, GPU-a, 77, 1024, 310.25, 1980, 2619\n"
            "1970/01/01 00:01:45.600, GPU-b, 1, 1, 1, 1, 1\n"
            "1970/01/01 00:01:47.500, GPU-a, 2, 2, 2, 2, 2\n"
            "1970/01/01 00:01:45.700, GPU-a, [N/A], 1025, [N/A], 1980, 2619\n"
            "1970/01/01 00:01"
        )
        figures = gpu_check.their_figures(text, STEPS, 100 * 10**9, datetime.timezone.utc)
        self.assertEqual(figures["utilization"], [77])
        self.assertEqual(figures["memory_mib"], [1024, 1025])
        self.assertEqual(figures["power_w"], [310.25])

    def test_tolerances(self):
        def figures(utilization, memory):
            every = ("power_w", "sm_clock_mhz", "memory_clock_mhz")
            return {"utilization": utilization, "memory_mib": memory, **{name: [100.0] for name in every}}

        rows = gpu_check.compare_figures(figures([90.0, 94.0], [1000.0]), figures([80.0], [1040.0]))
        self.assertTrue(all(row.ok for row in rows), rows)
        rows = gpu_check.compare_figures(figures([90.0], [1000.0]), figures([60.0], [2000.0]))
        self.assertEqual([row.what for row in rows if not row.ok], ["utilization, mean %", "memory peak, MiB"])
        rows = gpu_check.compare_figures(figures([], []), figures([], []))
        self.assertFalse(rows[0].ok, "no sample at all")
        self.assertEqual(rows[1].allowed, "not compared")

    def test_the_table_is_markdown(self):
        text = gpu_check.table([gpu_check.Row("launches", 12345, 12346, "equal", False)])
        self.assertIn("| launches | 12,345 | 12,346 | equal | **differs** |", text)
        self.assertEqual({line.count("|") for line in text.splitlines()}, {6})


if __name__ == "__main__":
    unittest.main()
