//! Tests that need no privileges.

mod ring;
