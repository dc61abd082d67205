//! Settings of CPython's collector that gctrace applies in programs: their text, how they get there, the reports on
//! them. Also how much of the garbage is recorded.
//!
//! The vocabulary between the command line of `gctrace apply` and `gctrace tune`, and `libgctrace_inject.so`: the
//! library applies the settings. Data only; neither reads a file here.
//!
//! ```
//! use gctrace_settings::GcChange;
//! use gctrace_settings::GcSetting;
//!
//! let setting: GcSetting = "threshold=7000,10,freeze@step:3".parse()?;
//! let steps: Vec<u32> = setting.items().iter().map(|item| item.step()).collect();
//! assert_eq!((steps, setting.has(&GcChange::Freeze)), (vec![0, 3], true));
//! assert_eq!(setting.to_string(), "threshold=7000,10,freeze@step:3");
//! # Ok::<(), gctrace_settings::GcSettingError>(())
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod auto;
mod report;
mod request;
mod setting;

pub use auto::{
    AutoDecision, AutoDifference, AutoDifferences, AutoEvent, AutoGoal, AutoOptions, AutoPart,
    AutoReport, AutoSaving, AutoState, ComparedSetting, NEXT_TO_NOTHING_PER_S,
};
pub use report::{
    AppliedProcess, AppliedSetting, AskedCollections, CollectionSums, SettingCalls, SettledSteps,
    UndoneSetting,
};
pub use request::{
    APPLY_VARIABLE, ApplyRequest, CONTROL_FILE, FOLDER_VARIABLE, GarbageDetail, LAYERS_BY_BUDGET,
    MAX_PROCESSES, MAX_REPORT, REPORT_SUFFIX,
};
pub use setting::{GcChange, GcPlan, GcSetting, GcSettingError, SettingItem};
