//! The program as its users run it. `scripts/test.sh cluster` builds what it needs.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod chaos;
mod job;
#[expect(unreachable_pub, reason = "of the library tests/kit")]
#[path = "../../../tests/kit/src/limit.rs"]
mod limit;
mod peer;
mod plans;
mod query;
mod s3;
mod sender;
mod strangers;
