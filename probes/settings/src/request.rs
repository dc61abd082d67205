//! How settings get into programs, and where the programs write what became of them; what else is
//! requested of the injected library.

use super::auto::AutoOptions;
use super::setting::{GcSetting, GcSettingError};

/// What to record of the objects that collections free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageDetail {
    /// Nothing.
    Off = 0,
    /// Their types, and the lines that belong to them.
    Types = 1,
    /// Also the cycles that they form; in-process only.
    Cycles = 2,
}

/// The variable with the settings.
pub const APPLY_VARIABLE: &str = "GCTRACE_APPLY";
/// The variable that names gctrace's private folder, in which each process reports; not set or empty:
/// each process prints one line at its end.
pub const FOLDER_VARIABLE: &str = "GCTRACE_APPLY_FOLDER";
/// Steps per block, at least 1.
const BLOCK_VARIABLE: &str = "GCTRACE_APPLY_BLOCK";
/// Steps before the first block.
const WARM_UP_VARIABLE: &str = "GCTRACE_APPLY_WARM_UP";
/// `1`: the table of steps is written for one setting too.
const STEPS_VARIABLE: &str = "GCTRACE_APPLY_STEPS";

/// Between two settings that alternate.
const ALTERNATES: char = '|';

/// The file in the folder whose first byte is `1` once the settings are to be taken back, else `0`.
/// Each process that reports appends one byte.
pub const CONTROL_FILE: &str = "control";
/// Ends the name of a process's report, after its pid.
pub const REPORT_SUFFIX: &str = ".report.json";
/// Ends the name of a process's table of steps, after its pid.
pub const STEPS_SUFFIX: &str = ".steps";

/// The most processes that report. Others count themselves in [`CONTROL_FILE`], and write nothing: a
/// report takes 4 kB of memory until gctrace ends.
pub const MAX_PROCESSES: u64 = 1000;

/// The largest report that is read, in bytes: a process writes a few thousand, and at most 300 lines
/// of a program with their calls.
pub const MAX_REPORT: u64 = 1 << 18;

/// What the processes of a command are to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplyRequest {
    /// At least one; several alternate in blocks of steps.
    pub settings: Vec<GcSetting>,
    /// Lengths of the blocks.
    pub blocks: BlockLengths,
    /// Write the table of steps, also for one setting.
    pub writes_steps: bool,
    /// Find the setting while the program runs; then there is no other.
    pub auto: Option<AutoOptions>,
}

/// Lengths in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLengths {
    /// Of each block, at least 1.
    pub block: u64,
    /// Before the first block.
    pub warm_up: u64,
}

impl Default for BlockLengths {
    fn default() -> Self {
        Self { block: 25, warm_up: 50 }
    }
}

impl ApplyRequest {
    /// One setting.
    #[must_use]
    pub fn of(setting: GcSetting) -> Self {
        Self {
            settings: vec![setting],
            blocks: BlockLengths::default(),
            writes_steps: false,
            auto: None,
        }
    }

    /// The setting is found while the program runs.
    #[must_use]
    pub fn auto(options: AutoOptions) -> Self {
        Self { auto: Some(options), ..Self::of(GcSetting::default()) }
    }

    /// The settings, as reports name them.
    #[must_use]
    pub fn text(&self) -> String {
        if let Some(options) = &self.auto {
            return options.to_string();
        }
        let texts: Vec<String> = self.settings.iter().map(GcSetting::to_string).collect();
        texts.join(&ALTERNATES.to_string())
    }

    /// The variables that carry it into a program.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let BlockLengths { block, warm_up } = self.blocks;
        let mut variables = vec![
            (APPLY_VARIABLE, self.text()),
            (BLOCK_VARIABLE, block.to_string()),
            (WARM_UP_VARIABLE, warm_up.to_string()),
        ];
        if self.writes_steps {
            variables.push((STEPS_VARIABLE, "1".to_owned()));
        }
        variables
    }

    /// Reads it from a program's variables; `None`: there is none. Lengths that are no numbers have
    /// their defaults.
    ///
    /// # Errors
    /// A text that is no setting.
    pub fn parse(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, GcSettingError> {
        let Some(text) = variable(APPLY_VARIABLE).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        if AutoOptions::are_meant(&text) {
            return Ok(Some(Self::auto(text.parse()?)));
        }
        let settings: Result<Vec<GcSetting>, _> = text.split(ALTERNATES).map(str::parse).collect();
        let length = |name: &str| variable(name)?.parse().ok();
        let usual = BlockLengths::default();
        Ok(Some(Self {
            settings: settings?,
            blocks: BlockLengths {
                block: length(BLOCK_VARIABLE).unwrap_or(usual.block).max(1),
                warm_up: length(WARM_UP_VARIABLE).unwrap_or(usual.warm_up),
            },
            writes_steps: variable(STEPS_VARIABLE).as_deref() == Some("1"),
            auto: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn there_and_back() {
        let request = ApplyRequest {
            settings: vec![GcSetting::default(), "plan:5".parse().expect("a setting")],
            blocks: BlockLengths { block: 3, warm_up: 0 },
            writes_steps: true,
            auto: None,
        };
        let variables: HashMap<_, _> = request.variables().into_iter().collect();
        let parsed = ApplyRequest::parse(|name| variables.get(name).cloned());
        assert_eq!((parsed, request.text()), (Ok(Some(request)), "none|plan:5".to_owned()));
        let request = ApplyRequest::auto(AutoOptions { memory: 0.5, ..AutoOptions::default() });
        let variables: HashMap<_, _> = request.variables().into_iter().collect();
        let parsed = ApplyRequest::parse(|name| variables.get(name).cloned());
        assert_eq!(parsed, Ok(Some(request)));
    }

    #[test]
    fn other_variables_have_defaults() {
        let with = |apply: &'static str, block: &'static str| {
            ApplyRequest::parse(move |name| match name {
                APPLY_VARIABLE => Some(apply.to_owned()),
                BLOCK_VARIABLE | WARM_UP_VARIABLE => Some(block.to_owned()),
                _ => None,
            })
        };
        let freeze = || ApplyRequest::of("freeze".parse().expect("a setting"));
        assert_eq!(with("freeze", "99999999999999999999"), Ok(Some(freeze())));
        assert_eq!(with("freeze", "0").map(|one| one.map(|one| one.blocks.block)), Ok(Some(1)));
        assert_eq!(with("", "5"), Ok(None));
        assert_eq!(with("none||", "5"), Err(GcSettingError::Unknown(String::new())));
    }
}
