//! Records in their words and back; words that nobody wrote.

use gctrace_ring::ApiLayer;
use gctrace_ring::CuptiState;
use gctrace_ring::GpuWork;
use gctrace_ring::HookState;
use gctrace_ring::Moment;
use gctrace_ring::Record;
use gctrace_ring::pieces;
use proptest::prelude::*;

fn moment() -> impl Strategy<Value = Moment> {
    any::<(u64, u64)>().prop_map(|(begin_ns, end_ns)| Moment { begin_ns, end_ns })
}

fn python() -> impl Strategy<Value = Record> {
    let frame =
        any::<(u32, u32, u32, u32, u32)>().prop_map(|(id, parent, function, file, line)| {
            Record::Frame {
                id,
                parent,
                function,
                file,
                line,
            }
        });
    let interpreter =
        any::<(u64, u32, u32, bool)>().prop_map(|(at_ns, version, file, free_threaded)| {
            Record::Interpreter {
                at_ns,
                version,
                file,
                free_threaded,
            }
        });
    let settings = any::<(u64, i64, [i32; 3], bool)>().prop_map(
        |(at_ns, interpreter, thresholds, enabled)| Record::Settings {
            at_ns,
            interpreter,
            thresholds,
            enabled,
        },
    );
    let begin = any::<(u64, u32, u8, i64)>().prop_map(|(at_ns, tid, generation, interpreter)| {
        Record::PauseBegin {
            at_ns,
            tid,
            generation,
            interpreter,
        }
    });
    let pause = (moment(), any::<(u32, u8, i64, u64, u64, u32, bool)>()).prop_map(
        |(moment, (tid, generation, interpreter, collected, uncollectable, frame, at_exit))| {
            Record::Pause {
                moment,
                tid,
                generation,
                interpreter,
                collected,
                uncollectable,
                frame,
                at_exit,
            }
        },
    );
    let hook = any::<(u64, i64, u32, u64)>().prop_map(|(at_ns, interpreter, detail, count)| {
        Record::Hook {
            at_ns,
            state: HookState::Restored,
            interpreter,
            detail,
            count,
        }
    });
    prop_oneof![frame, interpreter, settings, begin, pause, hook]
}

fn gpu() -> impl Strategy<Value = Record> {
    let work = (moment(), any::<(u8, u32, u32, u32, u32, u64, u32, u32)>()).prop_map(
        |(moment, (copy_kind, device, context, stream, correlation, bytes, name, graph))| {
            Record::Gpu {
                moment,
                work: GpuWork::PeerCopy,
                copy_kind,
                device,
                context,
                stream,
                correlation,
                bytes,
                name,
                graph,
            }
        },
    );
    let sync = (moment(), any::<(u8, u32, u32, u32, u32)>()).prop_map(
        |(moment, (kind, correlation, context, stream, event))| Record::Sync {
            moment,
            kind,
            correlation,
            context,
            stream,
            event,
        },
    );
    let event = any::<(u32, u32, u32, u32)>().prop_map(|(correlation, context, stream, event)| {
        Record::Event {
            correlation,
            context,
            stream,
            event,
        }
    });
    let api = (moment(), any::<(u32, u32, u32, u32)>()).prop_map(
        |(moment, (tid, correlation, function, name))| Record::Api {
            moment,
            layer: ApiLayer::Runtime,
            tid,
            correlation,
            function,
            name,
        },
    );
    let overhead =
        (moment(), any::<u32>()).prop_map(|(moment, kind)| Record::Overhead { moment, kind });
    let cupti = any::<(u64, i64, u32)>().prop_map(|(at_ns, code, detail)| Record::Cupti {
        at_ns,
        state: CuptiState::Busy,
        code,
        detail,
    });
    let dropped = any::<(u64, u64)>().prop_map(|(at_ns, count)| Record::Dropped { at_ns, count });
    let flushed = any::<u64>().prop_map(|at_ns| Record::Flushed { at_ns });
    prop_oneof![work, sync, event, api, overhead, cupti, dropped, flushed]
}

proptest! {
    #[test]
    fn there_and_back(record in prop_oneof![python(), gpu()]) {
        prop_assert_eq!(Record::decode(record.encode()), Ok(record));
    }

    #[test]
    fn any_words_are_a_record_or_an_error(words in any::<[u64; 7]>(), kind in 0..20_u64) {
        let _ = Record::decode(words);
        let mut likely = words;
        likely[0] = words[0] & !0xff | kind;
        if let Ok(Record::Text(piece)) = Record::decode(likely) {
            prop_assert!(piece.used().len() <= 40);
        }
    }

    #[test]
    fn texts_come_whole(text in ".{0,700}") {
        let mut bytes = Vec::new();
        let mut total = 0;
        for record in pieces(3, &text) {
            let Ok(Record::Text(piece)) = Record::decode(record.encode()) else {
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
