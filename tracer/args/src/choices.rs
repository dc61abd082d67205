//! Enumerations for options that take one of a few values.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gctrace_event::Counter;
use strum::IntoStaticStr;

/// Whether output is for people or for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable text
    #[default]
    Text,
    /// Machine-readable JSON
    Json,
}

/// Form of a report or a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Human-readable text
    #[default]
    Text,
    /// Machine-readable JSON
    Json,
    /// Summary for a CI job or a pull request: verdict, limits, the text folded
    #[value(alias = "md")]
    Markdown,
    /// One page for the browser, as `gctrace report` writes it
    #[value(name = "html", hide = true)]
    Page,
}

/// How much of the CUDA calls is recorded, by probes or by the injected library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum CudaMode {
    /// Every call, each launch and CUDA event as a record of its own
    All,
    /// Launches only as counts per millisecond: keeps traces of hours small
    Launches,
    /// Synchronization, copies, memory and collectives, but no launches
    Sync,
    /// No CUDA calls
    Off,
}

/// Requested sources of collections and GPU work; trace headers use the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum RecordMode {
    /// The best mode that the machine and the user's privileges allow
    Auto,
    /// Kernel probes only; needs privileges
    Ebpf,
    /// A library in the recorded programs only; needs no privileges
    Inject,
    /// Both sources for each pause
    Both,
}

/// Performance counters that the user asked for (`--counters`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterChoice {
    /// The default set, as far as the machine has them.
    Default,
    /// The named ones; may be empty.
    Named(Vec<Counter>),
}

impl CounterChoice {
    /// The requested counters, whether or not this machine has them. Without `--counters`: all but the last, cpu-clock,
    /// a duplicate of task-clock.
    pub fn counters(&self) -> &[Counter] {
        match self {
            Self::Default => Counter::ALL.split_last().map_or(&[], |(_, others)| others),
            Self::Named(counters) => counters,
        }
    }
}

/// One of a few values, each with its name and its help: for types of crates that do not know clap.
pub(super) fn one_of<T, const N: usize>(
    values: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let named = values.map(|(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(named).try_map(move |word| {
        let found = values.iter().find(|(name, ..)| *name == word);
        found.map(|(.., value)| *value).ok_or("is none of these")
    })
}
