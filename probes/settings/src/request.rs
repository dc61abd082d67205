//! How settings get into programs, and where the programs write what became of them; what else is
//! requested of the injected library.

use super::auto::AutoOptions;
use super::setting::{GcSetting, GcSettingError};

/// Every how many-th step has its memory by layer measured: as many steps as the time that measuring takes allows.
pub const LAYERS_BY_BUDGET: u32 = u32::MAX;

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
/// The variable with gctrace's private folder for the reports of processes; not set or empty: each process prints one
/// line at its end.
pub const FOLDER_VARIABLE: &str = "GCTRACE_APPLY_FOLDER";

/// A file in that folder. Its first byte is `1` once the settings are to be taken back, else `0`. Each process that
/// reports appends one byte.
pub const CONTROL_FILE: &str = "control";
/// Ends the name of a process's report, after its pid.
pub const REPORT_SUFFIX: &str = ".report.json";

/// The most processes that report. Others count themselves in [`CONTROL_FILE`], and write nothing: a
/// report takes 4 kB of memory until gctrace ends.
pub const MAX_PROCESSES: u64 = 1000;

/// The largest report that is read, in bytes: a process writes a few thousand, and at most 300 lines
/// of a program with their calls.
pub const MAX_REPORT: u64 = 1 << 18;

/// A request to the processes of a command to apply settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplyRequest {
    /// None where one is sought.
    pub setting: GcSetting,
    /// Find the setting while the program runs, or compare some.
    pub auto: Option<AutoOptions>,
}

impl ApplyRequest {
    /// One setting.
    pub fn of(setting: GcSetting) -> Self {
        Self { setting, auto: None }
    }

    /// The setting is found while the program runs.
    pub fn auto(options: AutoOptions) -> Self {
        Self { setting: GcSetting::default(), auto: Some(options) }
    }

    /// The value of [`APPLY_VARIABLE`] in a program, named by reports too.
    pub fn text(&self) -> String {
        match &self.auto {
            Some(options) => options.to_string(),
            None => self.setting.to_string(),
        }
    }

    /// Reads the text of the variable; `None`: it is empty.
    ///
    /// # Errors
    /// A text that is no setting.
    pub fn parse(text: &str) -> Result<Option<Self>, GcSettingError> {
        Ok(match text {
            "" => None,
            text if AutoOptions::are_meant(text) => Some(Self::auto(text.parse()?)),
            text => Some(Self::of(text.parse()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for request in [
            ApplyRequest::of(GcSetting::default()),
            ApplyRequest::of("plan:5".parse().expect("a setting")),
            ApplyRequest::auto(AutoOptions { memory: 0.5, ..AutoOptions::default() }),
        ] {
            assert_eq!(ApplyRequest::parse(&request.text()), Ok(Some(request)));
        }
        assert_eq!(ApplyRequest::parse(""), Ok(None));
        let unknown = GcSettingError::Unknown("none|plan:5".to_owned());
        assert_eq!(ApplyRequest::parse("none|plan:5"), Err(unknown));
    }
}
