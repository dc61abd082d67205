//! Allocation pressure as counters for timelines.
//!
//! Owns the state that a timeline needs between intervals. Our reader reads the record instead.

use super::{EventHead, SEPARATOR};
use crate::Pressure;
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::io;

/// State of the timeline counters of each process.
#[derive(Debug, Default)]
pub(super) struct CounterTracks(HashMap<u32, CounterTrack>);

#[derive(Debug, Default)]
struct CounterTrack {
    /// End of the last interval.
    until_ns: u64,
    /// The rate shown is not 0.
    allocates: bool,
    /// Arenas mapped minus arenas unmapped since recording of the process started. Negative if it unmapped arenas that
    /// it had before.
    arenas: i64,
}

/// The values of a counter by the names of its series.
struct Series<'a, T>(&'a [(&'a str, T)]);

impl<T: Serialize> Serialize for Series<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Process and timestamp of a counter's sample.
#[derive(Clone, Copy)]
struct SamplePoint {
    pid: u32,
    ns: u64,
}

impl CounterTracks {
    /// Appends the counters of one interval.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, pressure: &Pressure) -> io::Result<()> {
        // A reading alone is no interval.
        if pressure.since_ns == pressure.at_ns && pressure.collections == 0 {
            return Ok(());
        }
        self.push_rate(out, pressure)?;
        let at = SamplePoint { pid: pressure.pid, ns: pressure.at_ns };
        if let Some([young, middle, old]) = pressure.counts {
            let series = [("gen0", young), ("gen1", middle), ("gen2", old)];
            push_sample(out, at, "gc count", &series)?;
        }
        self.push_arenas(out, at, pressure)
    }

    /// A rate applies to its interval, so its sample is at the start. Viewers show it until the
    /// next sample, so an interval that is not followed at once is ended by a 0.
    fn push_rate(&mut self, out: &mut Vec<u8>, pressure: &Pressure) -> io::Result<()> {
        let timeline = self.0.entry(pressure.pid).or_default();
        let followed = pressure.since_ns <= timeline.until_ns;
        let before = SamplePoint { pid: pressure.pid, ns: timeline.until_ns };
        let ends = timeline.allocates && !followed;
        let length_ns = gctrace_units::duration_ns(pressure.since_ns, pressure.at_ns);
        let rate = per_second(pressure.net_containers, length_ns);
        timeline.until_ns = pressure.at_ns;
        timeline.allocates = rate > 0;
        if ends {
            push_rate_sample(out, before, 0)?;
        }
        let start = SamplePoint { pid: pressure.pid, ns: pressure.since_ns };
        push_rate_sample(out, start, rate)
    }

    fn push_arenas(
        &mut self,
        out: &mut Vec<u8>,
        at: SamplePoint,
        pressure: &Pressure,
    ) -> io::Result<()> {
        let (Some(mapped), Some(unmapped)) = (pressure.arenas_mapped, pressure.arenas_unmapped)
        else {
            return Ok(());
        };
        let timeline = self.0.entry(at.pid).or_default();
        timeline.arenas =
            timeline.arenas.saturating_add_unsigned(mapped).saturating_sub_unsigned(unmapped);
        let series = [("mapped less unmapped", timeline.arenas)];
        push_sample(out, at, "arenas", &series)
    }

    /// Ends the counters of a process that exited; its id may be reused.
    pub(super) fn end(&mut self, out: &mut Vec<u8>, pid: u32) -> io::Result<()> {
        match self.0.remove(&pid) {
            Some(timeline) if timeline.allocates => {
                let ns = timeline.until_ns;
                push_rate_sample(out, SamplePoint { pid, ns }, 0)
            }
            _ => Ok(()),
        }
    }
}

/// A rate per second; 0 for an empty interval.
fn per_second(count: u64, ns: u64) -> u64 {
    let scaled = u128::from(count) * 1_000_000_000;
    let rate = scaled.checked_div(u128::from(ns)).unwrap_or(0);
    gctrace_units::u64_or_most(rate)
}

fn push_rate_sample(out: &mut Vec<u8>, at: SamplePoint, rate: u64) -> io::Result<()> {
    push_sample(out, at, "allocation", &[("net containers per second", rate)])
}

/// Appends a sample of a counter's series. Perfetto shows each series as a track named after
/// counter and series, `chrome://tracing` stacks them.
fn push_sample<T: Serialize>(
    out: &mut Vec<u8>,
    at: SamplePoint,
    name: &str,
    series: &[(&str, T)],
) -> io::Result<()> {
    out.extend_from_slice(SEPARATOR);
    EventHead::counter(name, at.pid, at.ns).push(out, &Series(series))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(from_s: u64, containers: u64, mapped: u64, unmapped: u64) -> Pressure {
        Pressure {
            pid: 7,
            since_ns: from_s * 1_000_000_000,
            at_ns: (from_s + 2) * 1_000_000_000,
            net_containers: containers,
            counts: Some([1, 2, 3]),
            arenas_mapped: Some(mapped),
            arenas_unmapped: Some(unmapped),
            ..Pressure::default()
        }
    }

    /// Name, microseconds and args of the samples that `write` appends.
    fn samples(
        write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> Vec<(String, f64, serde_json::Value)> {
        let mut out = b"[{}".to_vec();
        write(&mut out).unwrap();
        out.push(b']');
        let events: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
        events
            .into_iter()
            .filter(|event| event["ph"] == "C")
            .map(|mut event| {
                let name = event["name"].as_str().unwrap().to_owned();
                (name, event["ts"].as_f64().unwrap(), event["args"].take())
            })
            .collect()
    }

    fn pushed(
        timelines: &mut CounterTracks,
        pressure: &Pressure,
    ) -> Vec<(String, f64, serde_json::Value)> {
        samples(|out| timelines.push(out, pressure))
    }

    #[test]
    fn rates_start_and_end_with_their_interval() {
        let rate = |us: f64, rate: u64| {
            let args = serde_json::json!({"net containers per second": rate});
            ("allocation".to_owned(), us, args)
        };
        let mut timelines = CounterTracks::default();
        let first = pushed(&mut timelines, &interval(10, 1000, 5, 0));
        assert_eq!(first[0], rate(10e6, 500));
        let next = pushed(&mut timelines, &interval(12, 3000, 0, 0));
        assert_eq!(next[0], rate(12e6, 1500));
        let later = pushed(&mut timelines, &interval(20, 2, 0, 0));
        assert_eq!(later[..2], [rate(14e6, 0), rate(20e6, 1)]);
        let end = samples(|out| timelines.end(out, 7));
        assert_eq!(end, [rate(22e6, 0)]);
        assert_eq!(samples(|out| timelines.end(out, 7)), []);
    }

    #[test]
    fn arenas_are_a_balance() {
        let mut timelines = CounterTracks::default();
        let mut balance = |mapped, unmapped| {
            let all = pushed(&mut timelines, &interval(10, 0, mapped, unmapped));
            all.last().unwrap().2["mapped less unmapped"].as_i64()
        };
        assert_eq!(balance(5, 1), Some(4));
        assert_eq!(balance(0, 6), Some(-2));
    }

    #[test]
    fn absurd_values_do_not_overflow() {
        let mut timelines = CounterTracks::default();
        let mut absurd = interval(0, u64::MAX, u64::MAX, 0);
        (absurd.since_ns, absurd.at_ns) = (5, 5);
        assert!(pushed(&mut timelines, &absurd).is_empty());
        absurd.collections = 1;
        assert!(!pushed(&mut timelines, &absurd).is_empty());
        absurd.at_ns = 6;
        assert!(!pushed(&mut timelines, &absurd).is_empty());
    }
}
