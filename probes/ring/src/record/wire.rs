//! The bytes of records: in each slot the number of the kind, the fields without gaps, zeroes.
//!
//! A change here changes the ring's version (`MAGIC` in `layout.rs`).

use super::{
    ApiLayer, CuptiState, GpuRecord, HeldBytes, HookState, KINDS_AT_ONCE, MalformedRecord,
    RingAliveLine, RingCacheMemory, RingCall, RingCalled, RingCycleCount, RingDeviceMemory,
    RingEmptyCache, RingGarbage, RingGpuOp, RingKindCount, RingLayer, RingLayerFlow, RingLayers,
    RingPause, RingPauseMemory, RingReason, RingRecord, RingSync, StepMarker, TextId, TextPiece,
    TimeInterval,
};
use crate::layout::PAYLOAD_WORDS;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// A record as stored in a slot.
type Words = [u64; PAYLOAD_WORDS];

/// The fields of each kind in the order of their bytes. Makes a packed struct of each, from which
/// zerocopy derives the checks: a `bool` or state that no producer writes is not a record.
macro_rules! wire_records {
    ($($number:literal = $kind:ident $(($payload:ident))? { $($field:ident: $type:ty),* $(,)? })*) => {
        /// The bytes of one kind of record each.
        mod packed {
            use super::*;

            $(
                #[derive(Immutable, IntoBytes, KnownLayout, TryFromBytes)]
                #[repr(C, packed)]
                pub(super) struct $kind {
                    pub(super) number: u8,
                    $(pub(super) $field: $type,)*
                }

                const _: () = assert!(size_of::<$kind>() <= size_of::<Words>());
            )*
        }

        impl RingRecord {
            /// The words as stored in a slot.
            #[must_use]
            #[inline]
            pub fn encode(&self) -> Words {
                let mut words = [0; PAYLOAD_WORDS];
                let slot = words.as_mut_bytes();
                // None is longer than a slot, as asserted above.
                let _fits = match *self {
                    Self::Text(piece) => PackedText { number: TEXT, piece }.write_to_prefix(slot).is_ok(),
                    $(variant!($kind [$($payload)?] { $($field),* }) => {
                        packed::$kind { number: $number, $($field),* }.write_to_prefix(slot).is_ok()
                    })*
                };
                words
            }

            /// Decodes the contents of a slot.
            ///
            /// # Errors
            /// [`MalformedRecord`] if no producer of this version would have written that.
            pub fn decode(words: Words) -> Result<Self, MalformedRecord> {
                let slot = words.as_bytes();
                let malformed = MalformedRecord { kind: words[0].to_ne_bytes()[0] };
                Ok(match malformed.kind {
                    TEXT => Self::Text(text(slot).ok_or(malformed)?),
                    $($number => {
                        let (packed::$kind { number: _, $($field),* }, _) =
                            TryFromBytes::try_read_from_prefix(slot).map_err(|_| malformed)?;
                        variant!($kind [$($payload)?] { $($field),* })
                    })*
                    _ => return Err(malformed),
                })
            }
        }
    };
}

/// A variant with its fields, its own or its struct's: a pattern or an expression.
macro_rules! variant {
    ($kind:ident [] $fields:tt) => { RingRecord::$kind $fields };
    ($kind:ident [$payload:ident] $fields:tt) => { RingRecord::$kind($payload $fields) };
}

const TEXT: u8 = 1;

/// The bytes of [`RingRecord::Text`].
#[derive(Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(C, packed)]
struct PackedText {
    number: u8,
    piece: TextPiece,
}

fn text(slot: &[u8]) -> Option<TextPiece> {
    let (PackedText { piece, .. }, _) = TryFromBytes::try_read_from_prefix(slot).ok()?;
    piece.is_valid().then_some(piece)
}

wire_records! {
    2 = Frame { id: u32, parent: u32, function: TextId, file: TextId, line: u32 }
    3 = Interpreter { free_threaded: bool, version: TextId, at_ns: u64, file: TextId }
    4 = Settings { enabled: bool, frame: u32, thresholds: [i32; 3], at_ns: u64, interpreter: i64 }
    5 = PauseStart { generation: u8, tid: u32, at_ns: u64, interpreter: i64 }
    6 = Pause(RingPause) {
        generation: u8,
        reason: RingReason,
        tid: u32,
        interval: TimeInterval,
        collected: u32,
        uncollectable: u32,
        freed_kib: u32,
        interpreter: i64,
        frame: u32,
        oldest_objects: u32,
        cpu_share: u32,
    }
    7 = Hook { state: HookState, detail: TextId, at_ns: u64, interpreter: i64, count: u64 }
    8 = Gpu(RingGpuOp) {
        work: GpuRecord,
        copy_kind: u8,
        correlation: u32,
        interval: TimeInterval,
        bytes: u64,
        device: u32,
        context: u32,
        stream: u32,
        name: TextId,
        graph: u32,
    }
    9 = Sync(RingSync) {
        kind: u8,
        correlation: u32,
        interval: TimeInterval,
        context: u32,
        stream: u32,
        event: u32,
    }
    10 = Event { correlation: u32, context: u32, stream: u32, event: u32 }
    11 = Api(RingCall) {
        layer: ApiLayer,
        correlation: u32,
        interval: TimeInterval,
        tid: u32,
        function: u32,
        name: TextId,
    }
    12 = Overhead { kind: u32, interval: TimeInterval }
    13 = Cupti { state: CuptiState, detail: TextId, at_ns: u64, code: i64 }
    14 = Dropped { at_ns: u64, count: u64 }
    15 = Flushed { at_ns: u64 }
    16 = StepMark { marker: StepMarker, tid: u32, at_ns: u64, end_ns: u64, cpu_ns: u64, name: TextId }
    17 = ObjectKind { id: u32, type_name: TextId, function: TextId, file: TextId, line: u32 }
    18 = Garbage(RingGarbage) {
        at_ns: u64,
        tid: u32,
        interpreter: i64,
        objects: u64,
        cost_ns: u64,
        kinds: u32,
        cycles: u32,
    }
    19 = GarbageKinds { tid: u32, counts: [RingKindCount; KINDS_AT_ONCE] }
    20 = CycleEdge { cycle: u32, at: u16, length: u16, kind: u32, name: TextId }
    21 = GarbageCycles(RingCycleCount) {
        tid: u32,
        cycle: u32,
        count: u32,
        objects: u64,
        held_objects: u64,
        bytes: u64,
    }
    22 = GarbageBirth { tid: u32, kind: u32, samples: u32 }
    23 = Fork { pid: u32, parent: u32, at_ns: u64 }
    24 = Called(RingCalled) {
        is_callback: bool,
        tid: u32,
        calls: u32,
        frame: u32,
        at_ns: u64,
        time_ns: u64,
    }
    25 = Layer(RingLayer) {
        flags: u8,
        path: TextId,
        type_name: TextId,
        shape: TextId,
        tied: TextId,
        calls: u32,
        held: HeldBytes,
    }
    26 = LayerFlow(RingLayerFlow) {
        device: TextId,
        outputs: u64,
        saved: u64,
        output_gradients: u64,
    }
    27 = LayersDevice(RingDeviceMemory) {
        device: u32,
        allocated: u64,
        peak_allocated: u64,
        reserved: u64,
        peak_reserved: u64,
        split: u64,
    }
    28 = Layers(RingLayers) {
        every: u32,
        rows: u16,
        devices: u16,
        at_ns: u64,
        step: u64,
        epoch: u32,
        remarks: u32,
        saved: u64,
        cost_ns: u64,
    }
    29 = EmptyCache(RingEmptyCache) {
        tid: u32,
        frame: u32,
        interval: TimeInterval,
        before: u64,
        after: u64,
    }
    30 = CacheMemory(RingCacheMemory) {
        device: u32,
        tid: u32,
        at_ns: u64,
        allocated: u64,
        reserved: u64,
    }
    31 = AliveLine(RingAliveLine) { left: u16, frame: u32, at_ns: u64, objects: u64, bytes: u64 }
    32 = PauseMemory(RingPauseMemory) { device: u32, tid: u32, interval: TimeInterval, freed: u64 }
}
