//! Everything declared about a kind of record, once: beside its type by `declare!`, and in the list of `records!`.
//!
//! The type of a record defines its event's `args` (serde), and the contents of a summary (bitcode). Its declaration
//! defines the rest: the name of its line, its process and thread, its time, and its stack. Writing, reading, checking
//! and documenting follow from these two.

use super::FrameId;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Longest time in ns that is read: 2^53 µs, 285 years. Beyond it, µs as a float with rounded decimals are not exact
/// any more.
pub(crate) const LONGEST_NS: u64 = (1 << 53) * 1000 + 1000;

/// The process, the thread, the time and the stack of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Process id; `None` if the record is about none, or its trace does not know it.
    pub pid: Option<u32>,
    /// Kernel thread id; `None` in the same way.
    pub tid: Option<u32>,
    /// Start and end in ns of the trace's clock, twice the same for a record of one time; `None` for a
    /// record that only names something.
    pub span_ns: Option<(u64, u64)>,
    /// The innermost Python frame; `None` if there is none. For records of several stacks see
    /// [`Record::stacks`](super::Record::stacks).
    pub stack: Option<FrameId>,
}

impl Head {
    /// The time for looking up its process id: a record without a time names something of the latest process.
    #[must_use]
    pub fn looked_up_ns(&self) -> u64 {
        if let Some((start_ns, _)) = self.span_ns { start_ns } else { u64::MAX }
    }
}

/// The form of a record's line in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Metadata; trace viewers ignore it unless they know its name.
    Meta,
    /// A mark on a thread (`t`), a process (`p`) or, with neither, the whole trace; with its category.
    Instant(&'static str),
    /// An interval; category and name depend on the record.
    Slice,
}

/// Classes of records that a recorder thins when it has used up the bytes of a day (`--per-day`): it writes every
/// n-th. Records of one class share their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpacedClass {
    /// Samples of running code: each written sample stands for the ones before it, too.
    Samples,
    /// Counts of allocations; each contains the earlier ones.
    Allocations,
    /// Memory of layers in a step.
    Layers,
    /// Readings of device memory.
    Memory,
    /// CUDA calls that failed or manage device memory.
    Calls,
    /// NVML's samples.
    Devices,
}

impl SpacedClass {
    /// The class that has this name in [`TraceEnd::omitted_others`](super::TraceEnd::omitted_others).
    #[must_use]
    pub fn omitted_as(name: &str) -> Option<Self> {
        let all = [Self::Samples, Self::Layers, Self::Memory, Self::Calls, Self::Devices];
        all.into_iter().find(|class| class.name() == name)
    }

    /// Its name there; no record of allocations is ever missing.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Allocations => "",
            Self::Layers => "layers",
            Self::Memory => "memory",
            Self::Calls => "memory_calls",
            Self::Devices => "gpu_samples",
        }
    }
}

/// The common properties of all records of a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Form of its line.
    pub phase: Phase,
    /// `name` of its line; for slices the most frequent category.
    pub name: &'static str,
    /// The noun for a record, as in "the \"pid\" of samples".
    pub noun: &'static str,
    /// The class that it shares bytes with if every n-th is written; `None`: always written, or thinned in another way.
    pub spaced: Option<SpacedClass>,
    /// The options of `gctrace record` that decide whether there are any; empty: whatever the options.
    pub options: &'static [&'static str],
    /// Members of the line: the process, the thread, a time, a stack.
    pub members: Members,
    /// The problem to report when `args` cannot be read.
    pub damaged: &'static str,
    /// The problem to report if the end of a line is before its start, or beyond all times.
    pub no_span: &'static str,
    /// The problem to report for a line without a process id.
    pub no_pid: &'static str,
    /// The problem to report for a line without a thread id.
    pub no_tid: &'static str,
}

/// The members of a kind's line besides `args`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// `pid` is the process; without, 0.
    pub pid: bool,
    /// `tid` is the thread; without, it is `pid` again.
    pub tid: bool,
    /// `ts`.
    pub ts: bool,
    /// `sf`, where the record has a stack.
    pub stack: bool,
}

/// A kind of record. It serializes to the `args` of its line.
pub(crate) trait Declared: Sized {
    /// The declaration of its kind.
    const KIND: &'static Kind;

    fn pid(&self) -> Option<u32> {
        None
    }

    fn tid(&self) -> Option<u32> {
        None
    }

    /// `ts` of its line, in ns.
    fn ts_ns(&self) -> Option<u64> {
        None
    }

    /// Start and end; a record of one time has that twice.
    fn span_ns(&self) -> Option<(u64, u64)> {
        self.ts_ns().map(|at_ns| (at_ns, at_ns))
    }

    fn stack(&self) -> Option<FrameId> {
        None
    }

    /// All stacks that it names.
    fn stacks(&self) -> Vec<FrameId> {
        self.stack().into_iter().collect()
    }

    /// Category and name of a slice.
    fn title(&self) -> (&str, Cow<'_, str>) {
        ("gctrace", Self::KIND.name.into())
    }

    /// `pid` and `tid` of its line. For GPU work a viewer knows devices and streams.
    fn line_ids(&self) -> (u32, u64) {
        let pid = shown(self.pid());
        (pid, self.tid().unwrap_or(pid).into())
    }

    /// The thread id, to be translated from another pid namespace.
    fn tid_mut(&mut self) -> Option<&mut u32> {
        None
    }

    /// Takes the members of its line besides `args`: of the span only the start, as the end is in `args`.
    fn place(&mut self, head: Head);

    /// Checks beyond the single fields.
    ///
    /// # Errors
    /// The problem, as a sentence for the user.
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn head(&self) -> Head {
        Head { pid: self.pid(), tid: self.tid(), span_ns: self.span_ns(), stack: self.stack() }
    }
}

/// An empty record that has this head.
pub(crate) fn placed<T: Declared + Default>(head: Head) -> T {
    let mut empty = T::default();
    empty.place(head);
    empty
}

/// A field of a head, known or perhaps not.
pub(crate) trait HeadField<T> {
    fn get(&self) -> Option<T>;
    fn put(&mut self, value: Option<T>);
    fn known_mut(&mut self) -> Option<&mut T>;
}

impl<T: Copy> HeadField<T> for T {
    fn get(&self) -> Option<T> {
        Some(*self)
    }

    fn put(&mut self, value: Option<T>) {
        if let Some(value) = value {
            *self = value;
        }
    }

    fn known_mut(&mut self) -> Option<&mut T> {
        Some(self)
    }
}

impl<T: Copy> HeadField<T> for Option<T> {
    fn get(&self) -> Option<T> {
        *self
    }

    fn put(&mut self, value: Option<T>) {
        *self = value;
    }

    fn known_mut(&mut self) -> Option<&mut T> {
        self.as_mut()
    }
}

/// An id in a line: viewers need a number.
pub(crate) fn shown<T: Default>(id: Option<T>) -> T {
    id.unwrap_or_default()
}

pub(crate) const fn is_given(fields: &[&str]) -> bool {
    !fields.is_empty()
}

pub(crate) const fn first(classes: &[SpacedClass]) -> Option<SpacedClass> {
    match classes {
        [class, ..] => Some(*class),
        [] => None,
    }
}

/// Declares a kind: the form and name of its line, its noun in messages, the fields that make up its head, and
/// functions of [`Declared`] that differ from the usual.
macro_rules! declare {
    ($type:ty: $phase:expr, $name:literal, $noun:literal
        $(, pid: $pid:ident)? $(, tid: $tid:ident)? $(, at: $at:ident)? $(, end: $end:ident)?
        $(, stack: $stack:ident)? $(, spaced: $spaced:ident)? $(, by: $($option:literal)+)?
        $(; $($hook:tt)*)?
    ) => {
        impl $crate::record::kind::Declared for $type {
            const KIND: &'static $crate::record::kind::Kind = &$crate::record::kind::Kind {
                phase: $phase,
                name: $name,
                noun: $noun,
                spaced: $crate::record::kind::first(&[
                    $($crate::record::kind::SpacedClass::$spaced)?
                ]),
                options: &[$($($option),+)?],
                members: $crate::record::kind::Members {
                    pid: $crate::record::kind::is_given(&[$(stringify!($pid))?]),
                    tid: $crate::record::kind::is_given(&[$(stringify!($tid))?]),
                    ts: $crate::record::kind::is_given(&[$(stringify!($at))?]),
                    stack: $crate::record::kind::is_given(&[$(stringify!($stack))?]),
                },
                damaged: concat!("a record of ", $noun, " is damaged"),
                no_span: concat!($noun, " ends before it starts"),
                no_pid: concat!("the \"pid\" of ", $noun, " is not a process id"),
                no_tid: concat!("the \"tid\" of ", $noun, " is not a thread id"),
            };

            $(
                fn pid(&self) -> Option<u32> {
                    $crate::record::kind::HeadField::get(&self.$pid)
                }
            )?
            $(
                fn tid(&self) -> Option<u32> {
                    $crate::record::kind::HeadField::get(&self.$tid)
                }

                fn tid_mut(&mut self) -> Option<&mut u32> {
                    $crate::record::kind::HeadField::known_mut(&mut self.$tid)
                }
            )?
            $(
                fn ts_ns(&self) -> Option<u64> {
                    Some(self.$at)
                }
            )?
            $(
                fn span_ns(&self) -> Option<(u64, u64)> {
                    Some((self.ts_ns()?, self.$end))
                }
            )?
            $(
                fn stack(&self) -> Option<$crate::FrameId> {
                    self.$stack
                }
            )?

            fn place(&mut self, head: $crate::record::kind::Head) {
                // Not all kinds have one.
                let _ = head;
                $($crate::record::kind::HeadField::put(&mut self.$pid, head.pid);)?
                $($crate::record::kind::HeadField::put(&mut self.$tid, head.tid);)?
                $($crate::record::kind::HeadField::put(
                    &mut self.$at,
                    head.span_ns.map(|(start_ns, _)| start_ns),
                );)?
                $(self.$stack = head.stack;)?
            }

            $($($hook)*)?
        }
    };
}
pub(crate) use declare;

/// Does the same with a record of any kind.
pub(crate) trait OfAnyKind {
    type Result;
    fn of<T: Declared + serde::Serialize>(self, record: &T) -> Self::Result;
}

/// A record from its `args` and the other members of its line.
pub(crate) fn read<'de, T: Declared + Deserialize<'de>, A: Deserializer<'de>>(
    args: A,
    head: impl FnOnce(&'static Kind) -> Result<Head, &'static str>,
) -> Result<T, &'static str> {
    let head = head(T::KIND)?;
    let mut record = T::deserialize(args).or(Err(T::KIND.damaged))?;
    record.place(head);
    record.check()?;
    let is_damaged = |(start_ns, end_ns)| !(start_ns..=LONGEST_NS).contains(&end_ns);
    if record.span_ns().is_some_and(is_damaged) {
        return Err(T::KIND.no_span);
    }
    Ok(record)
}

/// Makes [`Record`](super::Record) and its functions from the list of all kinds. The reader finds `named` kinds by
/// the name of their line, and decodes the others by hand, as other tools write them too. A summary stores the names
/// of `numbered` kinds once.
macro_rules! records {
    (
        named { $($(#[doc = $ndoc:literal])* $named:ident($ntype:ty),)* }
        by_hand { $($(#[doc = $hdoc:literal])* $hand:ident($htype:ty),)* }
        numbered { $($(#[doc = $udoc:literal])* $numbered:ident($utype:ty),)* }
    ) => {
        /// One record of a trace; the first line is a [`TraceHeader`] instead.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Record {
            $($(#[doc = $ndoc])* $named($ntype),)*
            $($(#[doc = $hdoc])* $hand($htype),)*
            $($(#[doc = $udoc])* $numbered($utype),)*
        }

        impl Record {
            /// All kinds, each with a word for it and its documentation.
            pub const KINDS: &[(&'static str, &'static str, &'static Kind)] = &[
                $((stringify!($named), concat!($($ndoc),*), <$ntype as Declared>::KIND),)*
                $((stringify!($hand), concat!($($hdoc),*), <$htype as Declared>::KIND),)*
                $((stringify!($numbered), concat!($($udoc),*), <$utype as Declared>::KIND),)*
            ];

            /// One record of each kind, in the order of [`Record::KINDS`]: it has this head and nothing else. For tests
            /// over all kinds.
            #[must_use]
            pub fn each(head: Head) -> Vec<Self> {
                vec![
                    $(Self::$named(placed(head)),)*
                    $(Self::$hand(placed(head)),)*
                    $(Self::$numbered(placed(head)),)*
                ]
            }

            /// The declaration of its kind.
            #[must_use]
            pub fn kind(&self) -> &'static Kind {
                match self {
                    $(Self::$named(_) => <$ntype as Declared>::KIND,)*
                    $(Self::$hand(_) => <$htype as Declared>::KIND,)*
                    $(Self::$numbered(_) => <$utype as Declared>::KIND,)*
                }
            }

            /// Its process, thread, time and stack.
            #[must_use]
            pub fn head(&self) -> Head {
                match self {
                    $(Self::$named(of) => of.head(),)*
                    $(Self::$hand(of) => of.head(),)*
                    $(Self::$numbered(of) => of.head(),)*
                }
            }

            /// The frames that it names: the innermost one of each stack, the caller of a frame.
            #[must_use]
            pub fn stacks(&self) -> Vec<FrameId> {
                match self {
                    $(Self::$named(of) => of.stacks(),)*
                    $(Self::$hand(of) => of.stacks(),)*
                    $(Self::$numbered(of) => of.stacks(),)*
                }
            }

            /// The kernel thread id of a record that has one, to be translated from another pid namespace.
            pub fn tid_mut(&mut self) -> Option<&mut u32> {
                match self {
                    $(Self::$named(of) => of.tid_mut(),)*
                    $(Self::$hand(of) => of.tid_mut(),)*
                    $(Self::$numbered(of) => of.tid_mut(),)*
                }
            }

            /// Checks beyond the single fields.
            pub(crate) fn check(&self) -> Result<(), &'static str> {
                match self {
                    $(Self::$named(of) => of.check(),)*
                    $(Self::$hand(of) => of.check(),)*
                    $(Self::$numbered(of) => of.check(),)*
                }
            }

            pub(crate) fn with<F: OfAnyKind>(&self, action: F) -> F::Result {
                match self {
                    $(Self::$named(of) => action.of(of),)*
                    $(Self::$hand(of) => action.of(of),)*
                    $(Self::$numbered(of) => action.of(of),)*
                }
            }

            /// The record in a line of this name; `None` if no kind that only gctrace writes has this name. `head`: the
            /// members of the line besides `args`. Only the start of the span counts: its end is in `args`.
            ///
            /// # Errors
            /// The problem, as a sentence for the user.
            pub fn by_name<'de, A: serde::Deserializer<'de>>(
                name: &[u8],
                args: A,
                head: impl FnOnce(&'static Kind) -> Result<Head, &'static str>,
            ) -> Option<Result<Self, &'static str>> {
                $(
                    if name == <$ntype as Declared>::KIND.name.as_bytes() {
                        return Some(read::<$ntype, A>(args, head).map(Self::$named));
                    }
                )*
                None
            }
        }

        /// A record as a summary stores it; the names of `numbered` ones are stored once, and these apart.
        #[derive(bitcode::Encode, bitcode::Decode)]
        pub(crate) enum StoredRecord {
            $($named($ntype),)*
            $($hand($htype),)*
        }

        impl StoredRecord {
            /// `None` for a record that is stored apart.
            pub(crate) fn of(record: Record) -> Option<Self> {
                match record {
                    $(Record::$named(of) => Some(Self::$named(of)),)*
                    $(Record::$hand(of) => Some(Self::$hand(of)),)*
                    $(Record::$numbered(_) => None,)*
                }
            }

            pub(crate) fn restored(self) -> Record {
                match self {
                    $(Self::$named(of) => Record::$named(of),)*
                    $(Self::$hand(of) => Record::$hand(of),)*
                }
            }
        }

        $(
            impl From<$ntype> for Record {
                fn from(record: $ntype) -> Self {
                    Self::$named(record)
                }
            }
        )*
        $(
            impl From<$htype> for Record {
                fn from(record: $htype) -> Self {
                    Self::$hand(record)
                }
            }
        )*
        $(
            impl From<$utype> for Record {
                fn from(record: $utype) -> Self {
                    Self::$numbered(record)
                }
            }
        )*
    };
}
pub(crate) use records;
