//! What threads did: samples, times off the CPU, PyTorch's cache emptied.

use super::frames::FrameNumbers;
use super::{ChromeEvent, Problem, args, id, process_id, time};
use crate::read::number::LONGEST_NS;
use crate::{CpuSamples, EmptyCache, OffCpu};

pub(super) fn samples(
    event: &ChromeEvent<'_>,
    names: &mut FrameNumbers,
    report: &mut impl FnMut(Problem),
) -> Result<CpuSamples, Problem> {
    let samples = CpuSamples {
        pid: process_id(event, "the \"pid\" of samples is not a process id")?,
        tid: id(event.tid).ok_or("the \"tid\" of samples is not a thread id")?,
        at_ns: time(event.ts)?,
        stack: (!event.stack.is_missing()).then(|| names.id(event.stack, report)).flatten(),
        ..args(event, "samples of a thread are damaged")?
    };
    if samples.count == 0 || samples.until_ns < samples.at_ns {
        return Err("samples of a thread end before they start, or are none");
    }
    Ok(samples)
}

pub(super) fn empty_cache(
    event: &ChromeEvent<'_>,
    names: &mut FrameNumbers,
    report: &mut impl FnMut(Problem),
) -> Result<EmptyCache, Problem> {
    let call = EmptyCache {
        pid: process_id(event, "the \"pid\" of an empty_cache() is not a process id")?,
        tid: id(event.tid).ok_or("the \"tid\" of an empty_cache() is not a thread id")?,
        start_ns: time(event.ts)?,
        stack: (!event.stack.is_missing()).then(|| names.id(event.stack, report)).flatten(),
        ..args(event, "a call of empty_cache() is damaged")?
    };
    if (call.start_ns..=LONGEST_NS).contains(&call.end_ns) {
        Ok(call)
    } else {
        Err("an empty_cache() ends before it starts")
    }
}

pub(super) fn off_cpu(
    event: &ChromeEvent<'_>,
    names: &mut FrameNumbers,
    report: &mut impl FnMut(Problem),
) -> Result<OffCpu, Problem> {
    let off = OffCpu {
        pid: process_id(event, "the \"pid\" of a time off the CPU is not a process id")?,
        tid: id(event.tid).ok_or("the \"tid\" of a time off the CPU is not a thread id")?,
        at_ns: time(event.ts)?,
        stack: (!event.stack.is_missing()).then(|| names.id(event.stack, report)).flatten(),
        ..args(event, "times of a thread off the CPU are damaged")?
    };
    let lengths = off.times.iter().map(|(after_ns, length_ns)| after_ns.checked_add(*length_ns));
    let ends: Option<Vec<u64>> = lengths.collect();
    let starts = off.times.iter().skip(1).map(|(after_ns, _)| *after_ns);
    let in_order = |ends: &Vec<u64>| {
        ends.last().is_none_or(|end_ns| *end_ns <= LONGEST_NS)
            && ends.iter().zip(starts).all(|(end_ns, next_ns)| *end_ns <= next_ns)
    };
    if ends.as_ref().is_some_and(in_order) {
        Ok(off)
    } else {
        Err("times of a thread off the CPU overlap")
    }
}
