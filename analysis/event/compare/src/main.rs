//! Reads a trace with one of several JSON readers and prints its CPU time, peak memory and sums (ADR 4).
//!
//! `compare-readers READER TRACE`, READER: ours, serde-stream, serde-slice, struson, sonic, simd. Each visits every
//! event and takes its phase, name, times and the text of its `args` (struson and simd-json: not the text).

use gctrace_event::read::{EventReader, TraceEntry, TraceInput};
use memmap2::Mmap;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use simd_json::prelude::*;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use struson::reader::{JsonReader, JsonStreamReader};

type Outcome = Result<(), Box<dyn Error>>;

const BUFFER_BYTES: usize = 256 * 1024;

/// Sums of what was read, to compare readers; times wrap around.
#[derive(Default, Debug)]
struct Sums {
    events: u64,
    phase_bytes: usize,
    name_bytes: usize,
    ts_ns: u64,
    dur_ns: u64,
    args_bytes: usize,
}

impl Sums {
    fn add(&mut self, phase: &str, name: &str, ts_ns: u64, dur_ns: u64, args_bytes: usize) {
        self.events += 1;
        self.phase_bytes += phase.len();
        self.name_bytes += name.len();
        self.ts_ns = self.ts_ns.wrapping_add(ts_ns);
        self.dur_ns = self.dur_ns.wrapping_add(dur_ns);
        self.args_bytes += args_bytes;
    }
}

fn us_to_ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

fn text_to_ns(text: &str) -> u64 {
    text.parse().map_or(0, us_to_ns)
}

fn ours(path: &Path, sums: &mut Sums) -> Outcome {
    let mut reader = EventReader::new(TraceInput::open(path)?);
    while let Some(entry) = reader.next_entry()? {
        if let TraceEntry::Event(event) = entry {
            sums.add(
                &event.phase.text().unwrap_or_default(),
                &event.name.text().unwrap_or_default(),
                event.ts.us_as_ns().unwrap_or(0),
                event.dur.us_as_ns().unwrap_or(0),
                event.args.json().len(),
            );
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct OwnedEvent {
    ph: Option<String>,
    name: Option<String>,
    ts: Option<f64>,
    dur: Option<f64>,
    args: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct BorrowedEvent<'a> {
    #[serde(borrow)]
    ph: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

/// The outermost object; `borrows`: from a slice.
struct TraceVisitor<'s> {
    sums: &'s mut Sums,
    borrows: bool,
}

impl<'de> Visitor<'de> for TraceVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "traceEvents" {
                map.next_value_seed(EventsSeed { sums: self.sums, borrows: self.borrows })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct EventsSeed<'s> {
    sums: &'s mut Sums,
    borrows: bool,
}

impl<'de> DeserializeSeed<'de> for EventsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for EventsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        if self.borrows {
            while let Some(event) = events.next_element::<BorrowedEvent<'_>>()? {
                self.sums.add(
                    &event.ph.unwrap_or_default(),
                    &event.name.unwrap_or_default(),
                    event.ts.map_or(0, |ts| text_to_ns(ts.get())),
                    event.dur.map_or(0, |dur| text_to_ns(dur.get())),
                    event.args.map_or(0, |args| args.get().len()),
                );
            }
        } else {
            while let Some(event) = events.next_element::<OwnedEvent>()? {
                self.sums.add(
                    &event.ph.unwrap_or_default(),
                    &event.name.unwrap_or_default(),
                    event.ts.map_or(0, us_to_ns),
                    event.dur.map_or(0, us_to_ns),
                    event.args.map_or(0, |args| args.get().len()),
                );
            }
        }
        Ok(())
    }
}

fn serde_stream(path: &Path, sums: &mut Sums) -> Outcome {
    let file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    let borrows = false;
    Ok(serde_json::Deserializer::from_reader(file)
        .deserialize_map(TraceVisitor { sums, borrows })?)
}

fn mapped(path: &Path) -> std::io::Result<Mmap> {
    // SAFETY: the file is not truncated while it is mapped: only this program uses it.
    unsafe { Mmap::map(&File::open(path)?) }
}

fn serde_slice(path: &Path, sums: &mut Sums) -> Outcome {
    let text = mapped(path)?;
    let borrows = true;
    Ok(serde_json::Deserializer::from_slice(&text)
        .deserialize_map(TraceVisitor { sums, borrows })?)
}

fn struson(path: &Path, sums: &mut Sums) -> Outcome {
    let file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    let mut reader = JsonStreamReader::new(file);
    reader.begin_object()?;
    while reader.has_next()? {
        if reader.next_name()? != "traceEvents" {
            reader.skip_value()?;
            continue;
        }
        reader.begin_array()?;
        while reader.has_next()? {
            let (mut phase, mut name) = (String::new(), String::new());
            let (mut ts_ns, mut dur_ns) = (0, 0);
            reader.begin_object()?;
            while reader.has_next()? {
                match reader.next_name_owned()?.as_str() {
                    "ph" => phase = reader.next_string()?,
                    "name" => name = reader.next_string()?,
                    "ts" => ts_ns = text_to_ns(reader.next_number_as_str()?),
                    "dur" => dur_ns = text_to_ns(reader.next_number_as_str()?),
                    _ => reader.skip_value()?,
                }
            }
            reader.end_object()?;
            sums.add(&phase, &name, ts_ns, dur_ns, 0);
        }
        reader.end_array()?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct LazyEvent<'a> {
    #[serde(borrow)]
    ph: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ts: Option<sonic_rs::LazyValue<'a>>,
    #[serde(borrow)]
    dur: Option<sonic_rs::LazyValue<'a>>,
    #[serde(borrow)]
    args: Option<sonic_rs::LazyValue<'a>>,
}

fn sonic(path: &Path, sums: &mut Sums) -> Outcome {
    let text = mapped(path)?;
    // By hand, as `sonic_rs::get` needs a text that is whole.
    let key = b"\"traceEvents\"";
    let found = text.windows(key.len()).position(|bytes| bytes == key);
    let behind = found.ok_or("no traceEvents")? + key.len();
    let bracket = text[behind..].iter().position(|byte| *byte == b'[');
    let events = &text[behind + bracket.ok_or("no array")?..];
    for event in sonic_rs::to_array_iter(events) {
        let event = event?;
        let event: LazyEvent<'_> = sonic_rs::from_str(event.as_raw_str())?;
        let ns = |value: Option<sonic_rs::LazyValue<'_>>| {
            value.map_or(0, |value| text_to_ns(value.as_raw_str()))
        };
        sums.add(
            &event.ph.unwrap_or_default(),
            &event.name.unwrap_or_default(),
            ns(event.ts),
            ns(event.dur),
            event.args.map_or(0, |args| args.as_raw_str().len()),
        );
    }
    Ok(())
}

fn simd(path: &Path, sums: &mut Sums) -> Outcome {
    let mut text = std::fs::read(path)?;
    let tape = simd_json::to_tape(&mut text)?;
    let trace = tape.as_value();
    let events = trace.get("traceEvents").ok_or("no traceEvents")?;
    for event in events.as_array().ok_or("no array")?.iter() {
        let text = |key: &str| event.get(key).and_then(|value| value.into_string());
        let ns = |key: &str| {
            let value = event.get(key).and_then(|value| value.cast_f64());
            value.map_or(0, us_to_ns)
        };
        sums.add(
            text("ph").unwrap_or_default(),
            text("name").unwrap_or_default(),
            ns("ts"),
            ns("dur"),
            0,
        );
    }
    Ok(())
}

/// CPU time of this process so far in s, and its peak memory in MB (getrusage(2)).
fn usage() -> (f64, f64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is ours, and all zeros are a valid value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss as f64 / 1024.0)
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(trace)) = (arguments.next(), arguments.next()) else {
        return Err("usage: compare-readers READER TRACE".into());
    };
    let reader: fn(&Path, &mut Sums) -> Outcome = match name.as_str() {
        "ours" => ours,
        "serde-stream" => serde_stream,
        "serde-slice" => serde_slice,
        "struson" => struson,
        "sonic" => sonic,
        "simd" => simd,
        _ => return Err("READER: ours, serde-stream, serde-slice, struson, sonic, simd".into()),
    };
    let mut sums = Sums::default();
    let outcome = reader(trace.as_ref(), &mut sums);
    let (cpu_s, peak_mb) = usage();
    println!("{name}: {cpu_s:.2} s of CPU time, {peak_mb:.0} MB, {sums:?}");
    outcome
}
