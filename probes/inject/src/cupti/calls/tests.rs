use super::*;
use gctrace_ring::{NO_TEXT, TimeInterval};
use proptest::prelude::*;

fn call(layer: ApiLayer, tid: u32, correlation: u32, start_ns: u64, end_ns: u64) -> RingCall {
    RingCall {
        interval: TimeInterval { start_ns, end_ns },
        layer,
        function: 0,
        tid,
        correlation,
        name: NO_TEXT,
    }
}

fn runtime(correlation: u32, start_ns: u64, end_ns: u64) -> RingCall {
    call(ApiLayer::Runtime, 1, correlation, start_ns, end_ns)
}

fn driver(correlation: u32, start_ns: u64, end_ns: u64) -> RingCall {
    call(ApiLayer::Driver, 1, correlation, start_ns, end_ns)
}

#[test]
fn the_inner_call_goes_in_either_order() {
    let (outer, inner) = (runtime(1, 10, 20), driver(1, 12, 18));
    for calls in [vec![outer, inner], vec![inner, outer]] {
        assert_eq!(OutermostFilter::default().turn(calls, false), [outer]);
    }
}

#[test]
fn the_inner_call_goes_when_the_outer_one_comes_after_the_flush_or_before() {
    let (outer, inner) = (runtime(1, 10, 20), driver(1, 12, 18));
    for (first, second, kept) in
        [(inner, outer, [vec![], vec![outer]]), (outer, inner, [vec![outer], vec![]])]
    {
        let mut outermost = OutermostFilter::default();
        assert_eq!(outermost.turn(vec![first], false), kept[0]);
        assert_eq!(outermost.turn(vec![], false), []);
        assert_eq!(outermost.turn(vec![second], false), kept[1]);
        assert_eq!(outermost.turn(vec![], true), []);
    }
}

#[test]
fn the_inner_call_goes_when_the_outer_ones_buffer_is_late() {
    let mut outermost = OutermostFilter::default();
    let (outer, inner, later) = (runtime(1, 10, 20), driver(1, 12, 18), runtime(2, 30, 40));
    assert_eq!(outermost.turn(vec![inner, later], false), [later]);
    assert_eq!(outermost.turn(vec![outer], false), [outer]);
    assert_eq!(outermost.turn(vec![], true), []);
}

#[test]
fn calls_of_the_driver_alone_are_kept_a_flush_later_and_the_last_one_once_time_passes() {
    let mut outermost = OutermostFilter::default();
    let (first, second) = (driver(1, 10, 20), driver(2, 30, 40));
    assert_eq!(outermost.turn(vec![first, second], false), []);
    assert_eq!(outermost.turn(vec![], false), [first]);
    for _ in 2..TURNS {
        assert_eq!(outermost.turn(vec![], false), []);
    }
    assert_eq!(outermost.turn(vec![], false), [second]);
    assert!(outermost.0.is_empty());
}

#[test]
fn the_end_keeps_calls_held_back() {
    let mut outermost = OutermostFilter::default();
    let alone = driver(1, 10, 20);
    assert_eq!(outermost.turn(vec![alone], false), []);
    assert_eq!(outermost.turn(vec![], true), [alone]);
}

#[test]
fn several_calls_within_one_and_one_after_the_other_under_one_id() {
    let mut outermost = OutermostFilter::default();
    let outer = [runtime(1, 10, 20), runtime(1, 30, 40)];
    let inner = [driver(1, 10, 14), driver(1, 15, 20), driver(1, 31, 39)];
    let calls = inner.into_iter().chain(outer).collect();
    assert_eq!(outermost.turn(calls, false), outer);
}

#[test]
fn another_thread_with_the_same_id_is_not_within() {
    let mut outermost = OutermostFilter::default();
    let (outer, other) = (runtime(1, 10, 20), call(ApiLayer::Driver, 2, 1, 12, 18));
    assert_eq!(outermost.turn(vec![outer, other], true).len(), 2);
}

proptest! {
    /// Calls of several threads, some nested, split into flushes at any point and shuffled a
    /// little.
    #[test]
    fn each_outermost_call_is_kept_once(
        shape in prop::collection::vec((0..3_u32, 0..3_u64, any::<bool>()), 1..60),
        cuts in prop::collection::vec(0..200_usize, 0..6),
        swaps in prop::collection::vec(0..200_usize, 0..20),
    ) {
        let (mut calls, mut expected) = (Vec::new(), Vec::new());
        for (number, (tid, inner, is_runtime)) in (1_u32..).zip(shape) {
            let start_ns = u64::from(number) * 100;
            for at in 0..inner {
                calls.push(call(ApiLayer::Driver, tid, number, start_ns + 10 * at, start_ns + 10 * at + 5));
            }
            let alone: Vec<_> = calls.iter().rev().take(inner as usize).copied().collect();
            if is_runtime {
                let outer = call(ApiLayer::Runtime, tid, number, start_ns, start_ns + 50);
                calls.push(outer);
                expected.push(outer);
            } else {
                expected.extend(alone);
            }
        }
        for at in swaps {
            let at = at % calls.len().max(1);
            if at + 1 < calls.len() && calls[at].correlation == calls[at + 1].correlation {
                calls.swap(at, at + 1);
            }
        }
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut % (calls.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        // Fewer flushes than a call is held back for.
        cuts.truncate(TURNS as usize - 1);
        let (mut outermost, mut kept, mut from) = (OutermostFilter::default(), Vec::new(), 0);
        for cut in cuts {
            kept.extend(outermost.turn(calls[from..cut].to_vec(), false));
            from = cut;
        }
        kept.extend(outermost.turn(calls[from..].to_vec(), true));
        let key = |call: &RingCall| (call.correlation, call.tid, call.interval.start_ns, call.layer as u8);
        kept.sort_by_key(key);
        expected.sort_by_key(key);
        prop_assert_eq!(kept, expected);
    }
}
