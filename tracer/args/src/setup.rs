//! The command line of `gctrace setup`.

use clap::Args;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo \"$(command -v gctrace)\" setup          from a virtual environment, for all users
  gctrace setup --prefix ~/.local             for one user
  sudo gctrace setup --uninstall";

/// Options of `gctrace setup`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct SetupConfig {
    /// Folder for bin, lib/gctrace and share; created if needed
    #[arg(long, hide = true, value_name = "DIR", default_value = "/usr/local")]
    pub prefix: PathBuf,
    /// Remove what setup installed there
    #[arg(long)]
    pub uninstall: bool,
}
