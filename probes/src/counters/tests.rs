use super::*;
use nix::errno::Errno;
use std::io;

#[test]
fn lists_of_cpus_are_read() {
    assert_eq!(cpu_list("0"), Some(vec![0]));
    assert_eq!(cpu_list("0-2,5,8-9"), Some(vec![0, 1, 2, 5, 8, 9]));
    assert_eq!(cpu_list(""), None);
    assert_eq!(cpu_list("0-"), None);
    assert_eq!(cpu_list("0-4294967295"), None);
}

#[test]
fn a_missing_pmu_differs_from_a_missing_event() {
    let says = |errno: Errno, has_unit| {
        CounterError::new(&io::Error::from_raw_os_error(errno as i32), 3, has_unit)
    };
    assert_eq!(says(Errno::ENOENT, false), CounterError::NoUnit);
    assert_eq!(says(Errno::ENOENT, true), CounterError::NotInUnit { cpu: 3 });
    assert_eq!(says(Errno::EACCES, false), CounterError::Denied);
    assert!(matches!(says(Errno::EMFILE, true), CounterError::Other { cpu: 3, .. }));
}

#[test]
fn counters_of_threads_have_no_event() {
    let per_cpu = Counter::ALL.iter().filter(|counter| is_per_cpu(**counter));
    let names: Vec<&str> = per_cpu.map(AsRef::as_ref).collect();
    assert_eq!(
        names,
        [
            "cycles",
            "instructions",
            "cache-misses",
            "LLC-load-misses",
            "dTLB-load-misses",
            "branch-misses",
            "cpu-clock"
        ]
    );
    assert_eq!(open(Counter::PageFaults, 0).err(), Some(CounterError::PerThread));
}

/// The kernel's own clock exists wherever perf events are permitted.
#[test]
fn the_clock_counts_on_every_cpu_or_is_denied() {
    let cpus = online_cpus().unwrap();
    assert!(!cpus.is_empty());
    match check(Counter::CpuClock, &cpus) {
        Ok(()) => {}
        Err(CounterError::Denied) => {
            eprintln!(
                "skipped the_clock_counts_on_every_cpu_or_is_denied: counting on CPUs needs CAP_PERFMON"
            );
        }
        Err(other) => panic!("{other}"),
    }
}

/// If `/sys` shows a PMU, the hardware counts cycles.
#[test]
fn cycles_are_counted_where_there_is_a_unit() {
    let cpus = online_cpus().unwrap();
    match (has_unit(), check(Counter::Cycles, &cpus)) {
        (true, Ok(())) => {}
        (false, Err(CounterError::NoUnit)) => {
            eprintln!("skipped cycles_are_counted_where_there_is_a_unit: no PMU here");
        }
        (_, Err(CounterError::Denied)) => {
            eprintln!(
                "skipped cycles_are_counted_where_there_is_a_unit: counting on CPUs needs CAP_PERFMON"
            );
        }
        (has_unit, result) => panic!("unit {has_unit}: {result:?}"),
    }
}
