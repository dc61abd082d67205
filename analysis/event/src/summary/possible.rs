//! Checks that a summary has only items that a trace can have.
//!
//! Items that the reader of traces never returns are rejected, so that the figures of a report need not expect them: a
//! summary with the right hash may still be from anybody.

use crate::read::{DecodedItem, MAX_COUNT};
use crate::record::LONGEST_NS;
use crate::{Counters, EventSource, Pause, Record};

/// Whether the reader of a trace could have returned it, judged by its times and counts.
pub(super) fn is_possible(item: &DecodedItem<'_>) -> bool {
    match item {
        DecodedItem::Record(record) => {
            record.head().span_ns.is_none_or(|(start_ns, end_ns)| is_span(start_ns, end_ns))
                && record.check().is_ok()
                && match record {
                    Record::Pause(pause) => is_pause(pause),
                    Record::Counters(counters) => are_counts(&counters.counters),
                    _ => true,
                }
        }
        DecodedItem::Work { start_ns, end_ns, .. } => start_ns <= end_ns,
        _ => true,
    }
}

/// Starts and lengths are read.
fn is_span(start_ns: u64, end_ns: u64) -> bool {
    let length_ns = end_ns.checked_sub(start_ns);
    start_ns <= LONGEST_NS && matches!(length_ns, Some(length_ns) if length_ns <= LONGEST_NS)
}

fn is_pause(pause: &Pause) -> bool {
    let counts = [
        pause.collected,
        pause.uncollectable,
        pause.cpu_ns,
        pause.stop_the_world_ns,
        pause.oldest_objects,
        pause.heap_objects,
        pause.young_count,
        pause.freed_bytes,
    ];
    let source = match pause.source {
        EventSource::Both { start_ns, end_ns } => is_span(start_ns, end_ns),
        EventSource::Probes | EventSource::Injected => true,
    };
    source
        && matches!(pause.generation, 0..=2 | Pause::UNKNOWN_GENERATION)
        && counts.into_iter().flatten().all(|count| count < MAX_COUNT)
        && are_counts(&pause.counters)
}

fn are_counts(counters: &Counters) -> bool {
    counters.iter().all(|(_, count)| count < MAX_COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::TraceCompletion;
    use crate::summary::{SummaryReader, SummarySource, SummaryWriter};

    /// Whether a summary of a pause is read.
    fn is_read(pause: Pause) -> bool {
        let mut writer = SummaryWriter::default();
        writer.add(DecodedItem::Record(Record::Pause(pause)));
        let source = SummarySource::of("t.json", &b""[..]).unwrap();
        let file = writer.finish(TraceCompletion::default(), source, None);
        let mut reader = SummaryReader::new("t.gcsum", std::io::Cursor::new(file)).unwrap();
        match reader.next_item() {
            Ok(item) => item.is_some(),
            Err(error) => {
                assert!(error.to_string().contains("an item that no trace can have"));
                false
            }
        }
    }

    #[test]
    fn impossible_pauses_are_refused() {
        let possible = Pause {
            start_ns: 5,
            end_ns: LONGEST_NS,
            generation: 2,
            collected: Some(MAX_COUNT - 1),
            ..Pause::default()
        };
        assert!(is_read(Pause::default()) && is_read(possible.clone()));
        let impossible: [fn(&mut Pause); 4] = [
            |pause| pause.end_ns = 4,
            |pause| pause.end_ns = u64::MAX,
            |pause| pause.generation = 3,
            |pause| pause.collected = Some(MAX_COUNT),
        ];
        for change in impossible {
            let mut pause = possible.clone();
            change(&mut pause);
            assert!(!is_read(pause.clone()), "{pause:?}");
        }
    }
}
