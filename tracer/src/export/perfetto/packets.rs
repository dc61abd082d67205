//! The packets of a trace for Perfetto: tracks, and intervals on them.
//!
//! Owns the fields (`protos/perfetto/trace/` in Perfetto's repository), the texts (each is written once), and the
//! nesting: intervals of one track are within each other or apart, and each end closes the interval begun last.

use super::protobuf::Message;
use std::collections::{HashMap, HashSet};
use std::io;
use std::io::Write;

/// `Trace.packet`.
const PACKET: u32 = 1;
/// `BuiltinClock`.
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
/// The clock of packets that name none.
const BOOTTIME: u64 = 6;
/// `TracePacket.sequence_flags`: forget the texts before; needs the texts before.
const CLEARED: u64 = 1;
const NEEDS_TEXTS: u64 = 2;
/// `TrackEvent.Type`.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
/// The only sequence of packets.
const SEQUENCE: u64 = 1;
/// Largest process and thread id of Linux (`PID_MAX_LIMIT`): from then on ids are free.
const MAX_ID: u32 = 1 << 22;
/// Maximum number of rows of one track with overlapping intervals.
const MOST_ROWS: usize = 16;

/// A track that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrackId(usize);

/// A process or thread, as far as Perfetto distinguishes them: by these ids, on all machines.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackProcess {
    track: TrackId,
    pid: u32,
    shown_pid: u32,
}

impl TrackProcess {
    pub(super) fn track(self) -> TrackId {
        self.track
    }
}

#[derive(Debug)]
struct Track {
    /// Of its further rows.
    parent: Option<u64>,
    name: String,
    rows: Vec<Row>,
}

/// Intervals of a track that do not overlap.
#[derive(Debug)]
struct Row {
    uuid: u64,
    started_ns: u64,
    /// Ends of intervals that may still be open, the innermost last.
    open: Vec<u64>,
}

impl Row {
    /// Begins an interval in it, if that is within the open ones or after them.
    fn takes(&mut self, start_ns: u64, end_ns: u64) -> bool {
        if start_ns < self.started_ns {
            return false;
        }
        while self.open.pop_if(|open_ns| *open_ns <= start_ns).is_some() {}
        if matches!(self.open.last(), Some(open_ns) if *open_ns < end_ns) {
            return false;
        }
        self.started_ns = start_ns;
        self.open.push(end_ns);
        true
    }
}

/// Texts that are written once: the field of `InternedData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Texts {
    Categories = 1,
    Names = 2,
    Keys = 3,
    Values = 29,
}

/// The name of an interval.
#[derive(Clone, Copy, Debug)]
pub(super) enum SliceName<'a> {
    /// One of few.
    Common(&'a str),
    /// Its own.
    Own(&'a str),
}

/// Other known facts of an interval.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note<'a> {
    Number(u64),
    Text(&'a str),
}

/// An interval on a track.
#[derive(Debug)]
pub(super) struct Slice<'a> {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) category: &'static str,
    pub(super) name: SliceName<'a>,
    pub(super) notes: Vec<(&'static str, Note<'a>)>,
    /// Arrows that begin here.
    pub(super) causes: &'a [u64],
    /// The arrow that ends here.
    pub(super) due_to: Option<u64>,
}

/// Writes packets one by one. Keeps the tracks and the distinct texts.
pub(super) struct PacketWriter<'a> {
    out: &'a mut dyn Write,
    texts: HashMap<Texts, HashMap<String, u64>>,
    tracks: Vec<Track>,
    uuids: u64,
    /// Process and thread ids that are taken.
    ids: HashSet<u32>,
    next_id: u32,
}

impl<'a> PacketWriter<'a> {
    /// Begins a trace. `first_ns`: a time, `unix_ns`: the same as Unix time, if it is known.
    /// `is_monotonic`: whether it is of `CLOCK_MONOTONIC`.
    pub(super) fn new(
        out: &'a mut dyn Write,
        first_ns: u64,
        unix_ns: Option<u64>,
        is_monotonic: bool,
    ) -> io::Result<Self> {
        let clock = |id, at_ns| Message::default().number(1, id).number(2, at_ns);
        let mut clocks = Message::default().message(1, &clock(BOOTTIME, first_ns));
        if is_monotonic {
            clocks = clocks.message(1, &clock(MONOTONIC, first_ns));
        }
        if let Some(unix_ns) = unix_ns {
            clocks = clocks.message(1, &clock(REALTIME, unix_ns));
        }
        let mut writer = Self {
            out,
            texts: HashMap::new(),
            tracks: Vec::new(),
            uuids: 0,
            ids: HashSet::new(),
            next_id: MAX_ID,
        };
        let first = Message::default().number(13, CLEARED);
        writer.packet(first.number(8, first_ns).message(6, &clocks))?;
        Ok(writer)
    }

    /// Adds a process.
    pub(super) fn process(&mut self, pid: u32, name: &str) -> io::Result<TrackProcess> {
        let shown_pid = self.id(pid);
        let process = Message::default().number(1, shown_pid.into()).text(6, name);
        let track = self.add(None, name, |track| track.message(3, &process))?;
        Ok(TrackProcess { track, pid, shown_pid })
    }

    /// Adds a thread of a process.
    pub(super) fn thread(
        &mut self,
        process: TrackProcess,
        tid: u32,
        name: &str,
    ) -> io::Result<TrackId> {
        let is_main = tid == process.pid;
        let shown_tid = if is_main { process.shown_pid } else { self.id(tid) };
        let thread = Message::default().number(1, process.shown_pid.into());
        let thread = thread.number(2, shown_tid.into()).text(5, name);
        let track = self.add(Some(process.track), name, |track| track.message(4, &thread))?;
        // Further rows belong to the thread, not to its process.
        if let Some(found) = self.tracks.get_mut(track.0) {
            found.parent = found.rows.first().map(|row| row.uuid);
        }
        Ok(track)
    }

    /// Adds a track of a process, or below another track.
    pub(super) fn track(&mut self, parent: TrackId, name: &str) -> io::Result<TrackId> {
        self.add(Some(parent), name, |track| track.text(2, name))
    }

    /// Writes an interval, or an instant if it has no length, or if it overlaps too many others.
    pub(super) fn slice(&mut self, track: TrackId, slice: &Slice<'_>) -> io::Result<()> {
        let end_ns = slice.end_ns.max(slice.start_ns);
        let (uuid, fits) = self.row(track, slice.start_ns, end_ns)?;
        let is_interval = fits && end_ns > slice.start_ns;
        let mut new = Message::default();
        let kind = if is_interval { BEGIN } else { INSTANT };
        let mut event = Message::default().number(9, kind).number(11, uuid);
        event = event.number(3, self.text(Texts::Categories, slice.category, &mut new));
        event = match slice.name {
            SliceName::Common(name) => event.number(10, self.text(Texts::Names, name, &mut new)),
            SliceName::Own(name) => event.text(23, name),
        };
        for (key, note) in &slice.notes {
            let annotation = Message::default().number(1, self.text(Texts::Keys, key, &mut new));
            let annotation = match note {
                Note::Number(number) => annotation.number(3, *number),
                Note::Text(text) => annotation.number(17, self.text(Texts::Values, text, &mut new)),
            };
            event = event.message(4, &annotation);
        }
        event = slice.causes.iter().fold(event, |event, flow| event.fixed(47, *flow));
        if let Some(flow) = slice.due_to {
            event = event.fixed(48, flow);
        }
        let mut begin = Message::default().number(8, slice.start_ns).number(13, NEEDS_TEXTS);
        if !new.is_empty() {
            begin = begin.message(12, &new);
        }
        self.packet(begin.message(11, &event))?;
        if !is_interval {
            return Ok(());
        }
        let event = Message::default().number(9, END).number(11, uuid);
        self.packet(Message::default().number(8, end_ns).message(11, &event))
    }

    /// The row of a track that an interval is drawn in, and whether it fits there.
    fn row(&mut self, track: TrackId, start_ns: u64, end_ns: u64) -> io::Result<(u64, bool)> {
        let Some(found) = self.tracks.get_mut(track.0) else { return Ok((0, false)) };
        if let Some(row) = found.rows.iter_mut().find_map(|row| {
            let fits = row.takes(start_ns, end_ns);
            if fits { Some(row.uuid) } else { None }
        }) {
            return Ok((row, true));
        }
        let rows = found.rows.len();
        if rows >= MOST_ROWS {
            return Ok((found.rows.last().map_or(0, |row| row.uuid), false));
        }
        let (parent, name) = (found.parent, format!("{} ({})", found.name, rows + 1));
        self.uuids += 1;
        let uuid = self.uuids;
        self.describe(uuid, parent, |track| track.text(2, &name))?;
        let mut row = Row { uuid, started_ns: 0, open: Vec::new() };
        row.takes(start_ns, end_ns);
        if let Some(found) = self.tracks.get_mut(track.0) {
            found.rows.push(row);
        }
        Ok((uuid, true))
    }

    fn add(
        &mut self,
        parent: Option<TrackId>,
        name: &str,
        with: impl FnOnce(Message) -> Message,
    ) -> io::Result<TrackId> {
        self.uuids += 1;
        let uuid = self.uuids;
        let parent = parent.and_then(|parent| self.tracks.get(parent.0)?.rows.first());
        let parent = parent.map(|row| row.uuid);
        self.describe(uuid, parent, with)?;
        let rows = vec![Row { uuid, started_ns: 0, open: Vec::new() }];
        self.tracks.push(Track { parent, name: name.to_owned(), rows });
        Ok(TrackId(self.tracks.len() - 1))
    }

    fn describe(
        &mut self,
        uuid: u64,
        parent: Option<u64>,
        with: impl FnOnce(Message) -> Message,
    ) -> io::Result<()> {
        let track = with(Message::default().number(1, uuid).maybe(5, parent));
        self.packet(Message::default().message(60, &track))
    }

    /// An id that no other process or thread has: the same, unless it is taken or is no id of Linux.
    fn id(&mut self, id: u32) -> u32 {
        let mut shown = id;
        while shown == 0 || (shown > MAX_ID && shown > self.next_id) || !self.ids.insert(shown) {
            self.next_id += 1;
            shown = self.next_id;
        }
        shown
    }

    /// The number of a text; adds it to `new` if it was not written yet.
    fn text(&mut self, texts: Texts, text: &str, new: &mut Message) -> u64 {
        let known = self.texts.entry(texts).or_default();
        if let Some(number) = known.get(text) {
            return *number;
        }
        let number = known.len() as u64 + 1;
        known.insert(text.to_owned(), number);
        let entry = Message::default().number(1, number).text(2, text);
        *new = std::mem::take(new).message(texts as u32, &entry);
        number
    }

    fn packet(&mut self, packet: Message) -> io::Result<()> {
        let packet = packet.number(10, SEQUENCE);
        self.out.write_all(Message::default().message(PACKET, &packet).encoded())
    }
}
