//! Encodes and decodes the words of records.

use super::ApiLayer;
use super::CuptiState;
use super::GpuRecord;
use super::HookState;
use super::MalformedRecord;
use super::RingRecord;
use super::TextPiece;
use super::TimeInterval;
use super::words::first;
use super::words::high;
use super::words::low;
use super::words::pair;
use crate::layout::PAYLOAD_WORDS;

const TEXT: u8 = 1;
const FRAME: u8 = 2;
const INTERPRETER: u8 = 3;
const SETTINGS: u8 = 4;
const PAUSE_BEGIN: u8 = 5;
const PAUSE: u8 = 6;
const HOOK: u8 = 7;
const GPU: u8 = 8;
const SYNC: u8 = 9;
const EVENT: u8 = 10;
const API: u8 = 11;
const OVERHEAD: u8 = 12;
const CUPTI: u8 = 13;
const DROPPED: u8 = 14;
const FLUSHED: u8 = 15;

type Words = [u64; PAYLOAD_WORDS];

impl RingRecord {
    /// The words as stored in a slot.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> Words {
        match *self {
            Self::Text(piece) => piece.encode(TEXT),
            Self::Frame {
                id,
                parent,
                function,
                file,
                line,
            } => [
                first(FRAME, 0, id),
                pair(parent, line),
                pair(function, file),
                0,
                0,
                0,
                0,
            ],
            Self::Interpreter {
                at_ns,
                version,
                file,
                free_threaded,
            } => [
                first(INTERPRETER, u8::from(free_threaded), version),
                at_ns,
                u64::from(file),
                0,
                0,
                0,
                0,
            ],
            Self::Settings {
                at_ns,
                interpreter,
                thresholds: [young, middle, old],
                enabled,
            } => [
                first(SETTINGS, u8::from(enabled), young.cast_unsigned()),
                at_ns,
                interpreter.cast_unsigned(),
                pair(middle.cast_unsigned(), old.cast_unsigned()),
                0,
                0,
                0,
            ],
            Self::PauseStart {
                at_ns,
                tid,
                generation,
                interpreter,
            } => [
                first(PAUSE_BEGIN, generation, tid),
                at_ns,
                interpreter.cast_unsigned(),
                0,
                0,
                0,
                0,
            ],
            Self::Pause {
                interval,
                tid,
                generation,
                interpreter,
                collected,
                uncollectable,
                frame,
                at_exit,
            } => [
                first(PAUSE, generation, tid) | u64::from(at_exit) << 16,
                interval.start_ns,
                interval.end_ns,
                collected,
                uncollectable,
                interpreter.cast_unsigned(),
                u64::from(frame),
            ],
            Self::Hook {
                at_ns,
                state,
                interpreter,
                detail,
                count,
            } => [
                first(HOOK, state as u8, detail),
                at_ns,
                interpreter.cast_unsigned(),
                count,
                0,
                0,
                0,
            ],
            _ => self.encode_gpu(),
        }
    }

    fn encode_gpu(&self) -> Words {
        match *self {
            Self::Gpu {
                interval,
                work,
                copy_kind,
                device,
                context,
                stream,
                correlation,
                bytes,
                name,
                graph,
            } => [
                first(GPU, work as u8, correlation) | u64::from(copy_kind) << 16,
                interval.start_ns,
                interval.end_ns,
                bytes,
                pair(device, context),
                pair(stream, name),
                u64::from(graph),
            ],
            Self::Sync {
                interval,
                kind,
                correlation,
                context,
                stream,
                event,
            } => [
                first(SYNC, kind, correlation),
                interval.start_ns,
                interval.end_ns,
                pair(context, stream),
                u64::from(event),
                0,
                0,
            ],
            Self::Event {
                correlation,
                context,
                stream,
                event,
            } => [
                first(EVENT, 0, correlation),
                pair(context, stream),
                u64::from(event),
                0,
                0,
                0,
                0,
            ],
            Self::Api {
                interval,
                layer,
                tid,
                correlation,
                function,
                name,
            } => [
                first(API, layer as u8, correlation),
                interval.start_ns,
                interval.end_ns,
                pair(tid, function),
                u64::from(name),
                0,
                0,
            ],
            Self::Overhead { interval, kind } => [
                first(OVERHEAD, 0, kind),
                interval.start_ns,
                interval.end_ns,
                0,
                0,
                0,
                0,
            ],
            Self::Cupti {
                at_ns,
                state,
                code,
                detail,
            } => [
                first(CUPTI, state as u8, detail),
                at_ns,
                code.cast_unsigned(),
                0,
                0,
                0,
                0,
            ],
            Self::Dropped { at_ns, count } => [first(DROPPED, 0, 0), at_ns, count, 0, 0, 0, 0],
            Self::Flushed { at_ns } => [first(FLUSHED, 0, 0), at_ns, 0, 0, 0, 0, 0],
            // The other kinds are `encode`'s own.
            _ => [0; PAYLOAD_WORDS],
        }
    }

    /// Decodes the contents of a slot.
    ///
    /// # Errors
    /// [`MalformedRecord`] if no producer of this version would have written that.
    pub fn decode(words: Words) -> Result<Self, MalformedRecord> {
        let [head, a, b, c, d, e, f] = words;
        let kind = head as u8;
        let byte = (head >> 8) as u8;
        let number = high(head);
        let malformed = MalformedRecord { kind };
        let interval = TimeInterval {
            start_ns: a,
            end_ns: b,
        };
        Ok(match kind {
            TEXT => Self::Text(TextPiece::decode(words).ok_or(malformed)?),
            FRAME => Self::Frame {
                id: number,
                parent: low(a),
                line: high(a),
                function: low(b),
                file: high(b),
            },
            INTERPRETER => Self::Interpreter {
                at_ns: a,
                version: number,
                file: low(b),
                free_threaded: byte != 0,
            },
            SETTINGS => Self::Settings {
                at_ns: a,
                interpreter: b.cast_signed(),
                thresholds: [number, low(c), high(c)].map(u32::cast_signed),
                enabled: byte != 0,
            },
            PAUSE_BEGIN => Self::PauseStart {
                at_ns: a,
                tid: number,
                generation: byte,
                interpreter: b.cast_signed(),
            },
            PAUSE => Self::Pause {
                interval,
                tid: number,
                generation: byte,
                collected: c,
                uncollectable: d,
                interpreter: e.cast_signed(),
                frame: low(f),
                at_exit: (head >> 16) as u8 != 0,
            },
            HOOK => Self::Hook {
                at_ns: a,
                state: HookState::from_byte(byte).ok_or(malformed)?,
                interpreter: b.cast_signed(),
                detail: number,
                count: c,
            },
            GPU => Self::Gpu {
                interval,
                work: GpuRecord::from_byte(byte).ok_or(malformed)?,
                copy_kind: (head >> 16) as u8,
                correlation: number,
                bytes: c,
                device: low(d),
                context: high(d),
                stream: low(e),
                name: high(e),
                graph: low(f),
            },
            SYNC => Self::Sync {
                interval,
                kind: byte,
                correlation: number,
                context: low(c),
                stream: high(c),
                event: low(d),
            },
            EVENT => Self::Event {
                correlation: number,
                context: low(a),
                stream: high(a),
                event: low(b),
            },
            API => Self::Api {
                interval,
                layer: ApiLayer::from_byte(byte).ok_or(malformed)?,
                correlation: number,
                tid: low(c),
                function: high(c),
                name: low(d),
            },
            OVERHEAD => Self::Overhead {
                interval,
                kind: number,
            },
            CUPTI => Self::Cupti {
                at_ns: a,
                state: CuptiState::from_byte(byte).ok_or(malformed)?,
                code: b.cast_signed(),
                detail: number,
            },
            DROPPED => Self::Dropped { at_ns: a, count: b },
            FLUSHED => Self::Flushed { at_ns: a },
            _ => return Err(malformed),
        })
    }
}
