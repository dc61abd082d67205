//! The ring between threads and between processes: nothing is torn, duplicated or lost uncounted.

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use gctrace_ring::{
    LostKind, OfferState, OwnerMark, PythonMessage, RingConsumer, RingCycleEdge, RingHello,
    RingListener, RingOpenError, RingPause, RingProducer, RingReason, RingRole, TimeInterval,
    offer,
};
use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A record with every word derived from two numbers.
fn record(thread: u32, number: u64) -> PythonMessage {
    PythonMessage::Pause(RingPause {
        interval: TimeInterval { start_ns: number, end_ns: number * 3 },
        tid: thread,
        generation: (number % 3) as u8,
        interpreter: number as i64 ^ 7,
        collected: (!number.is_multiple_of(3)).then_some(number as u32 ^ 9),
        uncollectable: Some(number as u32 ^ 7),
        frame: number as u32 ^ thread,
        reason: if number % 2 == 1 { RingReason::Exit } else { RingReason::Automatic },
        oldest_objects: Some(number as u32),
        freed_bytes: Some(number ^ 3),
        cpu_ns: (!number.is_multiple_of(5)).then_some(number),
    })
}

/// Thread and number of a record that is intact.
fn whole(seen: PythonMessage) -> (u32, u64) {
    let PythonMessage::Pause(pause) = seen else { panic!("{seen:?}") };
    let number = pause.interval.start_ns;
    assert_eq!(seen, record(pause.tid, number));
    (pause.tid, number)
}

#[test]
fn threads_write_during_reads() {
    const THREADS: u32 = 4;
    const EACH: u64 = 200_000;
    let (producer, descriptor) = RingProducer::create(1 << 8).unwrap();
    let mut consumer = RingConsumer::open(descriptor.as_fd(), 1 << 8).unwrap();
    let done = AtomicBool::new(false);
    let mut next = [0; THREADS as usize];
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let producer = &producer;
                scope.spawn(move || {
                    (0..EACH).filter(|number| producer.push(&record(thread, *number))).count()
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            loop {
                let last = done.load(Ordering::Acquire);
                let read = consumer.read(false, |record| {
                    let (thread, number) = whole(record);
                    // In order for each thread, none twice.
                    assert!(number >= next[thread as usize]);
                    next[thread as usize] = number + 1;
                });
                seen.fetch_add(read.messages, Ordering::Relaxed);
                if last && read.messages == 0 {
                    break;
                }
            }
        });
        let pushed: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        done.store(true, Ordering::Release);
        reader.join().unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), pushed as u64);
    });
    assert_eq!(seen.into_inner() + consumer.lost().of(LostKind::Pauses), u64::from(THREADS) * EACH);
    assert_eq!(consumer.lost(), producer.lost());
}

/// Bytes of memory that a ring takes.
fn memory(descriptor: &OwnedFd) -> u64 {
    File::from(descriptor.try_clone().unwrap()).metadata().unwrap().blocks() * 512
}

/// A process that records little takes little; writers that meet at a border lose nothing.
#[test]
fn memory_is_allocated_as_it_is_written() {
    const RECORDS: u64 = 1 << 14;
    let (producer, descriptor) = RingProducer::create(RECORDS as usize).unwrap();
    let mut consumer = RingConsumer::open(descriptor.as_fd(), RECORDS as usize).unwrap();
    let all = RECORDS * 64 + 8192;
    if memory(&descriptor) == all {
        eprintln!(
            "skipped memory_is_allocated_as_it_is_written: Linux before 5.14 allocates all of it"
        );
        return;
    }
    assert_eq!(memory(&descriptor), 4096 + 8192);
    for number in 0..1025 {
        assert!(producer.push(&record(1, number)));
    }
    assert_eq!(memory(&descriptor), (2 << 16) + 8192);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let producer = &producer;
            scope.spawn(move || {
                let each = (RECORDS - 1025) / 4;
                assert!((0..each).all(|number| producer.push(&record(thread, number))));
            });
        }
    });
    assert_eq!(memory(&descriptor), all);
    let read = consumer.read(false, |record| _ = whole(record));
    assert_eq!((read.messages, read.damaged), (1025 + (RECORDS - 1025) / 4 * 4, 0));
    for number in 0..RECORDS {
        assert!(producer.push(&record(1, number)), "the second round needs no more");
    }
    assert!(!producer.push(&record(1, 0)), "full");
}

#[test]
fn a_full_ring_refuses_and_counts() {
    let (producer, descriptor) = RingProducer::create(4).unwrap();
    let mut consumer = RingConsumer::open(descriptor.as_fd(), 4).unwrap();
    let pushed = (0..7).filter(|number| producer.push(&record(1, *number))).count();
    assert_eq!((pushed, consumer.lost().of(LostKind::Pauses)), (4, 3));
    let mut seen = Vec::new();
    consumer.read(false, |record| seen.push(whole(record).1));
    assert_eq!(seen, [0, 1, 2, 3]);
    assert!(producer.push(&record(1, 9)), "there is room again");
}

/// The same of one slot or several, by its number.
fn any_length(number: u64) -> PythonMessage {
    match number % 5 {
        0 => PythonMessage::Cycle {
            id: number as u32,
            edges: vec![
                RingCycleEdge { kind: number as u32, name: 1 << 20 };
                number as usize % 200
            ],
        },
        _ => record(1, number),
    }
}

/// Writes endlessly in a child, which is killed at a random time; a message that it started and did
/// not finish is skipped and counted, all others are intact and in order.
#[test]
fn a_killed_process_leaves_what_it_wrote() {
    for round in 0..20_u64 {
        let (producer, descriptor) = RingProducer::create(1 << 12).unwrap();
        let mut consumer = RingConsumer::open(descriptor.as_fd(), 1 << 12).unwrap();
        // SAFETY: the child only writes to the ring, until it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut number = 0;
            loop {
                number += u64::from(producer.push(&any_length(number)));
            }
        }
        let expected = Cell::new(0);
        let mut count = |message: PythonMessage| {
            assert_eq!(message, any_length(expected.get()));
            expected.set(expected.get() + 1);
        };
        while expected.get() <= round * 1000 {
            consumer.read(false, &mut count);
        }
        let mut status = 0;
        // SAFETY: our own child, waited for once.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, &raw mut status, 0);
        }
        let mut damaged = 0;
        for _ in 0..3 {
            damaged += consumer.read(true, &mut count).damaged;
        }
        damaged += consumer.torn().total();
        assert!(damaged <= 1, "one thread has started at most one message");
    }
}

#[test]
fn handed_over_with_the_peers_own_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = RingListener::bind(&path).unwrap();
    assert!(listener.accept().unwrap().is_none());
    let (producer, descriptor) = RingProducer::create(16).unwrap();
    let hello =
        RingHello { time_namespace: 0, role: RingRole::Gpu, own_pid: 77, at_ns: 5, is_fork: true };
    assert!(offer(path.as_os_str().as_bytes(), descriptor.as_fd(), &hello));
    drop(descriptor);
    let connection = listener.accept().unwrap().unwrap();
    let offered = connection.receive_within(Duration::from_secs(60)).unwrap();
    assert_eq!(offered.hello, hello);
    assert_eq!(offered.pid, std::process::id());
    // SAFETY: takes nothing.
    assert_eq!(offered.uid, unsafe { libc::getuid() });
    let mut consumer = RingConsumer::open(offered.ring.as_fd(), 16).unwrap();
    producer.push(&record(1, 1));
    assert_eq!(consumer.read(false, |_: PythonMessage| ()).messages, 1);
    // Not by dropping the listener: another test's forked child may have it open as well.
    std::fs::remove_file(&path).unwrap();
    assert!(!offer(path.as_os_str().as_bytes(), offered.ring.as_fd(), &hello));
}

/// Offset in the header of the number of records reserved (`layout.rs`).
const HEAD: u64 = 64;

/// Like a process that reserves records and never writes them.
fn reserve(descriptor: &std::os::fd::OwnedFd, head: u64) {
    let file = std::fs::File::from(descriptor.try_clone().unwrap());
    std::os::unix::fs::FileExt::write_all_at(&file, &head.to_le_bytes(), HEAD).unwrap();
}

#[test]
fn a_silent_peer_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = RingListener::bind(&path).unwrap();
    let peer = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let connection = listener.accept().unwrap().unwrap();
    assert!(matches!(connection.receive(), OfferState::Nothing));
    std::io::Write::write_all(&mut &peer, b"x").unwrap();
    assert!(matches!(connection.receive(), OfferState::Other));
    drop(peer);
    assert!(matches!(connection.receive(), OfferState::Other));
}

#[test]
fn only_a_ring_of_the_requested_size_is_read() {
    let (_producer, descriptor) = RingProducer::<PythonMessage>::create(1 << 10).unwrap();
    let bytes = 8192 + (1 << 16);
    let refused = Some(RingOpenError::Length { bytes });
    for records in [0, 1000, 1 << 9, 1 << 11, 1 << 24] {
        assert_eq!(RingConsumer::open(descriptor.as_fd(), records).err(), refused);
    }
    assert!(RingConsumer::open(descriptor.as_fd(), 1 << 10).is_ok());
}

#[test]
fn invalid_memory_is_not_searched_to_its_end() {
    const RECORDS: usize = 1 << 14;
    let (producer, descriptor) = RingProducer::create(RECORDS).unwrap();
    let mut consumer = RingConsumer::open(descriptor.as_fd(), RECORDS).unwrap();
    assert!(producer.push(&record(1, 1)));
    reserve(&descriptor, RECORDS as u64);
    let read = consumer.read(true, |_: PythonMessage| ());
    assert_eq!((read.messages, read.damaged), (1, 1), "a run without messages");
    assert_eq!(consumer.read(true, |_: PythonMessage| ()), gctrace_ring::RingRead::default());
}

/// A thread is killed between reserving a record and writing it; the others of its process
/// continue.
#[test]
fn an_unfinished_record_is_skipped_and_counted() {
    let (producer, descriptor) = RingProducer::create(1 << 4).unwrap();
    let mut consumer = RingConsumer::open(descriptor.as_fd(), 1 << 4).unwrap();
    assert!(producer.push(&record(1, 0)));
    reserve(&descriptor, 2);
    assert!(producer.push(&record(1, 1)));
    let (mut seen, mut damaged) = (Vec::new(), 0);
    let until = Instant::now() + Duration::from_secs(60);
    while seen.len() < 2 {
        assert!(Instant::now() < until, "{seen:?}");
        let read = consumer.read(false, |record| seen.push(whole(record).1));
        damaged += read.damaged;
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((seen, damaged), (vec![0, 1], 1));
    assert!(!consumer.read(false, |_: PythonMessage| ()).is_waiting);
}

#[test]
fn starts_are_not_counted_as_lost() {
    let (producer, _descriptor) = RingProducer::create(1).unwrap();
    assert!(producer.push(&record(1, 1)));
    let start = PythonMessage::PauseStart { at_ns: 1, tid: 1, generation: 0, interpreter: 0 };
    assert!(!producer.push(&start) && !producer.push(&record(1, 2)));
    assert_eq!(producer.lost().total(), 1);
}

#[test]
fn other_memory_is_not_read() {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(RingConsumer::open(file.as_fd(), 16).err(), Some(RingOpenError::NotSealed));
    // SAFETY: a new descriptor of ours.
    let memory = unsafe {
        let raw = libc::memfd_create(c"other".as_ptr(), libc::MFD_ALLOW_SEALING);
        libc::ftruncate(raw, 12_345);
        libc::fcntl(raw, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK);
        <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(raw)
    };
    let error = RingConsumer::open(memory.as_fd(), 16).err();
    assert_eq!(error, Some(RingOpenError::Length { bytes: 12_345 }));
}

#[test]
fn a_forked_process_finds_the_mark_gone() {
    let mark = OwnerMark::new().unwrap();
    assert!(mark.is_mine());
    // SAFETY: the child only reads and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(i32::from(mark.is_mine())) };
    }
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 0);
    assert!(mark.is_mine());
}
