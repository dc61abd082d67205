//! What figures of all features have in common: what they rest on, counts with times, and places.

use crate::time::add_to;
use schemars::JsonSchema;
use serde::Serialize;

/// Types that are serialized as what they display.
macro_rules! serialized_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                String::schema_name()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }
    )+};
}

pub(crate) use serialized_as_text;

/// What a figure rests on: a measurement, a model, or a change that was not made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Read off a clock or a counter.
    Measured,
    /// Derived from measurements with an assumption that the description states.
    #[default]
    Inferred,
    /// The expected result of a change that has not been made.
    Predicted,
}

/// Count and total time of some pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PauseTotal {
    /// Number of pauses in the group.
    pub count: u64,
    /// Sum of their lengths, in ns.
    pub time_ns: u64,
}

impl PauseTotal {
    /// Counts one pause of this length.
    pub(crate) fn add(&mut self, time_ns: u64) {
        self.add_all(&Self { count: 1, time_ns });
    }

    /// Adds the totals of other pauses.
    pub(crate) fn add_all(&mut self, other: &Self) {
        add_to(&mut self.count, other.count);
        add_to(&mut self.time_ns, other.time_ns);
    }
}

impl<'a> FromIterator<&'a PauseTotal> for PauseTotal {
    fn from_iter<T: IntoIterator<Item = &'a PauseTotal>>(totals: T) -> Self {
        let mut sum = Self::default();
        totals.into_iter().for_each(|total| sum.add_all(total));
        sum
    }
}

/// A line of Python code, identified by file, function and line number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Location {
    /// File (`co_filename`); empty for unknown frames.
    pub file: String,
    /// Qualified name of the function (CPython 3.11 and later) or its name.
    /// `[outer frames not recorded]` and `[frame not readable]` stand for unknown frames,
    /// `[import]` for a stack in the import system alone.
    pub function: String,
    /// Line number within the file; `null` if unknown.
    pub line: Option<u32>,
    /// Whether the file belongs to the standard library or an installed package, judged by its
    /// path.
    pub library: bool,
}

/// Identifies one device of one process; two processes may number the same GPU differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceId {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id; 0 if the trace does not contain it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Index of the device in the process.
    pub device: u32,
}
