//! Declares messages: each type, each kind, once.
//!
//! The declarations are a part of the ring's version (`MAGIC` in `layout.rs`). A change of the packing has to be
//! entered there.

/// Structs in messages: their fields, in the order of their bytes. `as time`: of CLOCK_MONOTONIC, in ns; read on the
/// reader's clock.
macro_rules! packed {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident {
            $($(#[doc = $doc:literal])* pub $field:ident: $type:ty $(as $role:ident)?,)*
        }
    )*) => {
        /// The declarations, as text.
        pub(super) const STRUCTS: &str = concat!($(
            stringify!($name), $(stringify!($field: $type $(as $role)?),)*
        )*);

        $(
        $(#[$about])*
        pub struct $name {
            $($(#[doc = $doc])* pub $field: $type,)*
        }

        impl $crate::message::pack::Packed for $name {
            fn pack(&self, to: &mut impl $crate::message::pack::Pack) {
                $($crate::message::pack::Packed::pack(&self.$field, to);)*
            }

            fn unpack(from: &mut $crate::message::pack::Unpack<'_>) -> Option<Self> {
                Some(Self {
                    $($field: $crate::message::messages::unpacked!(from, $type $(as $role)?),)*
                })
            }
        }
        )*
    };
}

/// A field, taken from the bytes.
macro_rules! unpacked {
    ($from:ident, $type:ty) => {
        <$type as $crate::message::pack::Packed>::unpack($from)?
    };
    ($from:ident, $type:ty as time) => {
        $from.time()?
    };
}

/// The kinds of messages of a ring: number, the kind that counts a loss, name, and fields or a struct.
macro_rules! messages {
    (
        $(#[$about:meta])*
        pub enum $ring:ident in $role:path {
            $(
                $(#[doc = $doc:literal])*
                $number:literal [$($lost:ident)?] $kind:ident
                $(($payload:ident: $struct:ty))?
                $({ $($(#[doc = $field_doc:literal])* $field:ident: $type:ty $(as $how:ident)?,)* })?
            )*
        }
    ) => {
        /// The declarations, as text.
        pub(super) const KINDS: &str = concat!($(
            stringify!($number $kind), $(stringify!($struct),)?
            $($(stringify!($field: $type $(as $how)?),)*)?
        )*);

        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $ring {
            $(
                $(#[doc = $doc])*
                $kind
                $(($struct))?
                $({ $($(#[doc = $field_doc])* $field: $type,)* })?,
            )*
        }

        impl $crate::message::Message for $ring {
            const ROLE: $crate::RingRole = $role;
            const NUMBERS: &'static [u8] = &[$($number),*];

            fn text(id: $crate::TextId, text: Box<str>) -> Self {
                Self::Text { id, text }
            }

            fn number(&self) -> u8 {
                match self {
                    $(Self::$kind { .. } => $number,)*
                }
            }

            fn lost_kind(number: u8) -> Option<$crate::LostKind> {
                match number {
                    $($($number => Some($lost),)?)*
                    _ => None,
                }
            }

            fn pack(&self, to: &mut impl $crate::message::pack::Pack) {
                match self {
                    $(
                        Self::$kind $(($payload))? $({ $($field),* })? => {
                            $($crate::message::pack::Packed::pack($payload, to);)?
                            $($($crate::message::pack::Packed::pack($field, to);)*)?
                        }
                    )*
                }
            }

            fn take(number: u8, from: &mut $crate::message::pack::Unpack<'_>) -> Option<Self> {
                Some(match number {
                    $(
                        $number => Self::$kind
                            $((<$struct as $crate::message::pack::Packed>::unpack(from)?))?
                            $({
                                $($field: $crate::message::messages::unpacked!(from, $type $(as $how)?),)*
                            })?,
                    )*
                    _ => return None,
                })
            }
        }
    };
}

pub(super) use messages;
pub(super) use packed;
pub(super) use unpacked;
