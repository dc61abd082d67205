//! The section on ranks.

use super::{Trace, plain};

/// Steps of a rank.
const STEPS: u64 = 12;

impl Trace {
    fn slice(self, pid: u32, category: &str, name: &str, at_us: u64, us: u64, args: &str) -> Self {
        let ts = 5_000_000 + at_us;
        self.line(&format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{pid},"tid":{pid},"ts":{ts}.000,"dur":{us}.000,"args":{{{args}}}}}"#
        ))
    }
}

/// One rank of a blocking loop: a kernel of 2 ms and an all-reduce of 1 ms per step. `late_rank`
/// pauses for 30 ms before the kernel of step 6.
fn rank(rank: u32, late_rank: u32) -> String {
    rank_of(rank, late_rank, &[])
}

/// The same with a communicator of one of these names in turn in each step.
fn rank_of(rank: u32, late_rank: u32, groups: &[&str]) -> String {
    let pid = 4000 + rank;
    let mut trace = Trace::new().process(
        pid,
        &format!(
            r#","rank":{rank},"interpreter":{{"file":"/usr/bin/python3","version":"3.12.1","collector":"generational"}}"#
        ),
    );
    let mut now_us = 1_000;
    for step in 0..STEPS {
        let start_us = now_us;
        // Step lengths vary, as in reality.
        let pause_us = if step == 6 { 30_000 } else { step * step * 37 };
        let is_late = rank == late_rank && step == 6;
        if is_late {
            trace = trace.pause(pid, now_us as f64 / 1e3, 30.0, 2, r#""reason":"automatic""#);
        }
        let launch_us = now_us + if is_late || step != 6 { pause_us } else { 0 };
        let id = step * 10 + 1;
        let op = |id: u64, stream: u32| {
            format!(r#""device":0,"stream":{stream},"process":{pid},"correlation":{id}"#)
        };
        let call = |id: u64| format!(r#""correlation":{id}"#);
        let group = groups.iter().cycle().nth(step as usize);
        let group = group.map_or_else(String::new, |group| {
            format!(r#","Process Group Name":"{group}","Seq":{step}"#)
        });
        let kernel_end_us = launch_us + 10 + 2_000;
        let end_us = start_us + pause_us + 3_010;
        trace = trace
            .slice(pid, "cuda_runtime", "cudaLaunchKernel", launch_us, 5, &call(id))
            .slice(pid, "kernel", "gemm", launch_us + 10, 2_000, &op(id, 7))
            .slice(pid, "cuda_runtime", "cudaLaunchKernel", launch_us + 6, 5, &call(id + 1))
            .slice(
                pid,
                "kernel",
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                kernel_end_us,
                end_us - kernel_end_us,
                &format!("{}{group}", op(id + 1, 7)),
            )
            .slice(
                pid,
                "cuda_runtime",
                "cudaStreamSynchronize",
                launch_us + 12,
                end_us + 3 - launch_us - 12,
                &format!(r#"{},"stream":7"#, call(id + 2)),
            );
        now_us = end_us + 20;
        trace = trace.slice(
            pid,
            "user_annotation",
            &format!("ProfilerStep#{step}"),
            start_us,
            now_us - start_us,
            "",
        );
    }
    trace.end(1_000, "").json()
}

fn section(traces: &[(&str, String)]) -> String {
    let text = plain(traces);
    let section = text.split("\nRanks\n").nth(1).expect("the section");
    // Lines of a section are indented; headings are not.
    let lines = section.lines();
    let indented: Vec<&str> =
        lines.take_while(|line| line.is_empty() || line.starts_with(' ')).collect();
    indented.join("\n").trim_end().to_owned()
}

#[test]
fn one_of_three_ranks_makes_the_others_wait() {
    let section = section(&[
        ("rank0.json", rank(0, 1)),
        ("rank1.json", rank(1, 1)),
        ("rank2.json", rank(2, 1)),
    ]);
    insta::assert_snapshot!(section);
}

#[test]
fn waits_by_communicator() {
    let groups = ["tp_0", "dp_0", "pp_0"];
    let section = section(&[
        ("rank0.json", rank_of(0, 1, &groups)),
        ("rank1.json", rank_of(1, 1, &groups)),
        ("rank2.json", rank_of(2, 1, &groups[..2])),
    ]);
    let table = section.split("\n\n").last();
    insta::assert_snapshot!(table.expect("a table"));
}

#[test]
fn one_rank_has_no_section() {
    let text = plain(&[("rank0.json", rank(0, 0))]);
    assert!(!text.contains("\nRanks\n"), "{text}");
}

/// With more ranks than fit, the costliest are shown, and the text refers to the JSON for the others.
#[test]
fn of_many_ranks_the_costliest_are_shown() {
    let names: Vec<String> = (0..20).map(|rank| format!("rank{rank}.json")).collect();
    let traces = names.iter().zip(0..);
    let traces: Vec<(&str, String)> =
        traces.map(|(name, number)| (name.as_str(), rank(number, 11))).collect();
    let section = section(&traces);
    assert!(section.contains("20 ranks of one job: 12 collectives"), "{section}");
    assert!(section.contains("4 more ranks (--format json lists more)."), "{section}");
    let first = section.lines().find(|line| line.contains("30.0 ms"));
    assert!(first.is_some_and(|line| line.trim_start().starts_with("11 ")), "{section}");
    assert!(!section.contains("the rank of a column"), "{section}");
}

#[test]
fn ranks_that_share_nothing_are_named() {
    let other = rank(1, 1).replace("AllReduce", "AllGather");
    let section = section(&[("rank0.json", rank(0, 0)), ("rank1.json", other)]);
    let sentence = section.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(sentence.contains("Not compared, as none"), "{section}");
    assert!(sentence.contains("rank 0 (trace 1), rank 1 (trace 2)."), "{section}");
}

/// Nothing shows whether ranks that run in lockstep wait for each other.
#[test]
fn without_names_of_communicators_lockstep_is_ambiguous() {
    let section = section(&[("rank0.json", rank(0, 99)), ("rank1.json", rank(1, 99))]);
    let sentence = section.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        sentence.contains("2 ranks of one job: 0 collectives matched (inferred). 24 collective kernels ambiguous: their communicators have no names in the traces"),
        "{section}"
    );
    assert!(sentence.contains("PyTorch 2.4 and later"), "{section}");
}
