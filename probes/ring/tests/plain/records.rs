//! Round trip of records through their words; invalid words.

use gctrace_ring::{
    ApiLayer, CuptiState, GpuRecord, HeldBytes, HookState, RingAliveLine, RingCacheMemory,
    RingCall, RingCalled, RingDeviceMemory, RingEmptyCache, RingGpuOp, RingLayer, RingLayerFlow,
    RingLayers, RingPause, RingPauseMemory, RingReason, RingRecord, RingSync, StepMarker,
    TimeInterval, pieces,
};
use proptest::prelude::*;

fn interval() -> impl Strategy<Value = TimeInterval> {
    any::<(u64, u64)>().prop_map(|(start_ns, end_ns)| TimeInterval { start_ns, end_ns })
}

fn reason() -> impl Strategy<Value = RingReason> {
    use RingReason::{Automatic, Exit, Explicit, Unknown};
    prop::sample::select(vec![Unknown, Automatic, Explicit, Exit])
}

prop_compose! {
    fn pause()(
        interval in interval(),
        (tid, generation, interpreter) in any::<(u32, u8, i64)>(),
        (collected, uncollectable, oldest_objects, freed_kib) in any::<(u32, u32, u32, u32)>(),
        (frame, reason, cpu_share) in (any::<u32>(), reason(), any::<u32>()),
    ) -> RingRecord {
        RingRecord::Pause(RingPause {
            interval, tid, generation, interpreter, collected, uncollectable, frame, reason,
            oldest_objects, freed_kib, cpu_share,
        })
    }
}

fn python() -> impl Strategy<Value = RingRecord> {
    let frame =
        any::<(u32, u32, u32, u32, u32)>().prop_map(|(id, parent, function, file, line)| {
            RingRecord::Frame { id, parent, function, file, line }
        });
    let interpreter =
        any::<(u64, u32, u32, bool)>().prop_map(|(at_ns, version, file, free_threaded)| {
            RingRecord::Interpreter { at_ns, version, file, free_threaded }
        });
    let settings = any::<(u64, i64, [i32; 3], bool, u32)>().prop_map(
        |(at_ns, interpreter, thresholds, enabled, frame)| RingRecord::Settings {
            at_ns,
            interpreter,
            thresholds,
            enabled,
            frame,
        },
    );
    let start = any::<(u64, u32, u8, i64)>().prop_map(|(at_ns, tid, generation, interpreter)| {
        RingRecord::PauseStart { at_ns, tid, generation, interpreter }
    });
    let hook = any::<(u64, i64, u32, u64)>().prop_map(|(at_ns, interpreter, detail, count)| {
        RingRecord::Hook { at_ns, state: HookState::Restored, interpreter, detail, count }
    });
    let step = any::<(u64, u64, u64, u32, u32)>().prop_map(|(at_ns, end_ns, cpu_ns, tid, name)| {
        RingRecord::StepMark { at_ns, end_ns, tid, cpu_ns, marker: StepMarker::DataLoader, name }
    });
    let called = any::<(bool, u32, u32, u32, u64, u64)>().prop_map(
        |(is_callback, tid, calls, frame, at_ns, time_ns)| {
            RingRecord::Called(RingCalled { is_callback, tid, calls, frame, at_ns, time_ns })
        },
    );
    let fork = any::<(u64, u32, u32)>().prop_map(|(at_ns, pid, parent)| RingRecord::Fork {
        at_ns,
        pid,
        parent,
    });
    let empty =
        (interval(), any::<[u32; 2]>(), any::<[u64; 2]>()).prop_map(|(interval, ids, bytes)| {
            let ([tid, frame], [before, after]) = (ids, bytes);
            RingRecord::EmptyCache(RingEmptyCache { tid, frame, interval, before, after })
        });
    let cache = any::<([u32; 2], [u64; 3])>().prop_map(|(ids, [at_ns, allocated, reserved])| {
        let [device, tid] = ids;
        RingRecord::CacheMemory(RingCacheMemory { device, tid, at_ns, allocated, reserved })
    });
    let alive = any::<(u16, u32, [u64; 3])>().prop_map(|(left, frame, [at_ns, objects, bytes])| {
        RingRecord::AliveLine(RingAliveLine { left, frame, at_ns, objects, bytes })
    });
    let freed = (interval(), any::<[u32; 2]>(), any::<u64>()).prop_map(|(interval, ids, freed)| {
        let [device, tid] = ids;
        RingRecord::PauseMemory(RingPauseMemory { device, tid, interval, freed })
    });
    prop_oneof![
        frame,
        interpreter,
        settings,
        start,
        pause(),
        called,
        hook,
        step,
        fork,
        empty,
        cache,
        alive,
        freed
    ]
}

fn layers() -> impl Strategy<Value = RingRecord> {
    let layer = any::<(u8, [u32; 4], u32, [u64; 4])>().prop_map(|(flags, texts, calls, bytes)| {
        let [path, type_name, shape, tied] = texts;
        let [weights, gradients, buffers, optimizer] = bytes;
        let held = HeldBytes { weights, gradients, buffers, optimizer };
        RingRecord::Layer(RingLayer { flags, path, type_name, shape, tied, calls, held })
    });
    let flow = any::<(u32, [u64; 3])>().prop_map(|(device, [outputs, saved, output_gradients])| {
        RingRecord::LayerFlow(RingLayerFlow { device, outputs, saved, output_gradients })
    });
    let device = any::<(u32, [u64; 5])>().prop_map(
        |(device, [allocated, peak_allocated, reserved, peak_reserved, split])| {
            RingRecord::LayersDevice(RingDeviceMemory {
                device,
                allocated,
                peak_allocated,
                reserved,
                peak_reserved,
                split,
            })
        },
    );
    let step = any::<([u64; 4], [u32; 3], [u16; 2])>().prop_map(
        |([at_ns, step, saved, cost_ns], [every, remarks, epoch], [rows, devices])| {
            RingRecord::Layers(RingLayers {
                at_ns,
                step,
                every,
                rows,
                devices,
                epoch,
                remarks,
                saved,
                cost_ns,
            })
        },
    );
    prop_oneof![layer, flow, device, step]
}

fn gpu() -> impl Strategy<Value = RingRecord> {
    let work = (interval(), any::<(u8, u32, u32, u32, u32, u64, u32, u32)>()).prop_map(
        |(interval, (copy_kind, device, context, stream, correlation, bytes, name, graph))| {
            RingRecord::Gpu(RingGpuOp {
                interval,
                work: GpuRecord::PeerCopy,
                copy_kind,
                device,
                context,
                stream,
                correlation,
                bytes,
                name,
                graph,
            })
        },
    );
    let sync = (interval(), any::<(u8, u32, u32, u32, u32)>()).prop_map(
        |(interval, (kind, correlation, context, stream, event))| {
            RingRecord::Sync(RingSync { interval, kind, correlation, context, stream, event })
        },
    );
    let event = any::<(u32, u32, u32, u32)>().prop_map(|(correlation, context, stream, event)| {
        RingRecord::Event { correlation, context, stream, event }
    });
    let api = (interval(), any::<(u32, u32, u32, u32)>()).prop_map(
        |(interval, (tid, correlation, function, name))| {
            RingRecord::Api(RingCall {
                interval,
                layer: ApiLayer::Runtime,
                tid,
                correlation,
                function,
                name,
            })
        },
    );
    let overhead = (interval(), any::<u32>())
        .prop_map(|(interval, kind)| RingRecord::Overhead { interval, kind });
    let cupti = any::<(u64, i64, u32)>().prop_map(|(at_ns, code, detail)| RingRecord::Cupti {
        at_ns,
        state: CuptiState::Busy,
        code,
        detail,
    });
    let dropped =
        any::<(u64, u64)>().prop_map(|(at_ns, count)| RingRecord::Dropped { at_ns, count });
    let flushed = any::<u64>().prop_map(|at_ns| RingRecord::Flushed { at_ns });
    prop_oneof![work, sync, event, api, overhead, cupti, dropped, flushed]
}

proptest! {
    #[test]
    fn there_and_back(record in prop_oneof![python(), layers(), gpu()]) {
        prop_assert_eq!(RingRecord::decode(record.encode()), Ok(record));
    }

    #[test]
    fn any_words_are_a_record_or_an_error(words in any::<[u64; 7]>(), kind in 0..32_u64) {
        let _ = RingRecord::decode(words);
        let mut likely = words;
        likely[0] = words[0] & !0xff | kind;
        if let Ok(RingRecord::Text(piece)) = RingRecord::decode(likely) {
            prop_assert!(piece.used().len() <= 40);
        }
    }

    #[test]
    fn texts_come_whole(text in ".{0,700}") {
        let mut bytes = Vec::new();
        let mut total = 0;
        for record in pieces(3, &text) {
            let Ok(RingRecord::Text(piece)) = RingRecord::decode(record.encode()) else {
                return Err(TestCaseError::fail("no text"));
            };
            prop_assert_eq!(usize::from(piece.offset), bytes.len());
            bytes.extend_from_slice(piece.used());
            total = usize::from(piece.total);
        }
        prop_assert_eq!(total, bytes.len());
        let kept = String::from_utf8(bytes).unwrap();
        prop_assert!(text.starts_with(&kept));
        prop_assert!(kept.len() == text.len() || kept.len() > 1990);
    }
}

#[test]
fn a_slot_has_the_cpu_time_of_a_pause_as_a_share() {
    let of = |wall_ns: u64, cpu_ns: Option<u64>| {
        let interval = TimeInterval { start_ns: 7, end_ns: 7 + wall_ns };
        let cpu_share = RingPause::share(interval, cpu_ns);
        RingPause { interval, cpu_share, ..RingPause::default() }.cpu_ns()
    };
    assert_eq!(of(20_000, None), None);
    assert_eq!(of(20_000, Some(0)), Some(0));
    assert_eq!(of(20_000, Some(19_876)), Some(19_876));
    // The clocks are read one after the other.
    assert_eq!(of(20_000, Some(20_300)), Some(20_000));
    let hour = 3_600_000_000_000;
    assert!(of(hour, Some(hour / 3)).unwrap().abs_diff(hour / 3) <= hour / 1_000_000_000);
    assert_eq!(of(0, Some(5)), None);
    let longest = TimeInterval { start_ns: 0, end_ns: u64::MAX };
    assert_eq!(RingPause::share(longest, Some(u64::MAX)), u32::MAX);
}
