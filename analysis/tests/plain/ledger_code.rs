//! The code that idle time comes from, in traces as the PyTorch profiler writes them: planted places.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{IdleCause, IdleLedger, IdlePlace};
use gctrace_event::read::{EventReader, TraceInput, TraceReader};
use test_kit::reports;

const STEPS: u64 = 30;
const LAUNCHES: u64 = 20;
/// Times of the program, in µs.
const THINK: u64 = 30;
const KERNEL: u64 = 6;
/// The kernel that is waited for.
const LOSS: u64 = 300;
const LOADS: u64 = 900;
const AFTER_ITEM: u64 = 200;

/// The profiler's trace of a training loop that loads each batch in Python and waits for its loss.
#[derive(Default)]
struct Profiled {
    events: Vec<String>,
    stacks: bool,
    now: u64,
    gpu: u64,
    correlation: u64,
}

impl Profiled {
    fn event(&mut self, category: &str, name: &str, (start, end): (u64, u64), args: &str) {
        let (pid, tid) = if category == "kernel" { (0, 7) } else { (9, 9) };
        let dur = end - start;
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{pid},"tid":{tid},"ts":{start},"dur":{dur},"args":{{{args}}}}}"#
        ));
    }

    /// A Python function around something: the profiler writes it before what it calls.
    fn function(&mut self, name: &str, inside: impl FnOnce(&mut Self)) {
        self.around("python_function", name, inside);
    }

    fn around(&mut self, category: &str, name: &str, inside: impl FnOnce(&mut Self)) {
        let (start, at) = (self.now, self.events.len());
        inside(self);
        if self.stacks || category == "cpu_op" {
            self.event(category, name, (start, self.now), "");
            let event = self.events.pop().unwrap();
            self.events.insert(at, event);
        }
    }

    fn launch(&mut self, length: u64) {
        self.around("cpu_op", "aten::mm", |run| {
            run.now += THINK;
            run.correlation += 1;
            let (start, ready) = (run.now, run.gpu.max(run.now + 5));
            run.now += 3;
            run.gpu = ready + length;
            let id = format!("\"correlation\":{}", run.correlation);
            run.event("cuda_runtime", "cudaLaunchKernel", (start, start + 3), &id);
            let args = format!("{id},\"device\":0,\"stream\":7");
            run.event("kernel", "gemm", (ready, ready + length), &args);
        });
    }

    fn item(&mut self) {
        self.function("<built-in method item of Tensor object at 0x7f00>", |run| {
            run.around("cpu_op", "aten::item", |run| {
                run.around("cpu_op", "aten::_local_scalar_dense", |run| {
                    let start = run.now;
                    run.now = (start + 3).max(run.gpu + 8);
                    run.event("cuda_runtime", "cudaStreamSynchronize", (start, run.now), "");
                });
            });
        });
    }

    fn step(&mut self) {
        self.function("train.py(10): step", |run| {
            run.function("data.py(40): load", |run| {
                run.function("torch/utils/data/dataset.py(20): __getitem__", |run| {
                    run.now += LOADS
                });
            });
            run.function("torch/nn/modules/module.py(1553): _call_impl", |run| {
                run.function("model.py(5): forward", |run| {
                    (0..LAUNCHES).for_each(|_| run.launch(KERNEL));
                    run.launch(LOSS);
                });
            });
            run.function("metrics.py(88): log", |run| {
                run.item();
                run.now += AFTER_ITEM;
            });
        });
    }
}

fn ledger(stacks: bool) -> IdleLedger {
    let mut run = Profiled { stacks, now: 1_000, ..Profiled::default() };
    (0..STEPS).for_each(|_| run.step());
    let text = format!("{{\"traceEvents\":[{}]}}", run.events.join(",\n"));
    let mut analysis = Analysis::default();
    let input = TraceInput::new("made.json", std::io::Cursor::new(text)).unwrap();
    let read = TraceReader::new(EventReader::new(input));
    reports::read(&mut analysis, "made.json", read).unwrap();
    analysis.settle();
    let [ledger] = analysis.report().gpu.unwrap().idle.try_into().unwrap();
    ledger
}

fn places(ledger: &IdleLedger, cause: IdleCause) -> &[IdlePlace] {
    &ledger.rows.iter().find(|row| row.cause == cause).unwrap().places
}

fn near(one_ns: u64, other_us: u64) -> bool {
    one_ns.abs_diff(other_us * 1_000) <= other_us * 50
}

/// The program's own function is named and not the library's within it, with what was planted in it.
#[test]
fn host_time_is_of_the_function_that_spends_it() {
    let ledger = ledger(true);
    let host = places(&ledger, IdleCause::Host);
    let of = |file: &str| {
        let place =
            host.iter().find(|place| place.code.python.as_ref().is_some_and(|at| at.file == file));
        place.unwrap()
    };
    let load = &host[0];
    let python = load.code.python.as_ref().unwrap();
    let at = (python.file.as_str(), python.function.as_str(), python.line);
    assert_eq!(at, ("data.py", "load", Some(40)));
    // Before the first operation nothing is idle.
    assert!(near(load.saves_ns.unwrap_or(0), LOADS * (STEPS - 1)), "{load:?}");
    assert!(near(of("metrics.py").saves_ns.unwrap_or(0), AFTER_ITEM * (STEPS - 1)), "{host:?}");
    assert!(
        near(of("model.py").saves_ns.unwrap_or(0), STEPS * LAUNCHES * (THINK + 3 - KERNEL)),
        "{host:?}"
    );
}

/// Of a call the outermost operator is named, with the function where there are stacks.
#[test]
fn a_wait_has_its_operator_and_function() {
    for stacks in [true, false] {
        let ledger = ledger(stacks);
        let [place] = places(&ledger, IdleCause::Synchronization) else {
            unreachable!("{:?}", ledger.rows)
        };
        assert!(near(place.saves_ns.unwrap_or(0), (LOSS + 3) * (STEPS - 1)), "{place:?}");
        assert_eq!(place.code.function.as_deref(), Some("cudaStreamSynchronize"));
        assert_eq!(place.code.operator.as_deref(), Some("aten::item"));
        let file = place.code.python.as_ref().map(|python| python.file.as_str());
        assert_eq!(file, stacks.then_some("metrics.py"));
    }
}

/// Without stacks operators are what is known of the time between calls.
#[test]
fn without_stacks_operators_are_named() {
    let ledger = ledger(false);
    let rows = ledger.rows.iter().flat_map(|row| &row.places);
    let operators: Vec<&str> = rows.filter_map(|place| place.code.operator.as_deref()).collect();
    assert!(operators.contains(&"aten::mm"), "{:?}", ledger.rows);
    assert!(
        ledger.rows.iter().flat_map(|row| &row.places).all(|place| place.code.python.is_none())
    );
}
