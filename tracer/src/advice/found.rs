//! The findings of `gctrace auto`, as its file has them: `auto.json`.

use crate::files::open_regular;
use gctrace_settings::{AppliedProcess, AutoReport, GcChange, GcSetting};
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::path::Path;

/// Name and version of the schema.
const SCHEMA: &str = "gctrace.auto/1";
/// The largest file read, in bytes: a thousand processes with all their decisions.
const LARGEST: u64 = 64 << 20;

/// Findings for a command.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FoundSettings {
    /// `gctrace.auto/1`.
    schema: String,
    /// Version of gctrace.
    gctrace: String,
    /// The command with its arguments.
    pub(crate) command: Vec<String>,
    /// Its exit code; `null`: it still ran.
    exit_code: Option<u8>,
    /// The setting with the gain proven last, in the process with the most CPU time, and the change in forks; `null`:
    /// neither.
    pub(crate) setting: Option<GcSetting>,
    /// Forked processes that froze their inherited objects; `null`: there was none.
    #[serde(default)]
    pub(crate) frozen_forks: Option<FrozenForks>,
    /// Time of collections before the first step; `null`: too little for a setting in the next run.
    #[serde(default)]
    pub(crate) loading: Option<LoadingCollections>,
    /// The processes that made steps.
    pub(crate) processes: Vec<FoundProcess>,
}

/// The first threshold while data is loaded: a collection of so many containers takes some milliseconds, and a
/// full one comes each 12 million.
const LOADING: u32 = 100_000;

/// Collections before the first step, of the process with the longest; measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LoadingCollections {
    /// Time until the first step, in ns.
    pub(crate) duration_ns: u64,
    /// Time of collections in it, in ns.
    pub(crate) pause_ns: u64,
    /// Cyclic garbage that they freed, in objects.
    pub(crate) garbage: u64,
}

impl LoadingCollections {
    /// `None`: they took no more than the share `worth`, or a tenth of a second, or they freed more objects than
    /// [`LOADING`]: these would wait.
    fn of(processes: &[AppliedProcess], worth: f64) -> Option<Self> {
        const LEAST_NS: u64 = 100_000_000;
        let loading = |process: &AppliedProcess| {
            if process.steps == 0 {
                return None;
            }
            let startup = process.startup.as_ref()?;
            Some(Self {
                duration_ns: startup.duration_ns,
                pause_ns: startup.all_pause_ns(),
                garbage: startup.all_garbage(),
            })
        };
        let longest = processes.iter().filter_map(loading).max_by_key(|of| of.pause_ns)?;
        let share = longest.pause_ns as f64 / longest.duration_ns.max(1) as f64;
        let is_much = longest.pause_ns >= LEAST_NS && share > worth;
        if is_much && longest.garbage <= LOADING.into() { Some(longest) } else { None }
    }
}

/// Forked processes with collections that did not traverse inherited objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FrozenForks {
    /// Number of processes.
    pub(crate) processes: u64,
    /// The most objects that one of them inherited.
    pub(crate) most_objects: u64,
}

impl FrozenForks {
    fn of(processes: &[AppliedProcess]) -> Option<Self> {
        let inherited = |process: &AppliedProcess| process.auto.as_ref()?.inherited_frozen;
        let inherited: Vec<u64> = processes.iter().filter_map(inherited).collect();
        let most_objects = inherited.iter().copied().max()?;
        Some(Self { processes: inherited.len() as u64, most_objects })
    }
}

/// Findings for a process.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FoundProcess {
    /// Its id, in its own pid namespace.
    pub(crate) pid: u32,
    /// `RANK` in its environment.
    pub(crate) rank: Option<u32>,
    /// Version of CPython.
    pub(crate) python: String,
    /// The source of step marks.
    pub(crate) marker: Option<String>,
    /// Number of steps.
    pub(crate) steps: u64,
    /// Why gctrace's code in the process ended early; `null`: it did not.
    pub(crate) failure: Option<String>,
    /// The search.
    #[serde(flatten)]
    pub(crate) search: AutoReport,
}

impl FoundProcess {
    /// `None`: it made no steps, or had no search.
    fn of(process: &AppliedProcess) -> Option<Self> {
        let search = process.auto.clone().filter(|auto| process.steps > 0 || auto.by_time)?;
        Some(Self {
            pid: process.pid,
            rank: process.rank,
            python: process.python.clone(),
            marker: process.marker.clone(),
            steps: process.steps,
            failure: process.failure.clone(),
            search,
        })
    }
}

impl FoundSettings {
    pub(crate) fn new(
        command: Vec<String>,
        exit_code: Option<u8>,
        processes: &[AppliedProcess],
        worth: f64,
    ) -> Self {
        let frozen_forks = FrozenForks::of(processes);
        let loading = LoadingCollections::of(processes, worth);
        let mut processes: Vec<FoundProcess> =
            processes.iter().filter_map(FoundProcess::of).collect();
        processes.sort_by_key(|process| std::cmp::Reverse(process.search.cpu_ns));
        let mut parts = processes.iter().flat_map(|process| process.search.parts.iter().rev());
        let mut setting = parts.find(|part| part.is_proven).map(|part| part.setting.clone());
        if loading.is_some() {
            setting = Some(setting.unwrap_or_default().and(GcChange::Loading(LOADING)));
        }
        if frozen_forks.is_some() {
            setting = Some(setting.unwrap_or_default().and(GcChange::FreezeForks));
        }
        Self {
            schema: SCHEMA.to_owned(),
            gctrace: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            exit_code,
            setting,
            frozen_forks,
            loading,
            processes,
        }
    }

    /// Whether the gain of a setting is proven.
    pub(crate) fn is_proven(&self) -> bool {
        let mut parts = self.processes.iter().flat_map(|process| &process.search.parts);
        parts.any(|part| part.is_proven)
    }

    /// Reads one; `None`: the file is none.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        let mut file = open_regular(path).ok()?;
        if !file.metadata().is_ok_and(|file| file.len() <= LARGEST) {
            return None;
        }
        let mut head = [0; 64];
        let length = file.read(&mut head).ok()?;
        let head = head.get(..length)?;
        if !String::from_utf8_lossy(head).contains(SCHEMA) {
            return None;
        }
        bytes.extend_from_slice(head);
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        let found: Self = serde_json::from_slice(&bytes).ok()?;
        if found.schema == SCHEMA { Some(found) } else { None }
    }

    /// The results as Python: the setting, and the change in forks; `None`: none was proven, and none frozen.
    pub(super) fn code(&self) -> Option<String> {
        let mut lines = vec!["import gc".to_owned()];
        let setting = self.setting.as_ref()?;
        let loading = setting.items().iter().find_map(|item| match item.change {
            GcChange::Loading(first) => Some(first),
            _ => None,
        });
        let is_held =
            setting.items().iter().any(|item| matches!(item.change, GcChange::Threshold(_)));
        if let Some(first) = loading {
            lines.extend([
                "own = gc.get_threshold()".to_owned(),
                format!("gc.set_threshold({first}, *own[1:])"),
                "# before the first step:".to_owned(),
            ]);
            if !is_held {
                lines.push("gc.set_threshold(*own)".to_owned());
            }
        }
        for item in setting.items() {
            lines.extend(match &item.change {
                GcChange::Threshold(values) => {
                    let values: Vec<String> = values.iter().map(u32::to_string).collect();
                    vec![format!("gc.set_threshold({})", values.join(", "))]
                }
                GcChange::Loading(_) => Vec::new(),
                GcChange::Freeze => {
                    vec![
                        "# after the first steps:".to_owned(),
                        "gc.collect()".to_owned(),
                        "gc.freeze()".to_owned(),
                    ]
                }
                GcChange::FreezeForks => {
                    vec![
                        "import os".to_owned(),
                        "# in forked processes, of the inherited objects:".to_owned(),
                        "os.register_at_fork(after_in_child=gc.freeze)".to_owned(),
                    ]
                }
                GcChange::Disable => vec!["gc.disable()".to_owned()],
                GcChange::Plan(_) => return None,
            });
        }
        Some(lines.join("\n") + "\n")
    }
}

/// The text of a file without a setting.
pub(super) fn nothing(found: &FoundSettings) -> &'static str {
    match found.setting {
        Some(_) => "it has one setting: advice 1",
        None => "no gain was proven in that run",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_settings::{AutoDifferences, AutoPart};

    fn part(setting: &str, is_proven: bool) -> AutoPart {
        AutoPart {
            setting: setting.parse().expect("a setting"),
            step: 100,
            held_steps: 10,
            held_cpu_ns: 10,
            pairs: 20,
            is_proven,
            differences: AutoDifferences::default(),
        }
    }

    fn found() -> FoundSettings {
        let process = |pid, cpu_ns, parts| AppliedProcess {
            pid,
            steps: 1_000,
            auto: Some(AutoReport { cpu_ns, parts, ..AutoReport::default() }),
            ..AppliedProcess::default()
        };
        let parts = vec![
            part("threshold=2000,10,10", true),
            part("threshold=50000,10,10,freeze@step:2", true),
            part("threshold=10000,10,10", false),
        ];
        let others = vec![part("threshold=2000,10,10", true)];
        let without = AppliedProcess { pid: 3, steps: 0, ..process(3, 99, others.clone()) };
        FoundSettings::new(
            vec!["python".to_owned()],
            Some(0),
            &[process(1, 5, others), process(2, 9, parts), without],
            0.02,
        )
    }

    #[test]
    fn the_schema_is_published() {
        let schema = schemars::schema_for!(FoundSettings);
        test_kit::schema::assert_published("auto", &schema, "-p gctrace advice::found");
    }

    #[test]
    fn the_last_setting_that_was_proven_is_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("auto.json");
        std::fs::write(&path, serde_json::to_vec_pretty(&found()).expect("JSON")).expect("written");
        let read = FoundSettings::read(&path).expect("a file of gctrace auto");
        assert_eq!(read.processes.len(), 2);
        assert_eq!(
            read.code().as_deref(),
            Some(
                "import gc\ngc.set_threshold(50000, 10, 10)\n# after the first steps:\n\
                 gc.collect()\ngc.freeze()\n"
            )
        );
        let setting = Some("loading=100000".parse().expect("a setting"));
        let loading = FoundSettings { setting, ..read };
        assert_eq!(
            loading.code().as_deref(),
            Some(
                "import gc\nown = gc.get_threshold()\ngc.set_threshold(100000, *own[1:])\n\
                 # before the first step:\ngc.set_threshold(*own)\n"
            )
        );
        let setting = Some("freeze-forks".parse().expect("a setting"));
        let alone = FoundSettings { setting, ..loading };
        assert_eq!(
            alone.code().as_deref(),
            Some(
                "import gc\nimport os\n# in forked processes, of the inherited objects:\n\
                 os.register_at_fork(after_in_child=gc.freeze)\n"
            )
        );
        assert_eq!(FoundSettings { setting: None, ..alone }.code(), None);
        for text in
            ["", "{}", "{\"schema\": \"gctrace.auto/1\"}", "{\"schema\": \"gctrace.apply/1\"}"]
        {
            std::fs::write(&path, text).expect("written");
            assert!(FoundSettings::read(&path).is_none(), "{text}");
        }
    }
}
