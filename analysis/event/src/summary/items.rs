//! Items of a trace as they are stored.
//!
//! Keeps them small: names of frequent records are stored once, their times and correlation ids as differences from the
//! previous record of the same kind.

use crate::read::{DecodedItem, TraceProperty};
use crate::record::StoredRecord;
use crate::{Annotation, CudaCall, GpuOp, HostCode, Record, TraceHeader};
use bitcode::{Decode, Encode};
use indexmap::IndexSet;

/// Place of a name among the names stored so far.
type NameNumber = u32;

/// An item as it is stored.
#[expect(clippy::large_enum_variant, reason = "nearly all items are records")]
#[derive(Encode, Decode)]
pub(super) enum StoredItem {
    Header(Box<TraceHeader>),
    ProcessName {
        pid: u32,
        name: String,
    },
    Property(TraceProperty),
    Work {
        pid: Option<u32>,
        start_ns: u64,
        end_ns: u64,
    },
    Call(CudaCall<NameNumber>),
    /// Its name is empty here.
    Op(NameNumber, GpuOp),
    /// Its name is empty here.
    Annotation(NameNumber, Annotation),
    /// Its name is empty here.
    HostCode(NameNumber, HostCode),
    /// As it is, but for times.
    Record(StoredRecord),
}

/// Stores items in order, or restores them in the same order.
#[derive(Default)]
pub(super) struct ItemCodec {
    names: IndexSet<String>,
    calls: Previous,
    ops: Previous,
    annotations: Previous,
    codes: Previous,
    pauses: Previous,
    syncs: Previous,
}

impl ItemCodec {
    /// The item as it is stored; `None` for items that are not stored. New names are added to `names`.
    pub(super) fn store(
        &mut self,
        item: DecodedItem<'_>,
        names: &mut Vec<String>,
    ) -> Option<StoredItem> {
        let record = match item {
            DecodedItem::Record(record) => record,
            DecodedItem::Header(header) => return Some(StoredItem::Header(header)),
            DecodedItem::ProcessName { pid, name } => {
                return Some(StoredItem::ProcessName { pid, name });
            }
            DecodedItem::Property(property) => return Some(StoredItem::Property(property)),
            DecodedItem::Work { pid, start_ns, end_ns } => {
                return Some(StoredItem::Work { pid, start_ns, end_ns });
            }
            DecodedItem::Other(_) | DecodedItem::Unusable => return None,
        };
        match record {
            Record::CudaCall(call) => {
                let mut call = call.renamed(|name| self.number(name.into_owned(), names));
                let times = (&mut call.start_ns, &mut call.end_ns);
                self.calls.subtract(times, call.correlation.as_mut());
                Some(StoredItem::Call(call))
            }
            Record::GpuOp(mut op) => {
                let name = self.number(std::mem::take(&mut op.name), names);
                let times = (&mut op.start_ns, &mut op.end_ns);
                self.ops.subtract(times, op.correlation.as_mut());
                Some(StoredItem::Op(name, op))
            }
            Record::Annotation(mut span) => {
                let name = self.number(std::mem::take(&mut span.name), names);
                let times = (&mut span.start_ns, &mut span.end_ns);
                self.annotations.subtract(times, None);
                Some(StoredItem::Annotation(name, span))
            }
            Record::HostCode(mut code) => {
                let name = self.number(std::mem::take(&mut code.name), names);
                let times = (&mut code.start_ns, &mut code.end_ns);
                self.codes.subtract(times, None);
                Some(StoredItem::HostCode(name, code))
            }
            Record::Pause(mut pause) => {
                let times = (&mut pause.start_ns, &mut pause.end_ns);
                self.pauses.subtract(times, None);
                Some(StoredItem::Record(StoredRecord::Pause(pause)))
            }
            Record::GpuSync(mut sync) => {
                let times = (&mut sync.start_ns, &mut sync.end_ns);
                self.syncs.subtract(times, sync.correlation.as_mut());
                Some(StoredItem::Record(StoredRecord::GpuSync(sync)))
            }
            record => StoredRecord::of(record).map(StoredItem::Record),
        }
    }

    /// The item that was stored; `None` if it has a name that was not.
    pub(super) fn restore(&mut self, item: StoredItem) -> Option<DecodedItem<'static>> {
        let record = match item {
            StoredItem::Call(mut call) => {
                let times = (&mut call.start_ns, &mut call.end_ns);
                self.calls.add(times, call.correlation.as_mut());
                let name = self.name(call.function)?;
                Record::CudaCall(call.renamed(|_| name.into()))
            }
            StoredItem::Op(name, mut op) => {
                let times = (&mut op.start_ns, &mut op.end_ns);
                self.ops.add(times, op.correlation.as_mut());
                op.name = self.name(name)?;
                Record::GpuOp(op)
            }
            StoredItem::Annotation(name, mut span) => {
                let times = (&mut span.start_ns, &mut span.end_ns);
                self.annotations.add(times, None);
                span.name = self.name(name)?;
                Record::Annotation(span)
            }
            StoredItem::HostCode(name, mut code) => {
                let times = (&mut code.start_ns, &mut code.end_ns);
                self.codes.add(times, None);
                code.name = self.name(name)?;
                Record::HostCode(code)
            }
            StoredItem::Record(StoredRecord::Pause(mut pause)) => {
                let times = (&mut pause.start_ns, &mut pause.end_ns);
                self.pauses.add(times, None);
                Record::Pause(pause)
            }
            StoredItem::Record(StoredRecord::GpuSync(mut sync)) => {
                let times = (&mut sync.start_ns, &mut sync.end_ns);
                self.syncs.add(times, sync.correlation.as_mut());
                Record::GpuSync(sync)
            }
            StoredItem::Record(record) => record.restored(),
            StoredItem::Header(header) => return Some(DecodedItem::Header(header)),
            StoredItem::ProcessName { pid, name } => {
                return Some(DecodedItem::ProcessName { pid, name });
            }
            StoredItem::Property(property) => return Some(DecodedItem::Property(property)),
            StoredItem::Work { pid, start_ns, end_ns } => {
                return Some(DecodedItem::Work { pid, start_ns, end_ns });
            }
        };
        Some(DecodedItem::Record(record))
    }

    /// Adds the names that the next items have for the first time.
    pub(super) fn learn(&mut self, names: Vec<String>) {
        self.names.extend(names);
    }

    fn number(&mut self, name: String, new: &mut Vec<String>) -> NameNumber {
        let (number, is_new) = match self.names.get_index_of(&name) {
            Some(number) => (number, false),
            None => (self.names.insert_full(name.clone()).0, true),
        };
        if is_new {
            new.push(name);
        }
        // A trace with more names would be larger than any file.
        NameNumber::try_from(number).unwrap_or(NameNumber::MAX)
    }

    fn name(&self, number: NameNumber) -> Option<String> {
        self.names.get_index(number as usize).cloned()
    }
}

/// Times and correlation id of the record before.
#[derive(Default)]
struct Previous {
    start_ns: u64,
    correlation: u64,
}

impl Previous {
    fn subtract(&mut self, (start_ns, end_ns): (&mut u64, &mut u64), id: Option<&mut u64>) {
        *end_ns = difference(*start_ns, *end_ns);
        let start = std::mem::replace(&mut self.start_ns, *start_ns);
        *start_ns = difference(start, *start_ns);
        if let Some(id) = id {
            let before = std::mem::replace(&mut self.correlation, *id);
            *id = difference(before, *id);
        }
    }

    fn add(&mut self, (start_ns, end_ns): (&mut u64, &mut u64), id: Option<&mut u64>) {
        *start_ns = sum(self.start_ns, *start_ns);
        self.start_ns = *start_ns;
        *end_ns = sum(*start_ns, *end_ns);
        if let Some(id) = id {
            *id = sum(self.correlation, *id);
            self.correlation = *id;
        }
    }
}

/// `to` minus `from`, modulo 2^64, as a number that is small if they are close: the sign is in the
/// lowest bit.
fn difference(from: u64, to: u64) -> u64 {
    let by = to.wrapping_sub(from).cast_signed();
    ((by << 1) ^ (by >> 63)).cast_unsigned()
}

/// The inverse of [`difference`].
fn sum(from: u64, difference: u64) -> u64 {
    let by = (difference >> 1) ^ (difference & 1).wrapping_neg();
    from.wrapping_add(by)
}
