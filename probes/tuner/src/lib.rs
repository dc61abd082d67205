//! The right setting, found and proven while the program runs: decided from figures alone, without
//! Python and clocks.
//!
//! - `controller`: blocks of steps, one after the other; `gauge`: its questions and actions;
//! - `watch`: with the program's own settings; `explore`: the search for the best setting;
//! - `compare`: named settings, with the first of them;
//! - `hold`: whether the best setting gains, and how much; `decide`: conclusions from both; `block`: their blocks;
//!   `pairs`: two of these;
//! - `price`: what a block of steps costs; `mixture`: whether pairs of blocks differ; `coin`: their
//!   order;
//! - `guard`: memory; `report`: the report; `outside`: what others do; `ranks`: ranks that do as rank 0 does.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod block;
mod compare;
mod controller;
mod decide;
mod explore;
mod gauge;
mod guard;
mod hold;
mod outside;
mod pairs;
mod price;
mod ranks;
mod report;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod watch;

pub use controller::Controller;
pub use gauge::{Action, DeviceMemory, Gauge};
pub use price::{Figures, MeasuredFull, Thresholds};
pub use ranks::{Follower, RankOrders};
