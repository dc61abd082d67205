//! The sections on lines, allocation pressure and counters.

use super::{Trace, plain};

impl Trace {
    fn frame(self, id: u32, parent: Option<u32>, file: &str, function: &str, line: u32) -> Self {
        let parent = parent.map_or(String::new(), |parent| format!(r#","parent":{parent}"#));
        self.line(&format!(
            r#"{{"ph":"M","name":"gctrace_frame","pid":0,"tid":0,"args":{{"id":{id}{parent},"function":"{function}","file":"{file}","line":{line}}}}}"#
        ))
    }

    /// Pauses of 10 ms from `at_ms` on.
    fn at_line(mut self, pid: u32, sf: u32, at_ms: u64, pauses: u64, generation: u8) -> Self {
        for n in 0..pauses {
            let ts = 5_000_000 + (at_ms + n * 20) * 1000;
            self = self.line(&format!(
                r#"{{"ph":"X","cat":"gc","name":"gc gen{generation}","pid":{pid},"tid":{pid},"ts":{ts}.000,"dur":10000.000,"sf":{sf},"args":{{"generation":{generation},"reason":"automatic","collected":10,"young_count":700,"oldest_objects":99990,"counters":{{"cycles":30000000,"instructions":15000000,"cache-misses":200000,"page-faults":2,"major-faults":{n},"context-switches":0,"cpu-migrations":0,"task-clock":9900000}}}}}}"#
            ));
        }
        self
    }

    /// A program whose data loader decodes JSON and whose model is a package.
    fn program(self) -> Self {
        let site = "/home/me/.venv/lib/python3.12/site-packages/torch/optim/adam.py";
        self.frame(1, None, "/home/me/job/train.py", "<module>", 90)
            .frame(2, Some(1), "/home/me/job/train.py", "main", 70)
            .frame(3, Some(2), "/home/me/job/data/loader.py", "Loader.__next__", 31)
            .frame(4, Some(3), "/usr/lib/python3.12/json/decoder.py", "JSONDecoder.raw_decode", 353)
            .frame(5, Some(3), "/usr/lib/python3.12/json/__init__.py", "loads", 346)
            .frame(6, Some(2), site, "Adam.step", 412)
            .frame(7, None, "", "[outer frames not recorded]", 0)
            .frame(8, Some(7), site, "Adam._init_group", 147)
    }
}

fn everything() -> String {
    let whole = r#""since_ns":5000000000,"counters":{"cycles":9000000000,"instructions":18000000000,"cache-misses":9000000,"page-faults":50000,"major-faults":40,"context-switches":300,"cpu-migrations":4,"task-clock":2900000000,"scaled":true}"#;
    Trace::new()
        .python(4242)
        .program()
        .at_line(4242, 4, 1500, 9, 0)
        .at_line(4242, 5, 1800, 3, 2)
        .at_line(4242, 6, 2100, 4, 1)
        .at_line(4242, 8, 2300, 1, 2)
        .at_line(4242, 2, 2350, 1, 0)
        .pause(4242, 2400.0, 7.0, 0, r#""reason":"automatic","counters":{"task-clock":7000000,"migrated":true}"#)
        .pause(4242, 2900.0, 20.0, 2, r#""reason":"shutdown""#)
        .line(r#"{"ph":"M","name":"gctrace_pressure","pid":4242,"tid":4242,"ts":8000000.000,"args":{"since_ns":5000000000,"collections":18,"net_containers":3700000,"arenas_mapped":120,"arenas_unmapped":20}}"#)
        .line(&format!(r#"{{"ph":"M","name":"gctrace_counters","pid":4242,"tid":4242,"ts":8000000.000,"args":{{{whole}}}}}"#))
        .end(3000, "")
        .json()
        .replace(r#""follow":true"#, r#""follow":true,"stack_depth":4,"counters_missing":{"LLC-load-misses":"the processor has none","dTLB-load-misses":"the processor has none"}"#)
}

#[test]
fn lines_pressure_and_counters() {
    insta::assert_snapshot!(plain(&[("trace.json", everything())]));
}

#[test]
fn lines_of_several_processes_without_counters() {
    let trace = Trace::new()
        .python(10)
        .process(11, r#","rank":1"#)
        .frame(1, None, "train.py", "main", 7)
        .frame(
            2,
            Some(1),
            "/usr/lib/python3.12/ast.py",
            "a_function_with_a_very_long_name_indeed",
            99,
        )
        .at_line(10, 1, 510, 3, 0)
        .at_line(11, 2, 510, 5, 2)
        .end(1000, "")
        .json()
        .replace(r#""counters":{"cycles""#, r#""ignored":{"cycles""#);
    insta::assert_snapshot!(plain(&[("trace.json", trace)]));
}
