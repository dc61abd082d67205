//! The guardian in a made-up world, and a real one with a real map and a killed parent.

use super::*;
use nix::unistd::Uid;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;

/// A world whose clock moves only by sleeping.
#[derive(Default)]
struct Fake {
    now: Duration,
    held: Vec<u32>,
    /// Appears in the map at this time.
    later: BTreeMap<Duration, u32>,
    resumed: Vec<(u32, Duration)>,
    broken: bool,
}

impl World for Fake {
    fn held(&mut self) -> io::Result<Vec<u32>> {
        if self.broken {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        while let Some(entry) = self
            .later
            .first_entry()
            .filter(|entry| *entry.key() <= self.now)
        {
            self.held.push(entry.remove());
        }
        Ok(self.held.clone())
    }

    fn resume(&mut self, pid: u32) {
        self.resumed.push((pid, self.now));
    }

    fn forget(&mut self, pid: u32) {
        self.held.retain(|held| *held != pid);
    }

    fn now(&mut self) -> Duration {
        self.now
    }

    fn sleep(&mut self, time: Duration) {
        self.now += time;
    }
}

#[test]
fn each_is_continued_at_once_and_again() {
    let mut world = Fake {
        held: vec![7, 8],
        ..Fake::default()
    };
    release_all(&mut world).expect("released");
    for pid in [7, 8] {
        let times: Vec<_> = world
            .resumed
            .iter()
            .filter(|(p, _)| *p == pid)
            .map(|(_, t)| *t)
            .collect();
        assert_eq!(times.first(), Some(&Duration::ZERO));
        assert_eq!(times.last(), Some(&INSIST));
    }
    assert!(world.held.is_empty());
    assert!(world.now >= INSIST + QUIET);
}

#[test]
fn late_ones_are_waited_for() {
    let late = QUIET - PAUSE;
    let mut world = Fake {
        later: [(late, 9)].into(),
        ..Fake::default()
    };
    release_all(&mut world).expect("released");
    assert_eq!(world.resumed.first(), Some(&(9, late)));
    assert!(world.held.is_empty());
}

#[test]
fn a_map_that_cannot_be_read_ends_it() {
    let mut world = Fake {
        broken: true,
        ..Fake::default()
    };
    assert!(release_all(&mut world).is_err());
}

#[test]
fn a_farewell_is_told_from_an_end() {
    assert!(abandoned(&mut io::empty()));
    assert!(!abandoned(&mut [FAREWELL].as_slice()));
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

/// A real hash map like the one of the BPF programs, with these pids in it.
fn real_map(pids: &[u32]) -> OwnedFd {
    const BPF_MAP_CREATE: i64 = 0;
    const BPF_MAP_UPDATE_ELEM: i64 = 2;
    const BPF_MAP_TYPE_HASH: u32 = 1;
    let create = CreateAttribute {
        kind: BPF_MAP_TYPE_HASH,
        key_size: 4,
        value_size: 8,
        max_entries: 64,
    };
    // SAFETY: the struct lives through the call and its size is told; the result is ours alone.
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
        let value = 1_u64;
        let update = [
            map.as_raw_fd() as u64,
            &raw const *pid as u64,
            &raw const value as u64,
            0,
        ];
        // SAFETY: the attribute holds the descriptor and pointers to live key and value.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_UPDATE_ELEM, update.as_ptr(), 32) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
    map
}

fn skipped_without_root(test: &str) -> bool {
    let plain = !Uid::effective().is_root();
    if plain {
        eprintln!("skipped {test}: it makes a BPF map, which needs root");
    }
    plain
}

#[test]
fn a_real_map_is_read_and_emptied() {
    if skipped_without_root("a_real_map_is_read_and_emptied") {
        return;
    }
    let map = HeldMap::new(real_map(&[3, 1, 2]));
    assert_eq!(map.pids().expect("pids"), [1, 2, 3]);
    map.remove(2);
    map.remove(77);
    assert_eq!(map.pids().expect("pids"), [1, 3]);
    map.remove(1);
    map.remove(3);
    assert!(map.pids().expect("pids").is_empty());
}

#[test]
fn what_is_not_a_map_is_an_error() {
    let file = File::open("/dev/null").expect("open");
    assert!(HeldMap::new(file.into()).pids().is_err());
}

/// State of a process, field 3 of proc_pid_stat(5).
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next())
        .unwrap_or('X')
}

/// Polls: fails only if it never becomes true within a generous time.
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
    child.wait().expect("wait");
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
    Guardian::spawn(command, map).expect("guardian")
}

#[test]
fn a_killed_gctrace_leaves_nothing_stopped() {
    if skipped_without_root("a_killed_gctrace_leaves_nothing_stopped") {
        return;
    }
    let held = stopped_sleep();
    let map = real_map(&[held.id()]);
    let Guardian { mut process, pipe } = start_in_tests(map.as_fd());
    drop(pipe); // what the kernel does when gctrace is killed
    until("continue", || state(held.id()) == 'S');
    assert!(process.wait().expect("wait").success());
    assert!(HeldMap::new(map).pids().expect("pids").is_empty());
    end(held);
}

#[test]
fn a_dismissed_guardian_touches_nothing() {
    if skipped_without_root("a_dismissed_guardian_touches_nothing") {
        return;
    }
    let held = stopped_sleep();
    let map = real_map(&[held.id()]);
    start_in_tests(map.as_fd()).dismiss();
    assert_eq!(state(held.id()), 'T');
    assert_eq!(HeldMap::new(map).pids().expect("pids"), [held.id()]);
    end(held);
}

#[test]
fn the_guardian_keeps_nothing_but_the_map() {
    if skipped_without_root("the_guardian_keeps_nothing_but_the_map") {
        return;
    }
    let map = real_map(&[]);
    // inheritable on purpose: even that must not come along
    let open = File::open("/etc/passwd").expect("open");
    nix::fcntl::fcntl(
        &open,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
    )
    .expect("fcntl");
    let guardian = start_in_tests(map.as_fd());
    let pid = guardian.process.id();
    let targets: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("descriptors")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.display().to_string())
        .collect();
    assert!(
        targets.iter().any(|target| target == "anon_inode:bpf-map"),
        "{targets:?}"
    );
    assert!(
        !targets.iter().any(|target| target == "/etc/passwd"),
        "{targets:?}"
    );
    assert_eq!(
        nix::unistd::getsid(Some(Pid::from_raw(pid.cast_signed()))),
        Ok(Pid::from_raw(pid.cast_signed()))
    );
    guardian.dismiss();
}
