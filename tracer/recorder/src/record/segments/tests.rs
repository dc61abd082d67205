//! Recordings of days in simulated time, read back segment by segment by the public reader.

mod gpu;
mod thinned;
mod turns;

use super::*;
use crate::args::{DailyLimit, KeepLimit};
use crate::files::segments::segments_in;
use crate::invoker::Invoker;
use gctrace_event::read::{DecodedItem, TraceReader};
use gctrace_event::{Frame, NotKept, OffCpu, OmittedPauses, Pause, Process};
use std::collections::HashMap;

const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3600 * SECOND_NS;

fn keeping(time: Option<u64>, bytes: Option<u64>) -> KeepConfig {
    let time = time.map(Duration::from_secs).map(KeepLimit::Time);
    KeepConfig {
        keep: time.into_iter().chain(bytes.map(KeepLimit::Bytes)).collect(),
        on_pause: None,
        on_step_slower: None,
        on_turn: None,
        per_day: DailyLimit(None),
    }
}

/// A recorder with its own clocks.
struct Simulated {
    trace: SegmentedTrace,
    now: Now,
    /// Every pause so far.
    pauses: u64,
    pause_ns: u64,
}

impl Simulated {
    fn start(path: &Path, keep: &KeepConfig) -> Self {
        let now = Now { monotonic_ns: 100 * SECOND_NS, unix_ns: 1_700_000_000 * SECOND_NS };
        let (folder, _) = SegmentFolder::open(path, &Invoker::detect(), "-o").unwrap();
        let header = TraceHeader {
            format: gctrace_event::FORMAT.to_owned(),
            started_ns: now.monotonic_ns,
            started_unix_ns: now.unix_ns,
            ..TraceHeader::default()
        };
        let mut trace = SegmentedTrace::start(folder, keep, &header, now).unwrap();
        trace.write(&Record::Process(Process {
            pid: 7,
            since_ns: now.monotonic_ns,
            ..Process::default()
        }));
        for (id, parent) in [(1, None), (2, Some(1)), (3, None)] {
            trace.write(&Record::Frame(Frame { id, parent, ..Frame::default() }));
        }
        Self { trace, now, pauses: 0, pause_ns: 0 }
    }

    fn pause(&mut self, duration_ns: u64) {
        let pause = Pause {
            pid: 7,
            tid: 7,
            generation: (self.pauses % 3) as u8,
            start_ns: self.now.monotonic_ns - duration_ns,
            end_ns: self.now.monotonic_ns,
            stack: Some(2),
            ..Pause::default()
        };
        let is_omitted = duration_ns < self.trace.min_pause_ns();
        if !is_omitted {
            self.trace.write(&Record::Pause(pause.clone()));
        }
        self.trace.see(&pause, is_omitted);
        self.pauses += 1;
        self.pause_ns += duration_ns;
    }

    fn pass(&mut self, ns: u64) {
        self.now.monotonic_ns += ns;
        self.now.unix_ns += ns;
        if self.trace.is_due(self.now) {
            self.trace.turn(self.now, &BTreeMap::new());
        }
    }
}

/// What one segment has: its header, pauses, and last line.
struct ReadSegment {
    segment: Segment,
    header: TraceHeader,
    pauses: u64,
    pause_ns: u64,
    waits: OmittedPauses,
    notes: Vec<String>,
    end: Option<TraceEnd>,
}

/// Reads a segment alone; every frame that a pause names is in it, before the pause.
fn read(path: &Path) -> ReadSegment {
    let mut reader = TraceReader::open(path).unwrap();
    let mut read = ReadSegment {
        segment: Segment::default(),
        header: TraceHeader::default(),
        pauses: 0,
        pause_ns: 0,
        waits: OmittedPauses::default(),
        notes: Vec::new(),
        end: None,
    };
    let (mut frames, mut processes) = (Vec::new(), 0);
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            DecodedItem::Header(header) => {
                read.segment = header.segment.clone().unwrap();
                read.header = *header;
            }
            DecodedItem::Record(Record::Frame(frame)) => frames.push(frame.id),
            DecodedItem::Record(Record::Process(process)) => {
                assert!(process.since_ns >= read.header.started_ns);
                processes += 1;
            }
            DecodedItem::Record(Record::Pause(pause)) => {
                assert_eq!(frames, [1, 2], "and not the frame that no pause names");
                assert_eq!(processes, 1);
                read.pauses += 1;
                read.pause_ns += pause.duration_ns();
            }
            DecodedItem::Record(Record::OffCpu(off)) => {
                for (_, total_ns) in off.times {
                    read.waits.add(OmittedPauses::of(1, total_ns));
                }
            }
            DecodedItem::Record(Record::Note(note)) => read.notes.push(note.message),
            DecodedItem::Record(Record::End(end)) => read.end = Some(end),
            _ => {}
        }
    }
    read
}

fn read_all(path: &Path) -> Vec<ReadSegment> {
    segments_in(path).iter().map(|(_, segment)| read(segment)).collect()
}

#[test]
fn a_week_leaves_its_last_part_and_exact_totals() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let mut recorder = Simulated::start(&path, &keeping(Some(600), None));
    let week = 7 * 24 * HOUR_NS;
    let step = 5 * SECOND_NS;
    for turn in 0..week / step {
        recorder.pause(10_000 + turn % 1000);
        recorder.pass(step);
    }
    let (pauses, pause_ns) = (recorder.pauses, recorder.pause_ns);
    let now = recorder.now;
    recorder.trace.finish(TraceEnd { ended_ns: now.monotonic_ns, ..TraceEnd::default() }).unwrap();
    let segments = read_all(&path);
    let first = segments.first().unwrap();
    let kept_ns = now.monotonic_ns - first.header.started_ns;
    assert!((600 * SECOND_NS..=720 * SECOND_NS).contains(&kept_ns), "{kept_ns}");
    let here: u64 = segments.iter().map(|segment| segment.pauses).sum();
    assert!(here >= 600 / 5, "{here}");
    assert_eq!(first.segment.before.count() + here, pauses);
    let here_ns: u64 = segments.iter().map(|segment| segment.pause_ns).sum();
    assert_eq!(first.segment.before.total_ns() + here_ns, pause_ns);
    assert_eq!(first.segment.before.longest_ns(), Some(10_999));
    let numbers: Vec<u64> = segments.iter().map(|segment| segment.segment.number).collect();
    assert!(numbers.windows(2).all(|two| two[0] + 1 == two[1]), "{numbers:?}");
    assert!(segments.iter().all(|segment| segment.end.is_some()));
}

#[test]
fn a_size_is_not_exceeded_and_short_pauses_are_only_counted_beyond_a_budget() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let keep =
        KeepConfig { per_day: DailyLimit(Some(1_000_000)), ..keeping(None, Some(1_000_000)) };
    let mut recorder = Simulated::start(&path, &keep);
    let mut random = 1u64;
    for _ in 0..3 * 24 * 60 {
        for _ in 0..60 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            recorder.pause(10_000 + (random >> 33) % 1_000_000);
            recorder.pass(SECOND_NS);
        }
        let bytes: u64 =
            segments_in(&path).iter().map(|(_, it)| it.metadata().unwrap().len()).sum();
        assert!(bytes <= 1_000_000, "{bytes}");
    }
    let pauses = recorder.pauses;
    let ended_ns = recorder.now.monotonic_ns;
    recorder.trace.finish(TraceEnd { ended_ns, ..TraceEnd::default() }).unwrap();
    let segments = read_all(&path);
    let first = segments.first().unwrap();
    let counted =
        |segment: &ReadSegment| segment.pauses + segment.end.as_ref().unwrap().omitted.count.0;
    let here: u64 = segments.iter().map(counted).sum();
    assert_eq!(first.segment.before.count() + here, pauses);
    let last = segments.last().unwrap();
    assert!(last.segment.before.omitted.count.0 > pauses / 4, "{:?}", last.segment.before);
    assert!(last.header.min_pause_ns > 100_000, "{}", last.header.min_pause_ns);
}

#[test]
fn short_waits_are_only_counted_beyond_a_budget() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let keep =
        KeepConfig { per_day: DailyLimit(Some(1_000_000)), ..keeping(None, Some(1_000_000)) };
    let mut recorder = Simulated::start(&path, &keep);
    let mut random = 1u64;
    let mut all = OmittedPauses::default();
    for _ in 0..24 * 60 {
        recorder.pause(10_000);
        for _ in 0..60 {
            let mut times = Vec::new();
            for number in 0..4 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let length_ns = 1_000_000 + (random >> 33) % 100_000_000;
                times.push((number * 250_000_000, length_ns));
                all.add(OmittedPauses::of(1, length_ns));
            }
            let at_ns = recorder.now.monotonic_ns;
            let off = OffCpu { pid: 7, tid: 7, at_ns, times, stack: Some(2), ..OffCpu::default() };
            recorder.trace.write(&Record::OffCpu(off));
            recorder.pass(SECOND_NS);
        }
    }
    let ended_ns = recorder.now.monotonic_ns;
    recorder.trace.finish(TraceEnd { ended_ns, ..TraceEnd::default() }).unwrap();
    let segments = read_all(&path);
    let first = segments.first().unwrap();
    let mut counted = first.segment.before.waits;
    for segment in &segments {
        counted.add(segment.waits);
        counted.add(segment.end.as_ref().unwrap().omitted_waits);
    }
    assert_eq!(counted, all, "every one is in a segment or counted");
    let last = segments.last().unwrap();
    assert!(last.segment.min_wait_ns > 10_000_000, "{:?}", last.segment);
    assert!(last.segment.before.omitted_waits.count.0 > all.count.0 / 4, "{:?}", last.segment);
    assert_eq!(last.segment.before.omitted, OmittedPauses::default(), "all pauses are written");
}

#[test]
fn a_long_pause_is_kept_with_what_came_before_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let keep =
        KeepConfig { on_pause: Some(Duration::from_millis(500)), ..keeping(Some(100), None) };
    let mut recorder = Simulated::start(&path, &keep);
    for second in 0..1000u64 {
        // Two of them close together, and one when the first kept ones are gone.
        let is_long = [300, 305, 800].contains(&second);
        recorder.pause(if is_long { 600_000_000 } else { 20_000 });
        recorder.pass(SECOND_NS);
    }
    let kept = |number: u32| path.join(format!("kept-{number}"));
    let first = read_all(&kept(1));
    let last = first.last().unwrap();
    assert!(last.notes.iter().any(|note| note.contains("kept: a pause of 600 ms in process 7")));
    let longest = |segments: &[ReadSegment]| {
        segments.iter().map(|segment| segment.pause_ns / 500_000_000).sum::<u64>()
    };
    assert_eq!(longest(&first), 1);
    let before_ns = last.end.as_ref().unwrap().ended_ns - first[0].header.started_ns;
    assert!(before_ns >= 95 * SECOND_NS, "{before_ns}");
    assert_eq!(longest(&read_all(&kept(2))), 1, "the second, before it was deleted");
    assert_eq!(longest(&read_all(&kept(3))), 1);
    assert!(!kept(4).exists());
    let reason = std::fs::read_to_string(kept(1).join("reason.txt")).unwrap();
    assert!(reason.ends_with("a pause of 600 ms in process 7\n"), "{reason}");
    recorder.trace.ask("SIGUSR2");
    recorder.pass(1);
    assert!(!read_all(&kept(4)).is_empty(), "who asks waits for nothing");
}

/// The reasons of the folders that were kept, by number.
fn reasons(path: &Path) -> Vec<String> {
    let folders = crate::files::segments::kept_in(path).into_iter();
    folders.map(|(_, kept)| std::fs::read_to_string(kept.join("reason.txt")).unwrap()).collect()
}

fn finish(recorder: Simulated) -> TraceEnd {
    let (path, ended_ns) = (recorder.trace.path().to_owned(), recorder.now.monotonic_ns);
    // On a full disk with an error.
    let _ = recorder.trace.finish(TraceEnd { ended_ns, ..TraceEnd::default() });
    read_all(&path).pop().unwrap().end.unwrap()
}

#[test]
fn the_longest_pause_is_kept_and_the_others_are_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let keep = KeepConfig { on_pause: Some(Duration::from_millis(20)), ..keeping(Some(600), None) };
    let mut recorder = Simulated::start(&path, &keep);
    for second in 0..60u64 {
        recorder.pause(match second {
            10 => 62_000_000,
            20 => 265_000_000,
            30 => 62_000_000,
            40 => 137_000_000,
            50 => 3_970_000_000,
            59 => 30_000_000,
            _ => 20_000,
        });
        recorder.pass(SECOND_NS);
    }
    let last = |reasons: &[String]| reasons.last().unwrap().clone();
    assert!(last(&reasons(&path)).ends_with("a pause of 3.97 s in process 7, the longest of 3\n"));
    let end = finish(recorder);
    let reasons = reasons(&path);
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(reasons[1].ends_with(": a pause of 265 ms in process 7\n"), "{reasons:?}");
    assert!(
        last(&reasons).ends_with(": a pause of 30.0 ms in process 7\n"),
        "at the end: {reasons:?}"
    );
    assert_eq!(end.totals.unwrap().not_kept, NotKept::default());
}

#[test]
fn the_longest_ones_have_the_room_there_is_and_those_let_go_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let keep = KeepConfig { on_pause: Some(Duration::from_millis(100)), ..keeping(Some(10), None) };
    let mut recorder = Simulated::start(&path, &keep);
    let length_ns = |number: u64| 100_000_000 + number * 7 % 27 * 10_000_000;
    let mut times = HashMap::new();
    for number in 0..27 {
        times.insert(length_ns(number), recorder.now.monotonic_ns);
        recorder.pause(length_ns(number));
        for _ in 0..40 {
            recorder.pause(20_000);
            recorder.pass(SECOND_NS);
        }
    }
    recorder.trace.ask("SIGUSR2");
    recorder.pass(SECOND_NS);
    let end = finish(recorder);
    let reasons = reasons(&path);
    assert_eq!(reasons.len(), 21, "{reasons:?}");
    for length in 17..37 {
        let length = format!("a pause of {}0 ms in", length);
        assert!(reasons.iter().any(|reason| reason.contains(&length)), "{length}: {reasons:?}");
    }
    let longest_ns = 160_000_000;
    let not_kept = NotKept { count: 7, longest_ns, longest_at_ns: times[&longest_ns] };
    assert_eq!(end.totals.unwrap().not_kept, not_kept);
    let last = read_all(&path).pop().unwrap();
    let stated = "that are not kept: 7; the longest: a pause of 160 ms in process 7, at 2023-11-1";
    assert!(last.notes.iter().any(|note| note.contains(stated)), "{:?}", last.notes);
}

#[test]
fn a_killed_recorder_leaves_what_was_flushed_and_the_next_one_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let mut recorder = Simulated::start(&path, &keeping(Some(60), None));
    for _ in 0..100 {
        recorder.pause(20_000);
        recorder.pass(SECOND_NS);
    }
    // As after a kill: nothing is flushed, no last line is written.
    std::mem::forget(recorder.trace.current.take());
    let written = recorder.pauses;
    drop(recorder);
    let killed = read_all(&path);
    assert!(killed.last().unwrap().end.is_none());
    let here: u64 = killed.iter().map(|segment| segment.pauses).sum();
    assert!(killed[0].segment.before.count() + here >= written - 1);
    let _next = Simulated::start(&path, &keeping(Some(60), None));
    let kept: u64 = read_all(&path.join("kept-1")).iter().map(|segment| segment.pauses).sum();
    assert_eq!(kept, here);
}

#[test]
fn steps_of_the_clock_change_nothing_but_the_time_of_day() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let mut recorder = Simulated::start(&path, &keeping(Some(100), None));
    for second in 0..500u64 {
        match second % 50 {
            20 => recorder.now.unix_ns += 86_400 * SECOND_NS,
            40 => recorder.now.unix_ns -= 86_400 * SECOND_NS,
            _ => {}
        }
        recorder.pause(20_000);
        recorder.pass(SECOND_NS);
    }
    let pauses = recorder.pauses;
    recorder.trace.finish(TraceEnd::default()).unwrap();
    let segments = read_all(&path);
    assert!(segments.len() >= 10, "{}", segments.len());
    let here: u64 = segments.iter().map(|segment| segment.pauses).sum();
    assert_eq!(segments[0].segment.before.count() + here, pauses);
}

/// A small file system, if this machine permits mounting one.
fn small_disk() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(dir.path());
    if mount.status().is_ok_and(|status| status.success()) {
        return Some(dir);
    }
    eprintln!("skipped: mounting a tmpfs needs root");
    None
}

#[test]
fn a_full_disk_costs_the_oldest_segments_and_what_it_refused_is_counted() {
    let Some(dir) = small_disk() else { return };
    let path = dir.path().join("ring");
    let mut recorder = Simulated::start(&path, &keeping(Some(100_000), None));
    let mut random = 1u64;
    let run = |recorder: &mut Simulated, random: &mut u64, seconds: u64| {
        for _ in 0..seconds {
            for _ in 0..50 {
                *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                recorder.pause(10_000 + (*random >> 33) % 1_000_000);
            }
            recorder.pass(SECOND_NS);
        }
    };
    run(&mut recorder, &mut random, 2000);
    // The rest of the disk goes to another program, which deletes its file later.
    let other = dir.path().join("other");
    let mut size = 4 << 20;
    while size > 512 {
        let full = std::fs::OpenOptions::new().create(true).append(true).open(&other).unwrap();
        let _ = std::io::Write::write_all(&mut &full, &vec![1; size]);
        size /= 2;
    }
    run(&mut recorder, &mut random, 3000);
    std::fs::remove_file(&other).unwrap();
    run(&mut recorder, &mut random, 1500);
    let pauses = recorder.pauses;
    recorder.trace.finish(TraceEnd::default()).unwrap();
    let segments = read_all(&path);
    let here: u64 = segments.iter().map(|segment| segment.pauses).sum();
    let last = segments.last().unwrap();
    assert_eq!(last.segment.before.count() + last.pauses, pauses, "all were counted");
    assert!(here > 0 && segments[0].segment.number > 1, "the oldest made room");
    let noted = segments.iter().flat_map(|segment| &segment.notes);
    assert!(noted.into_iter().any(|note| note.contains("no space left")), "and it is stated");
    drop(segments);
    let _ = std::process::Command::new("umount").arg(dir.path()).status();
}

/// Fills a file system but for some bytes.
fn fill(dir: &Path, left: u64) {
    let free = nix::sys::statvfs::statvfs(dir).unwrap();
    let free = free.blocks_free() * free.fragment_size();
    let other = std::fs::File::create(dir.join("other")).unwrap();
    nix::fcntl::posix_fallocate(&other, 0, free.saturating_sub(left).max(1) as i64).unwrap();
}

/// Whether a segment ends by its length, or because it finds no room.
#[test]
fn what_a_full_disk_refused_until_the_end_is_in_the_last_line() {
    let mut refused = 0;
    for left in (0..12u64).map(|part| part * 20_000) {
        let Some(dir) = small_disk() else { return };
        let path = dir.path().join("ring");
        let limit = Some(Duration::from_millis(600));
        let keep = KeepConfig { on_pause: limit, ..keeping(Some(3000), None) };
        let mut recorder = Simulated::start(&path, &keep);
        let mut random = 1u64;
        fill(dir.path(), left);
        for _ in 0..2000 {
            for _ in 0..50 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                recorder.pause(10_000 + (random >> 33) % 1_000_000);
            }
            recorder.pass(SECOND_NS);
        }
        let is_full = recorder.trace.current.is_none();
        // No segment has it.
        recorder.pause(700_000_000);
        let (pauses, pause_ns) = (recorder.pauses, recorder.pause_ns);
        let end = finish(recorder);
        let segments = read_all(&path);
        let here: u64 = segments.iter().map(|segment| segment.pauses).sum();
        let lost: u64 = segments.iter().flat_map(|it| it.end.as_ref().unwrap().lost.values()).sum();
        assert_eq!(segments[0].segment.before.count() + here + lost, pauses, "{left}");
        let totals = end.totals.unwrap();
        assert_eq!((totals.count(), totals.total_ns()), (pauses, pause_ns));
        if is_full {
            refused += 1;
            let place = "collections: not written (no space left on the disk)";
            assert!(end.lost.contains_key(place), "{left}: {:?}", end.lost);
            assert_eq!(totals.not_kept.longest_ns, 700_000_000);
        }
        let _ = std::process::Command::new("umount").arg(dir.path()).status();
    }
    assert!(refused > 6, "{refused}");
}
