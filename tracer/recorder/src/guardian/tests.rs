//! The guardian with a fake system, and a real one with a real map and a killed parent.

use super::*;
use nix::unistd::Uid;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use test_kit::limit::WithTimeout as _;

/// A system whose clock advances only by sleeping.
#[derive(Default)]
struct Fake {
    now: Duration,
    stopped: Vec<(u32, Duration)>,
    /// Appears in the map at this time.
    later: BTreeMap<Duration, u32>,
    resumed: Vec<(u32, Duration)>,
    broken: bool,
}

impl GuardianWorld for Fake {
    fn stopped(&mut self) -> io::Result<Vec<(u32, Duration)>> {
        if self.broken {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        while let Some(entry) = self.later.first_entry().filter(|entry| *entry.key() <= self.now) {
            let since = *entry.key();
            self.stopped.push((entry.remove(), since));
        }
        Ok(self.stopped.clone())
    }

    fn resume(&mut self, pid: u32) {
        self.resumed.push((pid, self.now));
    }

    fn forget(&mut self, pid: u32) {
        self.stopped.retain(|(stopped, _)| *stopped != pid);
    }

    fn now(&mut self) -> Duration {
        self.now
    }

    fn sleep(&mut self, time: Duration) {
        self.now += time;
    }
}

#[test]
fn each_is_resumed_at_once_and_again() {
    let mut world =
        Fake { stopped: vec![(7, Duration::ZERO), (8, Duration::ZERO)], ..Fake::default() };
    resume_all(&mut world, QUIET).expect("released");
    for pid in [7, 8] {
        let times: Vec<_> =
            world.resumed.iter().filter(|(p, _)| *p == pid).map(|(_, t)| *t).collect();
        assert_eq!(times.first(), Some(&Duration::ZERO));
        assert_eq!(times.last(), Some(&INSIST));
    }
    assert!(world.stopped.is_empty());
    assert!(world.now >= INSIST + QUIET);
}

#[test]
fn late_ones_are_waited_for() {
    let late = QUIET - PAUSE;
    let mut world = Fake { later: [(late, 9)].into(), ..Fake::default() };
    resume_all(&mut world, QUIET).expect("released");
    assert_eq!(world.resumed.first(), Some(&(9, late)));
    assert!(world.stopped.is_empty());
}

#[test]
fn after_dismissal_new_ones_are_not_waited_for() {
    let mut nothing = Fake::default();
    resume_all(&mut nothing, Duration::ZERO).expect("released");
    assert_eq!(nothing.now, Duration::ZERO);

    let mut one = Fake {
        stopped: vec![(7, Duration::ZERO)],
        later: [(INSIST + PAUSE, 8)].into(),
        ..Fake::default()
    };
    resume_all(&mut one, Duration::ZERO).expect("released");
    assert!(one.stopped.is_empty());
    assert_eq!(one.resumed.last(), Some(&(7, INSIST)));
}

#[test]
fn an_exited_process_is_not_waited_for() {
    /// The map loses its only process after the first poll.
    struct Ending(u32, Fake);
    impl GuardianWorld for Ending {
        fn stopped(&mut self) -> io::Result<Vec<(u32, Duration)>> {
            self.0 += 1;
            assert!(self.0 < 100, "never ends");
            Ok(if self.0 == 1 { vec![(7, Duration::ZERO)] } else { vec![] })
        }
        fn resume(&mut self, pid: u32) {
            self.1.resume(pid);
        }
        fn forget(&mut self, pid: u32) {
            self.1.forget(pid);
        }
        fn now(&mut self) -> Duration {
            self.1.now()
        }
        fn sleep(&mut self, time: Duration) {
            self.1.sleep(time);
        }
    }
    resume_all(&mut Ending(0, Fake::default()), Duration::ZERO).expect("released");
}

#[test]
fn overdue_programs_are_resumed_while_gctrace_lives() {
    let second = Duration::from_secs(1);
    let mut world = Fake {
        now: 5 * second,
        stopped: vec![(7, 5 * second - LONGEST), (8, 4 * second)],
        ..Fake::default()
    };
    OverdueStops::default().resume(&mut world).expect("released");
    assert_eq!(world.resumed, [(7, 5 * second)]);
    assert_eq!(world.stopped, [(8, 4 * second)]);
}

/// gctrace is stopped at the program's exec, and again when it loads its libpython. Polls are as late as can be.
#[test]
fn stops_in_a_row_add_up() {
    let poll = Duration::from_millis(WATCH_MS.into());
    let mut overdue = OverdueStops::default();
    let mut world =
        Fake { now: LONGEST + poll, stopped: vec![(7, Duration::ZERO)], ..Fake::default() };
    overdue.resume(&mut world).expect("released");
    world.stopped = vec![(7, world.now)];
    world.now += poll;
    overdue.resume(&mut world).expect("released");
    assert_eq!(world.resumed, [(7, LONGEST + poll), (7, LONGEST + 2 * poll)]);
    assert!(world.now < Duration::from_secs(2));
    // Much later it has all of its time again.
    world.now += IN_A_ROW;
    world.stopped = vec![(7, world.now)];
    world.now += poll;
    overdue.resume(&mut world).expect("released");
    assert_eq!(world.resumed.len(), 2);
}

#[test]
fn an_unreadable_map_ends_the_guardian() {
    let mut world = Fake { broken: true, ..Fake::default() };
    assert!(resume_all(&mut world, QUIET).is_err());
}

#[test]
fn dismissal_differs_from_a_closed_pipe() {
    assert!(abandoned(&mut io::empty()));
    assert!(!abandoned(&mut [DISMISSED].as_slice()));
}

/// `union bpf_attr` for BPF_MAP_CREATE, as far as it is needed.
#[repr(C)]
#[derive(Default)]
struct CreateAttribute {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// A real hash map like the BPF programs', containing these pids.
fn real_map(pids: &[u32]) -> OwnedFd {
    const BPF_MAP_CREATE: i64 = 0;
    const BPF_MAP_TYPE_HASH: u32 = 1;
    let create =
        CreateAttribute { kind: BPF_MAP_TYPE_HASH, key_size: 4, value_size: 8, max_entries: 64 };
    // SAFETY: the struct lives through the call and its size is passed; the result is ours alone.
    let map = unsafe {
        let fd = libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            &raw const create,
            size_of::<CreateAttribute>(),
        );
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(i32::try_from(fd).expect("a descriptor"))
    };
    for pid in pids {
        insert(&map, *pid, 1);
    }
    map
}

fn insert(map: &OwnedFd, pid: u32, since_ns: u64) {
    const BPF_MAP_UPDATE_ELEM: i64 = 2;
    let update = [map.as_raw_fd() as u64, &raw const pid as u64, &raw const since_ns as u64, 0];
    // SAFETY: the attribute contains the descriptor and pointers to live key and value.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_UPDATE_ELEM, update.as_ptr(), 32) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn skipped_without_root(test: &str) -> bool {
    let plain = !Uid::effective().is_root();
    if plain {
        eprintln!("skipped {test}: it creates a BPF map, which needs root");
    }
    plain
}

#[test]
fn a_real_map_is_read_and_emptied() {
    if skipped_without_root("a_real_map_is_read_and_emptied") {
        return;
    }
    let map = StoppedMap::new(real_map(&[3, 1, 2]));
    assert_eq!(map.pids().expect("pids"), [1, 2, 3]);
    let since = Duration::from_nanos(1);
    let both = map.pids_and_times().expect("pids");
    assert_eq!(both, [(1, since), (2, since), (3, since)]);
    map.remove(2);
    map.remove(77);
    assert_eq!(map.pids().expect("pids"), [1, 3]);
    map.remove(1);
    map.remove(3);
    assert!(map.pids().expect("pids").is_empty());
}

#[test]
fn a_file_that_is_not_a_map_is_an_error() {
    let file = File::open("/dev/null").expect("open");
    assert!(StoppedMap::new(file.into()).pids().is_err());
}

/// State of a process, field 3 of proc_pid_stat(5).
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('X')
}

/// Polls until the condition is true; fails after a generous time.
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} never happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn stopped_sleep() -> Child {
    let child = Command::new("sleep").arg("60").spawn().expect("sleep");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGSTOP).expect("stop");
    until("stop", || state(child.id()) == 'T');
    child
}

fn end(mut child: Child) {
    child.kill().expect("kill");
    child.status_in_time().expect("wait");
}

/// Runs as the guardian when the next tests start this test binary again.
#[test]
#[ignore = "runs inside another test"]
fn inner_guard() {
    guard().expect("guard");
}

/// The guardian is this executable with `__guardian`; the tests' executable takes other arguments.
fn start_in_tests(map: BorrowedFd<'_>) -> Guardian {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--ignored", "--exact", "guardian::tests::inner_guard"]);
    let process = GuardianProcess::spawn(command, map, Stdio::null());
    Guardian(process.expect("guardian"))
}

#[test]
fn a_killed_gctrace_leaves_nothing_stopped() {
    if skipped_without_root("a_killed_gctrace_leaves_nothing_stopped") {
        return;
    }
    let stopped = stopped_sleep();
    let map = real_map(&[stopped.id()]);
    let mut guardian = start_in_tests(map.as_fd());
    drop(guardian.0.pipe.take()); // what the kernel does when gctrace is killed
    until("continue", || state(stopped.id()) == 'S');
    assert!(guardian.0.process.status_in_time().expect("wait").success());
    assert!(StoppedMap::new(map).pids().expect("pids").is_empty());
    end(stopped);
}

/// Children of all threads of a process, by their comm. (In the tests' executable a thread runs
/// the guardian.)
fn children(pid: u32) -> Vec<(u32, String)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default())
        .flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok())
        .map(|pid: u32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            (pid, name.trim().to_owned())
        })
        .collect()
}

/// Waits for the successor of the guardian `pid`.
fn successor_of(pid: u32) -> u32 {
    let found = || children(pid).into_iter().find(|(_, name)| name == "gc-successor");
    until("successor", || found().is_some());
    found().expect("successor").0
}

fn sigkill(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("kill");
}

#[test]
fn a_guardian_killed_with_gctrace_leaves_nothing_stopped() {
    if skipped_without_root("a_guardian_killed_with_gctrace_leaves_nothing_stopped") {
        return;
    }
    let stopped = stopped_sleep();
    let map = real_map(&[]);
    let mut guardian = start_in_tests(map.as_fd());
    let successor = successor_of(guardian.0.process.id());
    insert(&map, stopped.id(), far_future());
    sigkill(guardian.0.process.id());
    drop(guardian.0.pipe.take()); // gctrace's death
    until("continue", || state(stopped.id()) == 'S');
    until("the successor's end", || matches!(state(successor), 'X' | 'Z'));
    assert!(map_is_empty(&map));
    end(stopped);
}

/// Each that takes over has a successor itself, and is dismissed as the first would have been.
#[test]
fn guardians_killed_one_by_one_leave_nothing_stopped() {
    if skipped_without_root("guardians_killed_one_by_one_leave_nothing_stopped") {
        return;
    }
    let stopped = stopped_sleep();
    let map = real_map(&[]);
    let mut guardian = start_in_tests(map.as_fd());
    let mut acting = guardian.0.process.id();
    for _ in 0..3 {
        let successor = successor_of(acting);
        sigkill(acting);
        acting = successor;
    }
    let last = successor_of(acting);
    insert(&map, stopped.id(), crate::clock::monotonic_ns());
    until("continue", || state(stopped.id()) == 'S');
    until("forget", || map_is_empty(&map));
    guardian.0.dismiss();
    until("the ends", || [acting, last].iter().all(|pid| matches!(state(*pid), 'X' | 'Z')));
    end(stopped);
}

#[test]
fn a_dismissed_guardian_leaves_nothing_stopped() {
    if skipped_without_root("a_dismissed_guardian_leaves_nothing_stopped") {
        return;
    }
    let stopped = stopped_sleep();
    let map = real_map(&[]);
    let guardian = start_in_tests(map.as_fd());
    insert(&map, stopped.id(), far_future());
    drop(guardian);
    assert_eq!(state(stopped.id()), 'S');
    assert!(StoppedMap::new(map).pids().expect("pids").is_empty());
    end(stopped);
}

#[test]
fn a_gctrace_that_is_stuck_leaves_nothing_stopped() {
    if skipped_without_root("a_gctrace_that_is_stuck_leaves_nothing_stopped") {
        return;
    }
    let stopped = stopped_sleep();
    let map = real_map(&[]);
    let guardian = start_in_tests(map.as_fd());
    insert(&map, stopped.id(), crate::clock::monotonic_ns());
    until("continue", || state(stopped.id()) == 'S');
    until("forget", || map_is_empty(&map));
    drop(guardian);
    end(stopped);
}

fn map_is_empty(map: &OwnedFd) -> bool {
    let map = StoppedMap::new(map.try_clone().expect("descriptor"));
    map.pids().expect("pids").is_empty()
}

/// No stop after that time is overdue.
fn far_future() -> u64 {
    u64::MAX / 2
}

#[test]
fn the_guardian_keeps_only_the_map() {
    if skipped_without_root("the_guardian_keeps_only_the_map") {
        return;
    }
    let map = real_map(&[]);
    // inheritable on purpose: even that must not be kept
    let open = File::open("/etc/passwd").expect("open");
    nix::fcntl::fcntl(&open, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))
        .expect("fcntl");
    let guardian = start_in_tests(map.as_fd());
    let pid = guardian.0.process.id();
    let targets: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("descriptors")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.display().to_string())
        .collect();
    assert!(targets.iter().any(|target| target == "anon_inode:bpf-map"), "{targets:?}");
    assert!(!targets.iter().any(|target| target == "/etc/passwd"), "{targets:?}");
    assert_eq!(
        nix::unistd::getsid(Some(Pid::from_raw(pid.cast_signed()))),
        Ok(Pid::from_raw(pid.cast_signed()))
    );
}
