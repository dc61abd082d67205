//! Shared by the integration tests of gctrace's crates: interpreters, processes with a time limit,
//! recordings, rings, the simulated GPU, and records.
//!
//! ```no_run
//! use test_kit::interpreters;
//! use test_kit::limit::WithTimeout as _;
//!
//! for python in interpreters::interpreters("this_test") {
//!     let output = python.command("import gc; gc.collect()").output_in_time();
//!     assert!(output.is_ok_and(|output| output.status.success()));
//! }
//! ```
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what fails here fails the test"
)]

#[cfg(feature = "recording")]
pub mod docs;
#[cfg(feature = "reports")]
pub mod garbage;
#[cfg(feature = "heap")]
pub mod heap;
pub mod interpreters;
#[cfg(any(feature = "preload", feature = "recording"))]
pub mod library;
pub mod limit;
pub mod optimizer;
#[cfg(feature = "preload")]
pub mod preload;
#[cfg(feature = "recording")]
pub mod recording;
pub mod records;
#[cfg(feature = "reports")]
pub mod reports;
pub mod schema;
#[cfg(feature = "simulator")]
pub mod simulator;
