//! What figures of all features have in common: a declaration, their basis, counts with times, and places.

use crate::time::{add_to, sum};
use serde::Serialize;
use std::borrow::Cow;

/// Types serialized as their displayed text.
macro_rules! serialized_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        #[cfg(feature = "schema")]
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

/// Basis of a figure: a measurement, a model, or a change that was not made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, strum::Display)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// Unit of a figure; it decides the display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things, or of things per time; 1 and 0 for yes and no.
    Count,
    /// A length of time, in ns.
    Ns,
    /// A time of CLOCK_MONOTONIC, in ns.
    At,
    /// An amount of memory, in bytes.
    Bytes,
    /// A share, 0 to 1.
    Ratio,
    /// A share, in millionths.
    Ppm,
    /// Times by the classes of [`PAUSE_CLASSES_NS`](crate::live::PAUSE_CLASSES_NS).
    Classes,
    /// Nothing: the labels are the figure, its value is 1.
    Info,
}

/// How a figure comes about over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// It only grows, and holds when a process has ended.
    Total,
    /// It need not grow, and holds when a process has ended: a start, a maximum, a description.
    Lasting,
    /// The current value; a process that ended has none.
    Level,
}

/// The value of a figure, in its [`Unit`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A value that is never below 0, as most are.
    Whole(u64),
    /// A value that may be below 0.
    Signed(i64),
    /// A value with a fraction, such as a slope.
    Real(f64),
    /// Times by class, and their sum in ns.
    Durations(&'a [u64], u64),
}

/// The name of a label, and its value; a recorded program may control the value.
pub type Label<'a> = (&'static str, Cow<'a, str>);

/// A value with the labels that tell it from the others of the same figure.
pub type LabeledValue<'a> = (Vec<Label<'a>>, Value<'a>);

/// How the value of an `S` is found.
pub enum Get<S> {
    /// Its only value, `None` if unknown.
    One(fn(&S) -> Option<Value<'_>>),
    /// One for each combination of labels; none if unknown.
    Each(for<'a> fn(&'a S) -> Vec<LabeledValue<'a>>),
}

/// A figure of an `S`, for all who show it.
pub struct Figure<S> {
    /// Name of the metric, between a prefix and the unit; empty: the prefix alone.
    pub id: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// How it comes about over time.
    pub nature: Nature,
    /// Its basis. `None` for settings and facts, and where the help contains it.
    pub basis: Option<Basis>,
    /// One sentence without a period, quotation marks or backslashes: HELP of the metric, overlay of `top`. `{of}`
    /// stands for the owner of the figure.
    pub help: &'static str,
    /// How its values are found in an `S`.
    pub get: Get<S>,
    /// Title and width of its column in the table of `top`; an empty title: none.
    pub column: (&'static str, u16),
    /// Title and width of its column in the lines of `top --plain`; an empty title: none.
    pub line: (&'static str, usize),
}

/// A figure that is a metric and nothing else.
pub const fn metric<S>(
    id: &'static str,
    (unit, nature, basis): (Unit, Nature, Option<Basis>),
    get: Get<S>,
    help: &'static str,
) -> Figure<S> {
    Figure { id, unit, nature, basis, help, get, column: ("", 0), line: ("", 0) }
}

impl<S> Figure<S> {
    /// It has a column in the table of `top`, too.
    pub(crate) const fn column(self, title: &'static str, width: u16) -> Self {
        Self { column: (title, width), ..self }
    }

    /// It has a column in the lines of `top`, too.
    pub(crate) const fn line(self, title: &'static str, width: usize) -> Self {
        Self { line: (title, width), ..self }
    }

    /// All its values for `of`.
    pub fn values<'a>(&self, of: &'a S) -> Vec<LabeledValue<'a>> {
        match self.get {
            Get::One(get) => get(of).into_iter().map(|value| (Vec::new(), value)).collect(),
            Get::Each(get) => get(of),
        }
    }

    /// The sum of its values for `of`, of a figure that is a whole number; `None` if unknown.
    pub fn whole(&self, of: &S) -> Option<u64> {
        let values = self.values(of);
        let whole = |(_, value): &_| if let Value::Whole(whole) = value { *whole } else { 0 };
        if values.is_empty() { None } else { Some(sum(values.iter().map(whole))) }
    }
}

/// A label with a number as value, in decimal.
pub fn number(name: &'static str, value: u32) -> Label<'static> {
    (name, Cow::Owned(value.to_string()))
}

/// A label with a text as value.
pub const fn word<'a>(name: &'static str, value: &'a str) -> Label<'a> {
    (name, Cow::Borrowed(value))
}

/// A value with one label.
pub(crate) fn one<'a>(label: Label<'a>, value: Value<'a>) -> LabeledValue<'a> {
    (vec![label], value)
}

/// A figure with labels only.
pub(crate) fn info<'a>(labels: impl IntoIterator<Item = Label<'a>>) -> Vec<LabeledValue<'a>> {
    vec![(labels.into_iter().collect(), Value::Whole(1))]
}
