"""Tests the computations of the GPU bundle's parts on made-up inputs; and its runner, with parts
that hang and fail."""

import datetime
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts/gpu"))
sys.dont_write_bytecode = True

import bench
import compare
from parts import breakdown, facts, inject, predicted

STEPS = {"pid": 7, "start_ns": 5_000_000_000, "end_ns": 6_000_000_000, "gpu": "GPU-a"}


def event(name, cat, ts=5_500_000.0, dur=1.0, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 8, "ts": ts, "dur": dur, "args": args}


def sample(ts, gpu=0, **figures):
    return {"ph": "M", "name": "gctrace_gpu_sample", "pid": 0, "ts": ts, "args": {"gpu": gpu, **figures}}


class Launches(unittest.TestCase):
    def test_nested_layers_count_once(self):
        events = [
            event("cuLaunchKernel", "cuda_driver", correlation=3),
            event("cudaLaunchKernel", "cuda_runtime", correlation=3),
            event("cuLaunchKernelEx", "cuda_driver", correlation=4),
            event("cudaMemcpyAsync", "cuda_runtime", correlation=5),
            event("cuLaunchKernel", "cpu_op", correlation=6),
        ]
        self.assertEqual(compare.outermost_launches(events), ["cudaLaunchKernel", "cuLaunchKernelEx"])

    def test_without_correlations_each_counts(self):
        self.assertEqual(len(compare.outermost_launches([])), 0)
        probed = [event("cuLaunchKernel", "cuda_driver", ts) for ts in (1.0, 2.0)]
        self.assertEqual(len(compare.outermost_launches(probed)), 2)

    def test_one_kernel_too_few_differs(self):
        def verdicts(ours, theirs, lost):
            return [row[-1] for row in inject.compare("x", ours, theirs, lost)["rows"]]

        kernels = [event("gemm", "kernel", float(at), correlation=at) for at in range(3)]
        self.assertNotIn("differs", verdicts(kernels, kernels, {}))
        self.assertIn("differs", verdicts(kernels[1:], kernels, {}))
        self.assertIn("differs", verdicts(kernels, kernels, {"ring": 1}))


class Windows(unittest.TestCase):
    def test_only_the_measured_steps_of_the_process(self):
        events = [event("gemm", "kernel", ts) for ts in (0.5, 1.0, 2.0, 2.5)]
        self.assertEqual([found["ts"] for found in bench.within(events, (1.0, 2.0), 7)], [1.0, 2.0])
        self.assertEqual(bench.within(events, (1.0, 2.0), 8), [])

    def test_the_union_counts_overlaps_once(self):
        events = [event("a", "kernel", 0.0, 2.0), event("b", "kernel", 1.0, 2.0), event("c", "kernel", 5.0, 1.0)]
        self.assertEqual(breakdown.union_us(events), 4.0)


class Predictions(unittest.TestCase):
    def test_within_two_standard_errors_or_the_share(self):
        self.assertEqual(predicted.row("x", 100.0, 5.0, 109.0, 1.0)[-1], "ok")
        self.assertEqual(predicted.row("x", 100.0, 1.0, 130.0, 1.0)[-1], "differs")
        self.assertEqual(predicted.row("x", None, None, 130.0, 1.0)[-1], "no prediction")

    def test_savings_add_up_over_blocks(self):
        total, error = predicted.saved([10.0, 12.0], [7.0, 8.0])
        self.assertEqual(total, 7.0)
        self.assertAlmostEqual(error, 1.0)


class Instructions(unittest.TestCase):
    def test_what_linux_emulates(self):
        self.assertEqual(facts.instruction(b"\x55\x48\x89\xe5"), "push: one trap")
        self.assertEqual(facts.instruction(b"\x41\x57\x41\x56"), "push: one trap")
        self.assertEqual(facts.instruction(b"\x48\x83\xec\x28"), "48 83 ec 28: stepped")
        self.assertEqual(facts.instruction(b"\xf3\x0f\x1e\xfa\x55\x00"), "endbr64, then push: one trap")

    def test_exported_functions_of_a_real_library(self):
        maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
        path = next((line.split()[-1] for line in maps if "/libc.so" in line), None)
        if path is None:
            self.skipTest("this Python has no shared libc")
        data, found = facts.symbols(path)
        self.assertIn("malloc", found)
        self.assertLess(found["malloc"], len(data))


class Figures(unittest.TestCase):
    def test_ours_are_those_of_the_gpu_within_the_steps(self):
        events = [
            {"name": "gctrace_gpu", "args": {"gpu": 1, "uuid": "GPU-a"}},
            {"name": "gctrace_gpu", "args": {"gpu": 0, "uuid": "GPU-b"}},
            sample(5_200_000.0, gpu=0, utilization_percent=1),
            sample(5_200_000.0, gpu=1, utilization_percent=80, memory_used_bytes=3 << 20, power_mw=300_500),
            sample(6_200_000.0, gpu=1, utilization_percent=5),
        ]
        figures = compare.our_figures(events, STEPS)
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
        figures = compare.their_figures(text, STEPS, 100 * 10**9, datetime.timezone.utc)
        self.assertEqual(figures["utilization"], [77])
        self.assertEqual(figures["memory_mib"], [1024, 1025])
        self.assertEqual(figures["power_w"], [310.25])

    def test_tolerances(self):
        def figures(utilization, memory):
            every = ("power_w", "sm_clock_mhz", "memory_clock_mhz")
            return {"utilization": utilization, "memory_mib": memory, **{name: [100.0] for name in every}}

        rows = compare.compare_figures(figures([90.0, 94.0], [1000.0]), figures([80.0], [1040.0]))
        self.assertTrue(all(row.ok for row in rows), rows)
        rows = compare.compare_figures(figures([90.0], [1000.0]), figures([60.0], [2000.0]))
        self.assertEqual([row.what for row in rows if not row.ok], ["utilization, mean %", "memory peak, MiB"])
        rows = compare.compare_figures(figures([], []), figures([], []))
        self.assertFalse(rows[0].ok, "no sample at all")
        self.assertEqual(rows[1].allowed, "not compared")


class Tables(unittest.TestCase):
    def test_markdown(self):
        text = bench.as_markdown({"title": "T", "head": ["a", "b", ""], "rows": [["x|y", 12345, "ok"], ["z", 0.5, "differs"]]})
        self.assertIn("| x\\|y | 12,345 | ok |", text)
        self.assertIn("| z | 0.5 | differs |", text)


if __name__ == "__main__":
    unittest.main()
