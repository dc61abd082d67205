//! Tests that need no privileges.

mod messages;
mod ring;
