//! Tests that need no privileges.

mod records;
mod ring;
