//! `/proc/PID`: what a process is, its relatives, the names of its threads.
//!
//! A process can vanish between any two reads; that is [`ProcessError::Gone`], never a panic.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Why a process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It has exited, or never existed.
    #[error("there is no process {pid}; list processes with: ps -ef")]
    Gone {
        /// Process id.
        pid: u32,
    },
    /// Access was denied.
    #[error(
        "process {pid} may not be inspected ({what}: {source}); {}",
        with_rights("sudo gctrace")
    )]
    Forbidden {
        /// Process id.
        pid: u32,
        /// The file below `/proc/PID`.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Any other error.
    #[error("cannot read /proc/{pid}/{what}: {source}; see: {}", remedy(*pid, source))]
    Read {
        /// Process id.
        pid: u32,
        /// The file below `/proc/PID`.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Advice for missing rights over a process; `command`: gctrace as root.
pub fn with_rights(command: &str) -> String {
    if nix::unistd::Uid::effective().is_root() {
        "this root has not the right either: the process has rights that a container or user namespace lacks, or a \
         security module forbids it; gctrace on the host may have it"
            .to_owned()
    } else {
        format!("run gctrace as root: {command}")
    }
}

/// The command that shows what is in the way.
fn remedy(pid: u32, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        // ENFILE, EMFILE.
        Some(23 | 24) => "ulimit -n".to_owned(),
        _ => format!("ls -l /proc/{pid}"),
    }
}

impl ProcessError {
    pub(crate) fn new(pid: u32, what: &'static str, source: std::io::Error) -> Self {
        use std::io::ErrorKind;
        // ESRCH (3): the process exited after the open.
        match source.kind() {
            ErrorKind::NotFound => Self::Gone { pid },
            _ if source.raw_os_error() == Some(3) => Self::Gone { pid },
            ErrorKind::PermissionDenied => Self::Forbidden { pid, what, source },
            _ => Self::Read { pid, what, source },
        }
    }
}

/// Most bytes of a file below `/proc/PID` that are read: a map of 65,530 mappings (`vm.max_map_count`) with long paths.
const LARGEST: u64 = 64 << 20;
/// Most bytes of a command line and of an environment: exec's limit for both (`bprm_stack_limits`, fs/exec.c, since
/// 4.13). A program can have the kernel show its whole memory there (`PR_SET_MM_MAP`).
const LARGEST_ARGUMENTS: u64 = 6 << 20;

/// Contents of a file below `/proc/PID`, as much of it as a program usually has.
///
/// # Errors
/// If the process is gone or may not be inspected.
pub fn read(pid: u32, what: &'static str) -> Result<Vec<u8>, ProcessError> {
    let most = match what {
        "cmdline" | "environ" => LARGEST_ARGUMENTS,
        _ => LARGEST,
    };
    let mut bytes = Vec::new();
    std::fs::File::open(format!("/proc/{pid}/{what}"))
        .and_then(|file| file.take(most).read_to_end(&mut bytes))
        .map_err(|error| ProcessError::new(pid, what, error))?;
    Ok(bytes)
}

/// Path of the executable as seen inside the process, without the marker of a deleted file.
///
/// # Errors
/// If the process is gone or may not be inspected.
pub fn executable(pid: u32) -> Result<PathBuf, ProcessError> {
    let link = std::fs::read_link(format!("/proc/{pid}/exe"))
        .map_err(|error| ProcessError::new(pid, "exe", error))?;
    let mut bytes = link.into_os_string().into_vec();
    if let Some(name) = bytes.strip_suffix(b" (deleted)") {
        bytes.truncate(name.len());
    }
    Ok(OsString::from_vec(bytes).into())
}

/// A path for this process to open the executable, even if it was renamed or deleted.
pub fn executable_link(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// The root folder of the process as a path of this process.
pub fn root(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// The working directory as seen inside the process.
///
/// # Errors
/// If the process is gone or may not be inspected.
pub fn working_directory(pid: u32) -> Result<PathBuf, ProcessError> {
    std::fs::read_link(format!("/proc/{pid}/cwd"))
        .map_err(|error| ProcessError::new(pid, "cwd", error))
}

/// Command line; empty for kernel threads, zombies and briefly during exec. A title that the
/// program has put in its place (setproctitle) is one word: the padding zero bytes are not
/// arguments.
///
/// # Errors
/// If the process is gone or may not be inspected.
pub fn command_line(pid: u32) -> Result<Vec<String>, ProcessError> {
    let bytes = read(pid, "cmdline")?;
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    Ok(words(bytes))
}

/// [`command_line`]; empty also if the process is gone.
#[must_use]
pub fn last_command_line(pid: u32) -> Vec<String> {
    command_line(pid).unwrap_or_default()
}

/// The mappings, as in `/proc/PID/maps`; empty if the process is gone.
#[must_use]
pub fn maps(pid: u32) -> Vec<u8> {
    read(pid, "maps").unwrap_or_default()
}

/// [`command_line`], or the kernel's name for a process without one (it is exiting); `None` if the
/// process is gone.
pub fn command_or_name(pid: u32) -> Option<Vec<String>> {
    match command_line(pid) {
        Ok(line) if !line.is_empty() => Some(line),
        _ => Some(vec![thread_name(pid, pid).ok()?]),
    }
}

fn words(bytes: &[u8]) -> Vec<String> {
    let word = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut words: Vec<String> = bytes.split(|byte| *byte == 0).map(word).collect();
    let padding = words.iter().skip(1);
    if padding.clone().count() > 1 && padding.clone().all(String::is_empty) {
        words.truncate(1);
    }
    words
}

/// The environment that the process was started with.
///
/// # Errors
/// If the process is gone or may not be inspected.
pub fn environment(pid: u32) -> Result<HashMap<OsString, OsString>, ProcessError> {
    Ok(parse_environment(&read(pid, "environ")?).collect())
}

/// Variables in the format of `/proc/PID/environ`; malformed entries are left out.
pub fn parse_environment(bytes: &[u8]) -> impl Iterator<Item = (OsString, OsString)> {
    bytes.split(|byte| *byte == 0).filter_map(|entry| {
        let equals = memchr::memchr(b'=', entry)?;
        if equals == 0 {
            return None;
        }
        let (name, value) = (&entry[..equals], &entry[equals + 1..]);
        Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())))
    })
}

/// Environment variables that contain the global rank in a distributed job, in order of precedence.
pub const RANK_VARIABLES: [&str; 4] = ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// The global rank of the process in a distributed job, if its environment contains one.
///
/// # Errors
/// If the process is gone or may not be inspected.
pub fn rank(pid: u32) -> Result<Option<u32>, ProcessError> {
    let environment = environment(pid)?;
    Ok(RANK_VARIABLES
        .iter()
        .find_map(|name| environment.get(&OsString::from(name))?.to_str()?.trim().parse().ok()))
}

/// The fields of `/proc/PID/status` that gctrace uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The kernel's name of the main thread, at most 15 bytes.
    pub name: String,
    /// Parent process; `None` if it has none in this pid namespace.
    pub parent: Option<u32>,
    /// Process id in each nested pid namespace, outermost (the one seen here) first.
    pub namespace_pids: Vec<u32>,
    /// Effective user id; `None` if it is not in the file.
    pub effective_user: Option<u32>,
    /// Real, effective, saved and file system user id; empty if they are not in the file.
    pub users: Vec<u32>,
    /// Signals that the main thread blocks, and that the process ignores or catches: bit N - 1 is signal N.
    pub expected_signals: u64,
}

impl ProcessStatus {
    /// The id in the innermost pid namespace, if that differs from the one seen here.
    pub fn inner_pid(&self) -> Option<u32> {
        match self.namespace_pids.as_slice() {
            [_, .., inner] => Some(*inner),
            _ => None,
        }
    }

    /// Whether the main thread blocks a signal, or the process ignores or catches it: its effect is not the default.
    pub fn expects(&self, signal: i32) -> bool {
        let Ok(signal) = u32::try_from(signal) else { return false };
        let Some(bit) = signal.checked_sub(1) else { return false };
        matches!(self.expected_signals.checked_shr(bit), Some(bits) if bits & 1 == 1)
    }

    fn parse(text: &str) -> Self {
        let mut status = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let mut numbers = value.split_whitespace().map_while(|word| word.parse().ok());
            match key {
                "Name" => status.name = value.trim().to_owned(),
                "PPid" => status.parent = numbers.next().filter(|parent| *parent > 0),
                "NSpid" => status.namespace_pids = numbers.collect(),
                "Uid" => {
                    status.users = numbers.collect();
                    status.effective_user = status.users.get(1).copied();
                }
                "SigBlk" | "SigIgn" | "SigCgt" => {
                    status.expected_signals |= u64::from_str_radix(value.trim(), 16).unwrap_or(0);
                }
                _ => {}
            }
        }
        status
    }
}

/// `/proc/PID/status`; also takes a thread id.
///
/// # Errors
/// If the process is gone or may not be inspected.
pub fn status(pid: u32) -> Result<ProcessStatus, ProcessError> {
    let text = read(pid, "status")?;
    Ok(ProcessStatus::parse(&String::from_utf8_lossy(&text)))
}

/// Thread ids of a process.
///
/// # Errors
/// If the process is gone or may not be inspected.
pub fn threads(pid: u32) -> Result<Vec<u32>, ProcessError> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|error| ProcessError::new(pid, "task", error))?;
    Ok(folder.filter_map(|entry| numeric_name(&entry.ok()?)).collect())
}

/// The kernel's name of a thread.
///
/// # Errors
/// If the process or thread is gone or may not be inspected.
pub fn thread_name(pid: u32, tid: u32) -> Result<String, ProcessError> {
    let bytes = std::fs::read(format!("/proc/{pid}/task/{tid}/comm"))
        .map_err(|error| ProcessError::new(tid, "comm", error))?;
    Ok(String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned())
}

/// A thread's times so far, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// It used a CPU.
    pub cpu_ns: u64,
    /// It could have run, and waited for a CPU.
    pub waited_ns: u64,
}

/// The kernel's count of a thread's times (`schedstat`); `None` if the thread is gone or its kernel does not
/// count.
pub fn thread_times(pid: u32, tid: u32) -> Option<ThreadTimes> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse().ok());
    let (cpu_ns, waited_ns) = (numbers.next()?, numbers.next()?);
    // All zeros of kernels that do not count.
    if cpu_ns > 0 { Some(ThreadTimes { cpu_ns, waited_ns }) } else { None }
}

/// Descendants, each parent before its children, without `pid` itself. A snapshot: processes forked
/// meanwhile may be missing.
///
/// # Errors
/// If `/proc` cannot be listed.
pub fn descendants(pid: u32) -> Result<Vec<u32>, ProcessError> {
    let folder = std::fs::read_dir("/proc").map_err(|error| ProcessError::new(pid, "", error))?;
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for other in folder.filter_map(|entry| numeric_name(&entry.ok()?)) {
        if let Ok(Some(parent)) = status(other).map(|status| status.parent) {
            children.entry(parent).or_default().push(other);
        }
    }
    let mut found = children.remove(&pid).unwrap_or_default();
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let more = children.remove(parent).unwrap_or_default();
        found.extend(more);
        next += 1;
    }
    Ok(found)
}

/// A process and the inode number of its folder in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedProcess {
    /// Process id, in the pid namespace that `/proc` shows.
    pub pid: u32,
    /// Inode number of the folder: it differs for another process with the same id. It changes for
    /// the same process only after the kernel dropped its cached entry (fs/proc/base.c,
    /// `proc_fill_cache`; Linux 5.7 to 6.18).
    pub inode: u64,
}

/// All processes in `/proc`, by one `readdir` and no other call.
///
/// # Errors
/// If `/proc` cannot be listed.
pub fn all() -> std::io::Result<Vec<ListedProcess>> {
    use std::os::unix::fs::DirEntryExt as _;
    let listed = |entry: std::fs::DirEntry| {
        let pid = numeric_name(&entry)?;
        let inode = entry.ino();
        Some(ListedProcess { pid, inode })
    };
    Ok(std::fs::read_dir("/proc")?.filter_map(|entry| listed(entry.ok()?)).collect())
}

/// The fields of `/proc/PID/stat` (proc_pid_stat(5)) that gctrace uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// The kernel's name of the main thread, at most 15 bytes.
    pub name: String,
    /// `R` running, `T` stopped, `Z` zombie, and others.
    pub state: char,
    /// Parent process; 0 if it has none in this pid namespace.
    pub parent: u32,
    /// Id of its process group, in this pid namespace.
    pub group: u32,
    /// Id of its session, in this pid namespace.
    pub session: u32,
    /// The kernel's flags of the main thread (`PF_*`, include/linux/sched.h).
    pub flags: u32,
    /// CPU time of its waited-for children, and of the children that these waited for, in ns, exact to 20 ms.
    pub waited_ns: u64,
    /// Start time in ns of `CLOCK_BOOTTIME`, exact to 10 ms.
    pub started_ns: u64,
}

impl ProcessStat {
    /// The name, field 2, may contain anything, so fields are counted after its last parenthesis.
    fn parse(text: &[u8]) -> Option<Self> {
        /// A tick is 1/100 s on x86-64 and arm64 (`USER_HZ`).
        const TICK_NS: u64 = 10_000_000;
        let (open, close) = (memchr::memchr(b'(', text)?, memchr::memrchr(b')', text)?);
        let fields = std::str::from_utf8(&text[close + 1..]).ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3);
        let number = |number| field(number)?.parse().ok();
        let ticks = |number| field(number)?.parse::<u64>().ok();
        Some(Self {
            name: String::from_utf8_lossy(text.get(open + 1..close)?).into_owned(),
            state: field(3)?.chars().next()?,
            parent: number(4)?,
            group: number(5)?,
            session: number(6)?,
            flags: number(9)?,
            waited_ns: ticks(16)?.checked_add(ticks(17)?)?.checked_mul(TICK_NS)?,
            started_ns: field(22)?.parse::<u64>().ok()?.checked_mul(TICK_NS)?,
        })
    }
}

/// `/proc/PID/stat`; every user may read it.
///
/// # Errors
/// If the process is gone.
pub fn stat(pid: u32) -> Result<ProcessStat, ProcessError> {
    let text = read(pid, "stat")?;
    ProcessStat::parse(&text).ok_or_else(|| {
        let source = std::io::ErrorKind::InvalidData.into();
        ProcessError::new(pid, "stat", source)
    })
}

fn numeric_name(entry: &std::fs::DirEntry) -> Option<u32> {
    entry.file_name().to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ProcessError, ProcessStatus, *};
    use std::io::{Read, Write};
    use std::process::Stdio;

    #[test]
    fn a_title_is_one_word() {
        assert_eq!(words(b"gunicorn: worker [app:app]\0\0\0\0"), ["gunicorn: worker [app:app]"]);
        assert_eq!(words(b"python\0-c\0\0x"), ["python", "-c", "", "x"]);
        assert_eq!(words(b"program\0"), ["program", ""]);
    }

    #[test]
    fn status_lines_are_read() {
        let status = ProcessStatus::parse(
            "Name:\tpython 3\nTgid:\t5\nPPid:\t4\nUid:\t1000\t0\nNSpid:\t5\t1\n\
             SigBlk:\t0000000000000800\nSigIgn:\t0000000000001000\nSigCgt:\t8000000000000000\n",
        );
        assert_eq!(status.name, "python 3");
        assert_eq!((status.parent, status.inner_pid()), (Some(4), Some(1)));
        assert_eq!((status.effective_user, &status.users[..]), (Some(0), &[1000, 0][..]));
        let expected = [-1, 0, 9, 11, 12, 13, 64, 65].map(|signal| status.expects(signal));
        assert_eq!(expected, [false, false, false, false, true, true, true, false]);
        assert_eq!(ProcessStatus::parse("NSpid:\t5\n").inner_pid(), None);
        assert_eq!(ProcessStatus::parse("garbage"), ProcessStatus::default());
    }

    #[test]
    fn the_fields_of_stat_are_read_whatever_the_name() {
        for name in ["cat", "a) S 1 (b", ") ) ) 3 4"] {
            let line =
                format!("7 ({name}) S 1 8 9 0 -1 4194560 1 0 0 0 1 2 3 0 20 0 1 0 12345 9 9\n");
            let stat = ProcessStat {
                name: name.to_owned(),
                state: 'S',
                parent: 1,
                group: 8,
                session: 9,
                flags: 4_194_560,
                waited_ns: 30_000_000,
                started_ns: 123_450_000_000,
            };
            assert_eq!(ProcessStat::parse(line.as_bytes()), Some(stat), "{name}");
        }
        assert_eq!(ProcessStat::parse(b"7 (cat) S 1"), None);
        assert_eq!(ProcessStat::parse(b"7 )cat( S 1"), None);
        assert_eq!(ProcessStat::parse(b""), None);
    }

    #[test]
    fn malformed_variables_are_ignored() {
        let parsed: Vec<_> =
            parse_environment(b"A=1\0\0=x\0nonsense\0B=\0C=a=b\0D=\xff\0cut").collect();
        let names: Vec<_> = parsed.iter().map(|(name, _)| name.to_string_lossy()).collect();
        assert_eq!(names, ["A", "B", "C", "D"]);
        assert_eq!(parsed[2].1, "a=b");
    }

    #[test]
    fn the_list_has_this_process_under_one_number() {
        let this_process =
            |list: Vec<ListedProcess>| list.into_iter().find(|one| one.pid == std::process::id());
        let first = this_process(all().unwrap()).unwrap();
        assert_eq!(this_process(all().unwrap()).unwrap(), first);
        assert!(stat(first.pid).unwrap().started_ns > 0);
    }

    #[test]
    fn a_child_has_its_own_facts() {
        let mut child = std::process::Command::new("cat")
            .arg("-")
            .env("RANK", "3")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // A result proves that the exec is over; during it most of /proc is empty.
        child.stdin.as_ref().unwrap().write_all(b"?").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let pid = child.id();
        assert_eq!(command_line(pid).unwrap(), ["cat", "-"]);
        assert_eq!(rank(pid).unwrap(), Some(3));
        assert_eq!(status(pid).unwrap().parent, Some(std::process::id()));
        assert_eq!(threads(pid).unwrap(), [pid]);
        assert_eq!(thread_name(pid, pid).unwrap(), "cat");
        assert!(descendants(std::process::id()).unwrap().contains(&pid));
        assert!(executable(pid).unwrap().is_absolute());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(command_line(pid), Err(ProcessError::Gone { .. })));
        assert!(matches!(thread_name(pid, pid), Err(ProcessError::Gone { .. })));
    }
    /// The kernel shows whatever a program says its arguments are: here 64 MiB.
    #[test]
    fn of_a_long_command_line_the_start_is_read() {
        const SCRIPT: &str = "
import ctypes, struct, sys
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_ulong
size = 64 << 20
kept = ctypes.create_string_buffer(b'x' * size)
start = ctypes.addressof(kept)
stat = open('/proc/self/stat').read().rsplit(')', 1)[1].split()
def fields(*numbers): return [int(stat[number - 3]) for number in numbers]
# struct prctl_mm_map: proc(5) has what stays.
memory = struct.pack('12Q2I', *fields(26, 27, 45, 46, 47), libc.sbrk(0), *fields(28),
                     start, start + size + 1, *fields(50, 51), 0, 0, 2**32 - 1)
libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_ulong]
done = libc.prctl(35, 14, memory, len(memory), 0)  # PR_SET_MM, PR_SET_MM_MAP
print('n' if done else 'y', flush=True)
sys.stdin.read()
";
        let mut child = std::process::Command::new("python3")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answer = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        match answer {
            [b'y'] => {
                let bytes = read(child.id(), "cmdline").unwrap();
                assert_eq!(bytes.len() as u64, LARGEST_ARGUMENTS);
            }
            _ => eprintln!(
                "skipped of_a_long_command_line_the_start_is_read: this kernel has no PR_SET_MM_MAP"
            ),
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
