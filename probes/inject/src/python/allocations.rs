//! Counting allocations.
use super::api::Api;
pub(super) fn install(_api: &'static Api) {}
