//! Kernel tier: loads the real programs. Without privileges the tests are skipped with a message.

use super::*;
use crate::calibrate::CalibrationLock;
use gctrace_abi::ProbePointKind;

fn support(test: &str) -> Option<KernelSupport> {
    let support = KernelSupport::probe();
    if !support.permitted || !support.missing().is_empty() {
        eprintln!("skipped {test}: loading BPF programs is not possible here ({support:?})");
        return None;
    }
    Some(support)
}

fn hits_of_a_calibration(support: &KernelSupport) -> u64 {
    let _turn = CalibrationLock::wait().expect("the other test takes less than a second");
    let config = SessionConfig {
        follow_children: true,
        ring_bytes: 1 << 20,
        stack_depth: 0,
        counters: CounterSet::default(),
        samples: false,
    };
    let mut session = BpfSession::open(config, support).unwrap();
    let (calibration, probes) = session.calibrate(None).unwrap();
    detach(probes);
    for times in [calibration.collect, calibration.explicit, calibration.foreign] {
        assert!(times.unwrap().cost(None).least_ns > 0.0);
    }
    let counters = session.counters().unwrap();
    assert!(counters.lost().is_empty());
    let hits = counters.hits(ProbePointKind::Collect);
    assert_eq!(counters.foreign_hits(ProbePointKind::Collect), hits);
    hits
}

#[test]
fn probes_are_hit_and_cost_something() {
    let Some(support) = support("probes_are_hit_and_cost_something") else {
        return;
    };
    assert!(hits_of_a_calibration(&support) > 0);
}

/// As on kernels before 6.13: a link for each end.
#[test]
fn pairs_of_links_work_as_well() {
    let Some(support) = support("pairs_of_links_work_as_well") else {
        return;
    };
    let older = KernelSupport { uprobe_session: false, ..support };
    assert!(hits_of_a_calibration(&older) > 0);
}

/// As on kernels before 6.6: one perf link per probe.
#[test]
fn single_links_work_as_well() {
    let Some(support) = support("single_links_work_as_well") else {
        return;
    };
    let older = KernelSupport { uprobe_multi: false, ..support };
    assert!(hits_of_a_calibration(&older) > 0);
}

#[test]
fn a_ring_of_odd_size_is_refused() {
    let support = KernelSupport::probe();
    let config = SessionConfig {
        follow_children: true,
        ring_bytes: 5000,
        stack_depth: 0,
        counters: CounterSet::default(),
        samples: false,
    };
    assert!(matches!(BpfSession::open(config, &support), Err(Error::RingSize(5000))));
}
