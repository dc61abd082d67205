//! Goals and report of a search for the right setting while the program runs: the vocabulary between `gctrace auto` and
//! the controller in `libgctrace_inject.so`.

use super::setting::{GcSetting, GcSettingError};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use strum::{AsRefStr, Display, EnumString};

/// Collections that free fewer objects per second of CPU time free next to nothing: without them nothing is lost
/// (docs/evidence.md).
pub const NEXT_TO_NOTHING_PER_S: u64 = 200;

/// The goal, and its allowed price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoOptions {
    /// A collector that takes no more than this share of the CPU time is left alone; half of it is the
    /// least gain that is tried. 0 to 1.
    pub worth: f64,
    /// How much more memory may be resident, and in use on the GPU, while a setting is held, as a share of the memory
    /// before; 64 MiB more are always allowed. 0 or more.
    pub memory: f64,
    /// Highest cost of finding the setting, as a share of the CPU time by then. 0 to 1.
    pub cost: f64,
    /// The quantity to reduce.
    pub goal: AutoGoal,
    /// Seconds without any step; then intervals of time are compared instead. 0 or more.
    pub wait_s: f64,
    /// Nothing is sought before this step, unless [`Self::wait_s`] have passed.
    pub from_step: u64,
    /// Settings to compare with the first of them; none is held. Empty: one is sought.
    pub compared: Vec<GcSetting>,
}

/// The quantity to reduce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum AutoGoal {
    /// CPU time.
    #[default]
    Time,
    /// The longest pause: full collections of long-lived objects are avoided, even if that saves no time.
    Longest,
}

impl Default for AutoOptions {
    fn default() -> Self {
        Self {
            worth: 0.02,
            memory: 0.25,
            cost: 0.01,
            goal: AutoGoal::Time,
            wait_s: 10.0,
            from_step: 0,
            compared: Vec::new(),
        }
    }
}

/// Starts the text of options.
const AUTO: &str = "auto";
/// Before each setting that is compared.
const COMPARED: char = '|';

/// As the variable carries them: `auto:worth=0.02,memory=0.25,cost=0.01,goal=time,wait=10,from=0`, then settings
/// to compare: `|none|threshold=7000`.
impl fmt::Display for AutoOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worth, memory, cost, goal, wait_s, from_step, compared } = self;
        write!(
            formatter,
            "{AUTO}:worth={worth},memory={memory},cost={cost},goal={goal},wait={wait_s},from={from_step}"
        )?;
        compared.iter().try_for_each(|setting| write!(formatter, "{COMPARED}{setting}"))
    }
}

impl AutoOptions {
    /// [`Self::wait_s`] in ns.
    pub fn wait_ns(&self) -> u64 {
        let wait = Duration::try_from_secs_f64(self.wait_s).unwrap_or(Duration::MAX);
        gctrace_units::u64_or_most(wait.as_nanos())
    }

    /// Whether a text is meant to be options, not a setting.
    pub fn are_meant(text: &str) -> bool {
        text.split([':', COMPARED]).next() == Some(AUTO)
    }
}

/// `auto` alone has the defaults.
impl FromStr for AutoOptions {
    type Err = GcSettingError;

    fn from_str(text: &str) -> Result<Self, GcSettingError> {
        let mut texts = text.split(COMPARED);
        let text = texts.next().unwrap_or_default();
        let compared: Result<_, _> = texts.map(str::parse).collect();
        let mut options = Self { compared: compared?, ..Self::default() };
        let (_, rest) = text.split_once(':').unwrap_or((text, ""));
        for piece in rest.split(',') {
            if piece.is_empty() {
                continue;
            }
            let wrong = || GcSettingError::AutoOption(piece.to_owned());
            let share = |text: &str, most: f64| match text.parse() {
                Ok(share) if (0.0..=most).contains(&share) => Ok(share),
                _ => Err(wrong()),
            };
            match piece.split_once('=').ok_or_else(wrong)? {
                ("worth", text) => options.worth = share(text, 1.0)?,
                ("memory", text) => options.memory = share(text, f64::MAX)?,
                ("cost", text) => options.cost = share(text, 1.0)?,
                ("wait", text) => options.wait_s = share(text, f64::MAX)?,
                ("from", text) => options.from_step = text.parse().map_err(|_| wrong())?,
                ("goal", text) => options.goal = text.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        Ok(options)
    }
}

/// The work in one process. CPU times are of the thread that makes the steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AutoReport {
    /// Its state now, or at the end.
    pub state: AutoState,
    /// Why it leaves this process alone; `null`: it does not.
    pub unsupported: Option<String>,
    /// Process that decides for this one, rank 0 of the job on this host; `null`: none does.
    pub leader: Option<u32>,
    /// Other ranks on this host that do as this one does.
    pub followers: u32,
    /// The thresholds that the program asks for.
    pub own_thresholds: Vec<u32>,
    /// The setting that is held, or was at the end; `null`: the program's own.
    pub setting: Option<GcSetting>,
    /// No step was known: the collector's share of the CPU time of the process was compared in intervals of
    /// time, and a step is a millisecond of other work.
    #[serde(default)]
    pub by_time: bool,
    /// Share of the CPU time that collections took with the program's own settings, as last watched;
    /// full collections are charged by the collector's rule. `null`: too few steps for that.
    pub collector_share: Option<f64>,
    /// CPU time since the first step, in ns.
    pub cpu_ns: u64,
    /// Steps with settings that were tried, but not held then.
    pub explored_steps: u64,
    /// Cost of finding and checking the setting, in ns of CPU time: collections made for it beyond the collections put
    /// off, extra time of tried settings over the program's own, and gctrace's own code; 0 if all that took less than
    /// the program's own settings. Estimated by comparison with these.
    pub cost_ns: u64,
    /// CPU time saved in the proven parts, minus `cost_ns`: without `gctrace auto` the run would have taken that much
    /// longer. `null`: nothing was proven.
    pub saved: Option<AutoSaving>,
    /// The settings that were held, one after the other. At most 100.
    pub parts: Vec<AutoPart>,
    /// In a forked child: objects that it inherited and that are frozen, so that its collections do not
    /// traverse them; `null`: none are.
    #[serde(default)]
    pub inherited_frozen: Option<u64>,
    /// The longest collection with the program's own settings, from the first step on, in ns; `null`:
    /// none was seen.
    pub longest_own_ns: Option<u64>,
    /// The longest collection while a setting was held, in ns; `null`: none was seen.
    pub longest_held_ns: Option<u64>,
    /// Resident memory when a setting was first held, in bytes; `null`: none was.
    pub rss_bytes_before: Option<u64>,
    /// The most resident memory at the end of a step while one was held, in bytes.
    pub most_rss_bytes_held: Option<u64>,
    /// Number of times that the memory guard had garbage collected.
    pub memory_alarms: u64,
    /// Its decisions, in order. At most 100.
    pub events: Vec<AutoEvent>,
    /// The settings that were compared, in the order given, or tried while one was sought; the others are compared with
    /// the first. Empty: there was no block yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub compared: Vec<ComparedSetting>,
}

/// A setting that was compared. Times are means per step of its blocks, in ns, full collections charged by
/// the collector's rule; steps are milliseconds of work where intervals of time were compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedSetting {
    /// The setting.
    pub setting: GcSetting,
    /// Its blocks: each paired with one of the first setting, its neighbor, unless one was sought.
    pub pairs: u64,
    /// CPU time of the thread that makes the steps.
    pub cpu_ns: u64,
    /// Wall time.
    pub wall_ns: u64,
    /// CPU time of collections.
    pub collecting_ns: u64,
    /// The part of full collections in these: computed.
    pub full_ns: u64,
    /// The differences from the first setting.
    #[serde(flatten)]
    pub differences: AutoDifferences,
}

/// Its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[derive(AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum AutoState {
    /// It waits for steps, or for the first 50 to pass.
    #[default]
    SettingUp,
    /// It watches the program with its own settings.
    Watching,
    /// It compares settings in short blocks of steps.
    Exploring,
    /// It compares settings that were named, in such blocks, until it is ended.
    Comparing,
    /// It holds a setting in half of the blocks until the gain is proven.
    Proving,
    /// It holds a setting; one pair in about twenty blocks checks the gain.
    Holding,
    /// It does as rank 0 does.
    Following,
    /// It has given everything back for good.
    Stopped,
}

/// CPU time saved since settings are compared, with its interval; minus the cost of finding them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AutoSaving {
    /// In ns, of all steps. Steps of the comparison count too: full collections wait in them.
    pub mean_ns: i64,
    /// Lower end of its 95 % interval; valid at any time of looking.
    pub low_ns: i64,
    /// Upper end of the interval.
    pub high_ns: i64,
    /// Pairs of blocks that it rests on.
    pub pairs: u64,
    /// Share of it that is computed, from the rate and the measured cost of full collections, not
    /// measured. May be above 1 or negative.
    pub computed_share: f64,
}

/// A setting that was held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AutoPart {
    /// The setting.
    pub setting: GcSetting,
    /// After this step.
    pub step: u64,
    /// Steps with it.
    pub held_steps: u64,
    /// Their CPU time, in ns, full collections charged by the rule.
    pub held_cpu_ns: u64,
    /// Pairs of blocks.
    pub pairs: u64,
    /// Whether the whole interval lies beyond half a percent of gain.
    pub is_proven: bool,
    /// The differences from the program's own setting.
    #[serde(flatten)]
    pub differences: AutoDifferences,
}

/// Differences between the paired blocks of a setting and of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AutoDifferences {
    /// The difference of CPU time.
    pub cpu: AutoDifference,
    /// The difference of wall time, without a verdict.
    pub wall: AutoDifference,
    /// The difference of the time of collections, as a share of the CPU time.
    pub collections: AutoDifference,
    /// Share of the difference of CPU time that is computed; `null`: there is no difference.
    pub computed_share: Option<f64>,
}

/// A difference between the setting and the program's own, as a share of the mean of both; negative: the
/// setting takes less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AutoDifference {
    /// The mean of the pairs; `null`: there is no pair.
    pub mean: Option<f64>,
    /// Lower end of the 95 % interval; `null`: too few pairs for one.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The least p of no difference over all looks, valid at any time of looking; `null`: too few pairs. 0 to 1.
    #[serde(default)]
    pub p: Option<f64>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AutoEvent {
    /// After this step.
    pub step: u64,
    /// The decision.
    #[serde(flatten)]
    pub decision: AutoDecision,
}

/// Kinds of decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case", tag = "decision")]
pub enum AutoDecision {
    /// The collector takes so little that nothing is changed.
    NothingToGain {
        /// Share of the CPU time that collections take.
        share: f64,
    },
    /// Settings are compared.
    Explore {
        /// Share of the CPU time that collections take.
        share: f64,
    },
    /// Settings that were named are compared.
    Compare {
        /// Share of the CPU time that collections take.
        share: f64,
        /// Steps of a block.
        block_steps: u64,
    },
    /// None of them is better than the program's own by enough.
    OwnIsBest,
    /// A setting is held, and its gain measured.
    Hold {
        /// The setting.
        setting: GcSetting,
    },
    /// The gain is proven.
    Proven {
        /// Mean difference of CPU time, as a share; negative: a gain.
        mean: f64,
        /// Lower end of its interval.
        low: f64,
        /// Upper end.
        high: f64,
        /// Number of pairs.
        pairs: u64,
    },
    /// So many pairs show no gain: the program's own settings are back.
    NotProven {
        /// Number of pairs.
        pairs: u64,
    },
    /// A loss is proven: the program's own settings are back.
    Loss,
    /// The program allocates differently than when the setting was chosen: it is watched again.
    Changed {
        /// Containers per step then.
        before: f64,
        /// Containers per step now.
        now: f64,
    },
    /// The program has set thresholds: it is watched again.
    OwnChanged {
        /// The thresholds that it wants now.
        thresholds: Vec<u32>,
    },
    /// Memory grew, and a collection freed garbage, or there is hardly any left: everything is given
    /// back.
    Memory {
        /// Resident memory in bytes, before that collection.
        rss_bytes: u64,
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// More of the GPU's memory is in use than is allowed: everything is given back.
    DeviceMemory {
        /// In use by all processes, in bytes, before a collection.
        used_bytes: u64,
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// Pauses became longer than with the program's own settings: everything is given back.
    Pause {
        /// The pause, in ns.
        pause_ns: u64,
        /// The longest before, in ns.
        before_ns: u64,
    },
    /// Memory grew so in another rank: everything is given back.
    RankMemory,
    /// Resident memory cannot be read any more: everything is given back.
    MemoryUnknown,
    /// The program has thawed the objects that were frozen for it: it is watched again.
    Unfrozen,
    /// The user took it back.
    TakenBack,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_named_as_they_are_serialized() {
        use AutoState::{
            Comparing, Exploring, Following, Holding, Proving, SettingUp, Stopped, Watching,
        };
        for state in
            [SettingUp, Watching, Exploring, Comparing, Proving, Holding, Following, Stopped]
        {
            assert_eq!(serde_json::to_value(state).expect("JSON"), state.as_ref());
        }
    }

    #[test]
    fn options_are_read_as_they_are_written() {
        let options = AutoOptions {
            worth: 0.015,
            memory: 1.5,
            cost: 0.0,
            goal: AutoGoal::Longest,
            wait_s: 2.5,
            from_step: 2_000,
            compared: vec![GcSetting::default(), "threshold=7000,10".parse().expect("a setting")],
        };
        assert!(AutoOptions::are_meant("auto") && !AutoOptions::are_meant("automatic"));
        assert_eq!(options.to_string().parse(), Ok(options));
        assert_eq!("auto".parse(), Ok(AutoOptions::default()));
        assert_eq!(
            "auto|freez".parse::<AutoOptions>(),
            Err(GcSettingError::Unknown("freez".to_owned()))
        );
        for piece in ["worth=2", "worth=NaN", "cost=-1", "goal=x", "5"] {
            let error = format!("auto:memory=1,{piece}").parse::<AutoOptions>();
            assert_eq!(error, Err(GcSettingError::AutoOption(piece.to_owned())));
        }
    }
}
