//! Decodes NVML samples.

use super::ChromeEvent;
use super::Problem;
use super::time;
use crate::GpuDevice;
use crate::GpuSample;

/// The description of a GPU.
pub(super) fn device(event: &ChromeEvent<'_>) -> Result<GpuDevice, Problem> {
    let args: GpuDevice = event
        .args
        .parse()
        .or(Err("the description of a GPU is damaged"))?;
    named(event)?;
    Ok(GpuDevice {
        at_ns: time(event.ts)?,
        ..args
    })
}

/// One sample of a GPU.
pub(super) fn sample(event: &ChromeEvent<'_>) -> Result<GpuSample, Problem> {
    let args: GpuSample = event.args.parse().or(Err("a sample of a GPU is damaged"))?;
    named(event)?;
    Ok(GpuSample {
        at_ns: time(event.ts)?,
        ..args
    })
}

/// Without its number it would count for the first GPU.
fn named(event: &ChromeEvent<'_>) -> Result<(), Problem> {
    match event.args.member("gpu").is_missing() {
        true => Err("the index of a GPU is missing"),
        false => Ok(()),
    }
}
