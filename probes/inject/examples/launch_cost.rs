//! The cost that in-process recording of GPU work adds to a launch: pairs of runs on the simulated GPU, one with the
//! library and one without.
//!
//! `cargo build --release -p gctrace-simgpu -p gctrace-inject && cargo run --release -p gctrace-inject --example launch_cost`
//!
//! The difference includes the simulator's own creation of records. The launching thread pays for nothing else: the
//! library does its work when buffers are returned, on its own threads and the simulator's.

#![expect(clippy::expect_used, reason = "a measurement that fails is no measurement")]

use gctrace_ring::{
    GpuMessage, InjectOptions, OPTIONS_VARIABLE, RENDEZVOUS_VARIABLE, RingConsumer, RingListener,
};
use libloading::Library;
use nix::time::ClockId;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LAUNCHES: u32 = 200_000;
const PAIRS: usize = 10;
/// Passes the libraries' folder to the launching program.
const FOLDER: &str = "LAUNCH_COST_FOLDER";

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3(u32, u32, u32);

type Launch = extern "C" fn(u64, Dim3, Dim3, u64, u64, u64) -> i32;

fn main() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return launch(Path::new(&folder));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let simulator = gctrace_simgpu::find_library().expect("built");
    gctrace_simgpu::lay_out(&simulator, folder.path()).expect("written");
    let mut differences = Vec::new();
    for pair in 0..PAIRS {
        let with_first = pair % 2 == 0;
        let first = run(folder.path(), with_first);
        let second = run(folder.path(), !with_first);
        let (with, without) = if with_first { (first, second) } else { (second, first) };
        println!(
            "launch {:.0} ns with, {:.0} ns without; cpu of its thread {:.0} and {:.0} ns, of the process {:.0} and {:.0} ns; {} records, {} lost",
            with.wall_ns,
            without.wall_ns,
            with.thread_ns,
            without.thread_ns,
            with.cpu_ns,
            without.cpu_ns,
            with.records,
            with.lost
        );
        differences.push([
            with.wall_ns - without.wall_ns,
            with.thread_ns - without.thread_ns,
            with.cpu_ns - without.cpu_ns,
        ]);
    }
    let [wall, thread, process] = std::array::from_fn(|which| {
        let mut values: Vec<f64> = differences.iter().map(|pair| pair[which]).collect();
        values.sort_by(f64::total_cmp);
        values.get(PAIRS / 2).copied().unwrap_or_default()
    });
    println!(
        "median difference per launch: {wall:.0} ns wall; cpu of its thread {thread:.0} ns, of the process {process:.0} ns"
    );
}

struct Run {
    wall_ns: f64,
    thread_ns: f64,
    cpu_ns: f64,
    records: u64,
    lost: u64,
}

fn run(folder: &Path, with: bool) -> Run {
    let socket = folder.join("rendezvous");
    let _ = std::fs::remove_file(&socket);
    let listener = RingListener::bind(&socket).expect("bound");
    let mut command = Command::new(std::env::current_exe().expect("a file"));
    command.env(FOLDER, folder).stdout(Stdio::piped());
    if with {
        command
            .env("CUDA_INJECTION64_PATH", library())
            .env(RENDEZVOUS_VARIABLE, &socket)
            .env(OPTIONS_VARIABLE, InjectOptions::default().to_string());
    }
    let mut child = command.spawn().expect("it starts");
    let mut ring: Option<RingConsumer> = None;
    let mut records = 0;
    while child.try_wait().expect("waited for").is_none() {
        if let Some(connection) = listener.accept().expect("no error")
            && let Some(offered) = connection.receive_within(Duration::from_secs(10))
        {
            let records = offered.hello.role.records(&InjectOptions::default());
            ring = RingConsumer::open(offered.ring.as_fd(), records).ok();
        }
        if let Some(ring) = &mut ring {
            records += ring.read(false, |_: GpuMessage| ()).messages;
        }
        // As often as gctrace polls.
        std::thread::sleep(Duration::from_millis(40));
    }
    let output = child.wait_with_output().expect("read").stdout;
    let text = String::from_utf8(output).expect("text");
    let mut numbers = text.split_whitespace().map(|word| word.parse().expect("a number"));
    Run {
        wall_ns: numbers.next().expect("wall"),
        thread_ns: numbers.next().expect("cpu of the thread"),
        cpu_ns: numbers.next().expect("cpu"),
        records,
        lost: ring.map_or(0, |ring| ring.lost().total()),
    }
}

fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a file");
    let folders = program.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join("libgctrace_inject.so"));
    files.find(|file| file.exists()).expect("built")
}

/// The measured program: launches from one thread, and synchronizes now and then.
fn launch(folder: &Path) {
    // SAFETY: the simulator's libraries run nothing when they are loaded; the types match the C functions.
    let (driver, runtime) = unsafe {
        let load = |name| Library::new(folder.join(name)).expect("laid out");
        (load("libcuda.so.1"), load("libcudart.so.12"))
    };
    // SAFETY: as above.
    let (register, set_device, launch, wait) = unsafe {
        (
            driver
                .get::<extern "C" fn(*const i8, u64, *mut u64) -> i32>(b"simgpuKernel\0")
                .expect("there"),
            runtime.get::<extern "C" fn(i32) -> i32>(b"cudaSetDevice\0").expect("there"),
            runtime.get::<Launch>(b"cudaLaunchKernel\0").expect("there"),
            runtime.get::<extern "C" fn() -> i32>(b"cudaDeviceSynchronize\0").expect("there"),
        )
    };
    let mut kernel = 0;
    set_device(0);
    register(c"kernel".as_ptr(), 1_000, &raw mut kernel);
    let some = |count| {
        for number in 0..count {
            launch(kernel, Dim3(1, 1, 1), Dim3(32, 1, 1), 0, 0, 0);
            if number % 512 == 511 {
                wait();
            }
        }
    };
    some(LAUNCHES / 10);
    let (begun, cpu) = (Instant::now(), cpu_time());
    some(LAUNCHES);
    wait();
    let wall = begun.elapsed();
    // All records are also delivered: at least up to the flush before the last.
    std::thread::sleep(Duration::from_millis(600));
    let (thread, process) = cpu_time();
    let (thread, process) = (thread.saturating_sub(cpu.0), process.saturating_sub(cpu.1));
    let per_launch = |time: Duration| time.as_nanos() as f64 / f64::from(LAUNCHES);
    let (wall, thread) = (per_launch(wall), per_launch(thread));
    println!("{wall} {thread} {}", per_launch(process));
}

/// CPU time of the launching thread, and of the whole process.
fn cpu_time() -> (Duration, Duration) {
    let time = |clock| {
        let time = nix::time::clock_gettime(clock);
        time.map(Duration::from).unwrap_or_default()
    };
    (time(ClockId::CLOCK_THREAD_CPUTIME_ID), time(ClockId::CLOCK_PROCESS_CPUTIME_ID))
}
