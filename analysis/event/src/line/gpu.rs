//! NVML samples as counters for timelines.
//!
//! Owns the last value of each counter: viewers show a counter until its next sample, so only
//! changes are written. Our reader reads the record instead.

use super::{EventHead, NO_PROCESS, SEPARATOR};
use crate::GpuSample;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::io;

/// The counters last written of each GPU.
#[derive(Debug, Default)]
pub(super) struct GpuTracks(HashMap<(u32, &'static str), String>);

impl GpuTracks {
    /// Appends the counters of one sample that changed.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, sample: &GpuSample) -> io::Result<()> {
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        let utilization = [
            ("kernels %", number(sample.utilization_percent)),
            ("memory %", number(sample.memory_utilization_percent)),
        ];
        let memory = [("used MiB", sample.memory_used_bytes.map(mebibytes))];
        let power = [("W", sample.power_mw.map(watts))];
        let clocks = [
            ("SM MHz", number(sample.sm_clock_mhz)),
            ("memory MHz", number(sample.memory_clock_mhz)),
        ];
        let pcie = [
            ("received KB/s", number(sample.pcie_rx_kb_per_s)),
            ("sent KB/s", number(sample.pcie_tx_kb_per_s)),
        ];
        self.counter(out, sample, "utilization", &utilization)?;
        self.counter(out, sample, "memory", &memory)?;
        self.counter(out, sample, "power", &power)?;
        self.counter(out, sample, "clocks", &clocks)?;
        self.counter(out, sample, "PCIe", &pcie)
    }

    /// Appends a counter with its series that have a value, if it differs from the last one
    /// written.
    fn counter(
        &mut self,
        out: &mut Vec<u8>,
        sample: &GpuSample,
        what: &'static str,
        series: &[(&str, Option<String>)],
    ) -> io::Result<()> {
        let members: Vec<String> = series
            .iter()
            .filter_map(|(name, value)| Some(format!(r#""{name}":{}"#, value.as_ref()?)))
            .collect();
        let args = format!("{{{}}}", members.join(","));
        let shown = self.0.entry((sample.device, what)).or_default();
        if members.is_empty() || *shown == args {
            return Ok(());
        }
        out.extend_from_slice(SEPARATOR);
        let name = format!("GPU {} {what}", sample.device);
        let values: &RawValue = serde_json::from_str(&args)?;
        EventHead::counter(&name, NO_PROCESS, sample.at_ns).push(out, values)?;
        *shown = args;
        Ok(())
    }
}

fn mebibytes(bytes: u64) -> String {
    (bytes >> 20).to_string()
}

/// Milliwatts as watts, without going through a float.
fn watts(milliwatts: u32) -> String {
    format!("{}.{:03}", milliwatts / 1000, milliwatts % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(timelines: &mut GpuTracks, sample: &GpuSample) -> Vec<(String, String)> {
        let mut out = b"[{}".to_vec();
        timelines.push(&mut out, sample).unwrap();
        out.push(b']');
        let events: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
        events
            .iter()
            .filter(|event| event["ph"] == "C")
            .map(|event| {
                let name = event["name"].as_str().unwrap().to_owned();
                (name, event["args"].to_string())
            })
            .collect()
    }

    #[test]
    fn counters_are_written_when_they_change() {
        let sample = GpuSample {
            device: 3,
            utilization_percent: Some(97),
            memory_used_bytes: Some(5 << 20),
            power_mw: Some(312_045),
            ..GpuSample::default()
        };
        let mut timelines = GpuTracks::default();
        let shown = |name: &str, args: &str| (format!("GPU 3 {name}"), args.to_owned());
        assert_eq!(
            counters(&mut timelines, &sample),
            [
                shown("utilization", r#"{"kernels %":97}"#),
                shown("memory", r#"{"used MiB":5}"#),
                shown("power", r#"{"W":312.045}"#),
            ]
        );
        assert_eq!(counters(&mut timelines, &sample), []);
        let later = GpuSample { utilization_percent: Some(0), ..sample };
        let change = [shown("utilization", r#"{"kernels %":0}"#)];
        assert_eq!(counters(&mut timelines, &later), change);
    }
}
