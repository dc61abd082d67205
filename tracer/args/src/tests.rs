//! Configurations of command lines, and messages of rejected ones.

use super::*;
use clap::ValueEnum as _;
use gctrace_event::Counter;
use std::path::Path;
use std::time::Duration;

fn parsed(line: &str) -> Result<Invocation, clap::Error> {
    try_parse(line.split_whitespace().map(OsString::from))
}

fn recording(line: &str) -> RecordConfig {
    match parsed(line) {
        Ok(Invocation::Record(config)) => *config,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> String {
    let error = parsed(line).expect_err(line);
    assert_eq!(error.exit_code(), 2, "{line}");
    error.render().to_string()
}

fn words(line: &str) -> RecordTarget {
    RecordTarget::Command(line.split_whitespace().map(OsString::from).collect())
}

#[test]
fn record_may_be_left_out() {
    let short = recording("gctrace -- python train.py -p 3 --no-follow");
    assert_eq!(short, recording("gctrace record -- python train.py -p 3 --no-follow"));
    assert_eq!(short.target, words("python train.py -p 3 --no-follow"));
    assert_eq!(short.output.as_deref(), Some(Path::new("trace.json")));
    assert_eq!(short.sources.ring_size, 16 << 20);
    assert_eq!(short.min_pause, Duration::ZERO);
    assert_eq!(short.verbosity, Verbosity::Normal);
    assert!(short.sources.follow);
    assert!(!short.sources.as_root);
}

#[test]
fn options_of_a_recording() {
    let all = recording(
        "gctrace -o /tmp/t.json.gz --no-follow --min-pause 50us --as-root --ring-size 64K -vv -- x",
    );
    assert_eq!(all.output.as_deref(), Some(Path::new("/tmp/t.json.gz")));
    assert_eq!(all.min_pause, Duration::from_micros(50));
    assert_eq!(all.sources.ring_size, 65536);
    assert_eq!(all.verbosity, Verbosity::Debug);
    assert!(all.sources.as_root && !all.sources.follow);
    assert_eq!(all.sources.nvml_rate(), Some(5.0));
    assert_eq!(recording("gctrace --nvml-hz 0 -- x").sources.nvml_rate(), None);
    assert_eq!(recording("gctrace --nvml-hz 0.1 -- x").sources.nvml_rate(), Some(0.1));
    assert_eq!(recording("gctrace -q -- x").verbosity, Verbosity::Quiet);
}

/// Steps that are printed are measured, unless others are asked for.
#[test]
fn modes() {
    let usual = recording("gctrace -- x");
    assert_eq!((usual.sources.mode, usual.sources.gpu_yield), (RecordMode::Auto, false));
    for mode in RecordMode::value_variants() {
        let asked = recording(&format!("gctrace --mode {} -- x", mode.into_str()));
        assert_eq!(asked.sources.mode, *mode);
    }
    assert!(recording("gctrace --gpu-yield -- x").sources.gpu_yield);
    assert_eq!(usual.sources.step_function, None);
    for name in ["train_step", "Trainer.step", "a/train.py:step", "<string>:main.<locals>.f"] {
        let asked = recording(&format!("gctrace --step-function {name} -- x"));
        assert_eq!(asked.sources.step_function.as_deref(), Some(name));
    }
    for name in ["", "train.py:", "train.py", "train_step()", "a:b/c"] {
        let line = ["gctrace", "--step-function", name, "--", "x"].map(OsString::from);
        assert_eq!(try_parse(line).is_ok(), name == "train.py", "{name}");
    }
}

#[test]
fn counters_by_name() {
    let chosen = |text: &str| recording(&format!("gctrace {text} -- x")).sources.counters;
    assert_eq!(chosen(""), CounterChoice::Default);
    assert!(!chosen("").counters().contains(&Counter::CpuClock));
    assert_eq!(chosen("--counters default"), CounterChoice::Default);
    assert!(chosen("--counters none").counters().is_empty());
    assert_eq!(
        chosen("--counters LLC-load-misses,cpu-clock,cpu-clock").counters(),
        [Counter::LlcLoadMisses, Counter::CpuClock]
    );
}

#[test]
fn a_running_process() {
    for (text, duration) in [
        ("", None),
        ("-d 10", Some(Duration::from_secs(10))),
        ("-d 2.5", Some(Duration::from_millis(2500))),
        ("-d 30s", Some(Duration::from_secs(30))),
        ("-d 2m", Some(Duration::from_secs(120))),
        ("--duration 500ms", Some(Duration::from_millis(500))),
    ] {
        for command in ["gctrace record", "gctrace"] {
            let config = recording(&format!("{command} -p 4242 {text}"));
            assert_eq!((config.target, config.duration), (RecordTarget::Process(4242), duration));
        }
    }
}

#[test]
fn live_views() {
    let top = |text: &str| match parsed(&format!("gctrace top {text}")) {
        Ok(Invocation::Top(config)) => config,
        other => panic!("{text}: {other:?}"),
    };
    let usual = top("");
    let recorded = |top: &TopArgs| top.recording(Verbosity::Normal);
    assert_eq!(recorded(&usual).target, RecordTarget::Everything);
    assert_eq!((recorded(&usual).output, &usual.output), (None, &None));
    assert_eq!(recorded(&usual).min_pause, Duration::ZERO);
    assert_eq!((usual.printed(), usual.interval), (None, Duration::from_secs(1)));
    assert_eq!((usual.iterations, usual.listen), (None, None));
    assert_eq!(usual.long_pause, Duration::from_millis(10));

    let all = top(
        "-d 0.5 -n 3 --format json --long-pause 1ms --record t.json --output o --listen [::1]:99 \
         --mode inject --cuda off --no-follow -q -- python -d 3",
    );
    assert_eq!(recorded(&all).target, words("python -d 3"));
    assert_eq!(recorded(&all).output.as_deref(), Some(Path::new("t.json")));
    assert_eq!(all.output.as_deref(), Some(Path::new("o")));
    assert_eq!((all.printed(), all.iterations), (Some(OutputFormat::Json), Some(3)));
    assert_eq!(all.interval, Duration::from_millis(500));
    assert_eq!(all.long_pause, Duration::from_millis(1));
    assert_eq!(recorded(&all).sources.mode, RecordMode::Inject);
    let attached = RecordTarget::Process(7);
    assert_eq!(recorded(&top("-p 7 --plain")).target, attached);
    assert_eq!(top("--plain").printed(), Some(OutputFormat::Text));
    assert_eq!(top("--format text").printed(), Some(OutputFormat::Text));
    for (text, address) in [
        ("9464", "127.0.0.1:9464"),
        (":9464", "127.0.0.1:9464"),
        ("localhost:0", "127.0.0.1:0"),
        ("0.0.0.0:80", "0.0.0.0:80"),
    ] {
        let listen = top(&format!("--listen {text}")).listen;
        assert_eq!(listen.map(|a| a.to_string()).as_deref(), Some(address));
    }
}

#[test]
fn the_other_subcommands() {
    let read = |line: &str| match parsed(line) {
        Ok(Invocation::Analyze(args)) => {
            assert_eq!((args.report.file(), args.full, args.report.force), (None, false, false));
            (args.traces.len(), args.report.format())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(read("gctrace analyze a b"), (2, ReportFormat::Text));
    assert_eq!(read("gctrace analyze --format json a"), (1, ReportFormat::Json));
    assert_eq!(read("gctrace analyze --json -o - a"), (1, ReportFormat::Json));
    let written = |line: &str| match parsed(line) {
        Ok(Invocation::Analyze(args)) => {
            let report = args.report;
            (report.file().map(Path::to_owned), report.format(), report.force)
        }
        other => panic!("{other:?}"),
    };
    for (line, expected) in [
        ("-o r.json", (Some("r.json".into()), ReportFormat::Json, false)),
        ("-o r.txt -f", (Some("r.txt".into()), ReportFormat::Text, true)),
        ("-o r.md", (Some("r.md".into()), ReportFormat::Markdown, false)),
        ("-o r.html", (Some("r.html".into()), ReportFormat::Page, false)),
        ("-o r.json --format text", (Some("r.json".into()), ReportFormat::Text, false)),
    ] {
        assert_eq!(written(&format!("gctrace analyze a {line}")), expected);
    }
    let named = vec![InterpreterArg::File("python3".into()), InterpreterArg::Process(12)];
    assert_eq!(
        parsed("gctrace doctor --python python3 12").ok(),
        Some(Invocation::Doctor(DoctorArgs { python: named, config: false }))
    );
    assert_eq!(parsed("gctrace man").ok(), Some(Invocation::Man { directory: None }));
    assert_eq!(
        parsed("gctrace completions fish").ok(),
        Some(Invocation::Completions { shell: clap_complete::Shell::Fish })
    );
}

#[test]
fn exports() {
    let default = ExportArgs {
        traces: vec!["a".into()],
        format: Some(ExportFormat::Svg),
        ..ExportArgs::default()
    };
    assert_eq!(parsed("gctrace export a").ok(), Some(Invocation::Export(default)));
    let all = ExportArgs {
        traces: vec!["a".into(), "b".into()],
        format: Some(ExportFormat::Speedscope),
        output: Some("o.json".into()),
        force: true,
        by: StackWeight::Count,
        generation: Some(2),
        ..ExportArgs::default()
    };
    let line = "gctrace export a b -o o.json -f --by count --generation 2";
    assert_eq!(parsed(line).ok(), Some(Invocation::Export(all)));
    let formats = [
        ("-o a.svg", ExportFormat::Svg),
        ("-o name", ExportFormat::Svg),
        ("-o -", ExportFormat::Svg),
        ("-o a.txt", ExportFormat::Collapsed),
        ("-o a.collapsed", ExportFormat::Collapsed),
        ("-o a.json --format svg", ExportFormat::Svg),
        ("--format speedscope", ExportFormat::Speedscope),
        ("-o a.dot", ExportFormat::Dot),
        ("-o a.pftrace", ExportFormat::Perfetto),
    ];
    for (options, format) in formats {
        let Ok(Invocation::Export(config)) = parsed(&format!("gctrace export a {options}")) else {
            panic!("{options}");
        };
        assert_eq!(config.format(), format, "{options}");
        assert_eq!(config.output.is_none(), !options.contains("-o ") || options == "-o -");
    }
}

#[test]
fn heaps() {
    let of = |line: &str| match parsed(line) {
        Ok(Invocation::Heap(HeapArgs { question: Some(question), .. })) => question,
        other => panic!("{line}: {other:?}"),
    };
    let target = |word: &str| match of(&format!("gctrace heap why {word} a.gcheap")) {
        HeapQuestion::Why { target, .. } => target,
        other => panic!("{word}: {other:?}"),
    };
    assert_eq!(target("0x7f3a"), HeapTarget::Address(0x7f3a));
    assert_eq!(target("32570"), HeapTarget::Address(0x7f3a));
    assert_eq!(target("data.Batch"), HeapTarget::Type("data.Batch".to_owned()));
    let config = of("gctrace heap diff -n 3 a b c --json");
    assert_eq!((config.files().len(), config.rows()), (3, 3));
    assert_eq!(config.format(), OutputFormat::Json);
    let Ok(Invocation::Export(config)) = parsed("gctrace export a --cycle list -o a.svg") else {
        panic!("not an export");
    };
    assert_eq!(config.cycle, Some(HeapTarget::Type("list".to_owned())));
}

#[test]
fn arguments_that_are_not_text_reach_the_command() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(vec![b'a', 0xff, b'b']);
    let line = ["gctrace", "--", "cat"].map(OsString::from);
    let action = try_parse(line.into_iter().chain([odd.clone()])).expect("a command line");
    let Invocation::Record(config) = action else {
        panic!("not a recording");
    };
    assert_eq!(config.target, RecordTarget::Command(vec!["cat".into(), odd]));
}

#[test]
fn refusals() {
    let lines = [
        "gctrace",
        "gctrace record",
        "gctrace --counters cycels -- python",
        "gctrace -p 12 -- python",
        "gctrace -d 10",
        "gctrace python train.py --epochs 3",
        "gctrace -p 0",
        "gctrace -p 12 -d 0",
        "gctrace -p 12 -d ten",
        "gctrace --min-pause 50 -- x",
        "gctrace --ring-size 3MiB -- x",
        "gctrace --ring-size 1KiB -- x",
        "gctrace --ring-size 99999999999GiB -- x",
        "gctrace --mode root -- x",
        "gctrace --nvml-hz 0.05 -- x",
        "gctrace --nvml-hz nan -- x",
        "gctrace -q -v -- x",
        "gctrace analyze",
        "gctrace analyze --format xml t.json",
        "gctrace export",
        "gctrace export --generation 3 t.json",
        "gctrace --nofollow -- x",
        "gctrace -q record -o t.json -- x",
        "gctrace -v analyze t.json",
        "gctrace advice t.json",
        "gctrace top -p 12 -- x",
        "gctrace top -p 12 --output o",
        "gctrace top -d 0",
        "gctrace top -d 61",
        "gctrace top -d 0.25",
        "gctrace top -n 0",
        "gctrace top --plain --format json",
        "gctrace top --listen elsewhere",
        "gctrace -o x-%d.json -- x",
        "gctrace top --record - -p 12",
        "gctrace top --record o --output o -- x",
        "gctrace demo -o -",
        "gctrace export t.json -o x.pdf",
        "gctrace export t.json -f",
        "gctrace heap",
        "gctrace heap diff a.gcheap",
        "gctrace heap why 12ab a.gcheap",
        "gctrace export a.gcheap --path list --cycle dict -o a.svg",
    ];
    let shown: Vec<String> =
        lines.iter().map(|line| format!("$ {line}\n{}", refusal(line))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn help() {
    let mut command = command().term_width(100);
    command.build();
    insta::assert_snapshot!("help", command.render_long_help());
    for subcommand in command.get_subcommands_mut() {
        let name = subcommand.get_name().to_owned();
        if name != "help" && name != "__guardian" {
            insta::assert_snapshot!(format!("help_{name}"), subcommand.render_help());
        }
    }
}

/// Help with more options than this is not read.
const MOST_VISIBLE: usize = 60;

#[test]
fn visible_options_are_few() {
    fn add(command: &clap::Command, names: &mut std::collections::BTreeSet<String>) {
        let visible = command.get_arguments().filter(|option| !option.is_hide_set());
        names.extend(visible.filter_map(clap::Arg::get_long).map(str::to_owned));
        command.get_subcommands().for_each(|sub| add(sub, names));
    }
    let mut command = command();
    command.build();
    let mut names = std::collections::BTreeSet::new();
    add(&command, &mut names);
    println!("{} visible options", names.len());
    assert!(names.len() <= MOST_VISIBLE, "{}: {names:?}", names.len());
}

#[test]
fn everything_has_a_help_line() {
    fn check(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} of {}", argument, command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
    let mut command = command();
    command.build();
    check(&command);
}

#[test]
fn the_description_is_consistent() {
    command().debug_assert();
}

/// Options that `gctrace.toml` may have, by subcommand; all others must be typed. Who adds one here has decided that it
/// writes no file, opens nothing to others, names no process or program, and changes none.
const CONFIGURED: [(&str, &[&str]); 11] = [
    (
        "record",
        &[
            "alloc",
            "alloc-budget",
            "counters",
            "cuda",
            "duration",
            "garbage",
            "garbage-budget",
            "gpu-yield",
            "layers",
            "min-pause",
            "mode",
            "no-follow",
            "nvml-hz",
            "ring-size",
            "sample",
            "stack-depth",
            "step-function",
        ],
    ),
    (
        "top",
        &[
            "alloc",
            "alloc-budget",
            "counters",
            "cuda",
            "format",
            "garbage",
            "garbage-budget",
            "gpu-yield",
            "interval",
            "layers",
            "long-pause",
            "mode",
            "no-follow",
            "nvml-hz",
            "ring-size",
            "sample",
            "stack-depth",
            "step-function",
        ],
    ),
    ("analyze", &["fail-if", "format", "full", "jobs"]),
    ("report", &["jobs"]),
    ("summarize", &["jobs"]),
    ("apply", &["format", "step-function"]),
    ("auto", &["goal", "step-function", "wait", "worth"]),
    ("compare", &["fail-if", "format"]),
    ("dump", &["format"]),
    ("tune", &["budget", "format", "measure", "precision", "step-function"]),
    ("export", &["by"]),
];

#[test]
#[cfg(target_os = "linux")]
fn each_option_states_whether_it_may_be_configured() {
    use std::any::TypeId;
    // What these name, others could not have chosen.
    let named = [
        TypeId::of::<PathBuf>(),
        TypeId::of::<OsString>(),
        TypeId::of::<std::net::SocketAddr>(),
        TypeId::of::<gctrace_settings::GcSetting>(),
    ];
    let command = described();
    let mut found = Vec::new();
    for sub in command.get_subcommands() {
        let of_group = |id: &clap::Id| {
            let mut groups = sub.get_groups().filter(|group| group.get_id() == CONFIGURABLE);
            groups.any(|group| group.get_args().any(|of| of == id))
        };
        let options = sub.get_arguments().filter(|option| of_group(option.get_id()));
        let mut names: Vec<&str> = options
            .map(|option| {
                let name = option.get_long().expect("a long name");
                let kind = option.get_value_parser().type_id();
                assert!(named.iter().all(|named| kind != *named), "{name}");
                name
            })
            .collect();
        names.sort_unstable();
        if !names.is_empty() {
            found.push((sub.get_name(), names));
        }
    }
    let mut expected = CONFIGURED.map(|(name, options)| (name, options.to_vec()));
    let by_name = |(name, _): &(&str, _)| (*name).to_owned();
    expected.sort_by_key(by_name);
    found.sort_by_key(by_name);
    assert_eq!(found, expected);
}
