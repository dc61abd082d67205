//! PyTorch's memory by layer: the layers of the step that held the most as tiles, and the sums of the measured
//! steps over time.

use crate::print::clean;
use gctrace_analysis::report::{LayerTotals, Report};
use gctrace_analysis::words::layers::name as name_of;
use gctrace_analysis::{CommonClock, PausedProcess};
use serde::Serialize;

/// Processes whose layers are drawn: ranks of a job are much alike.
const DRAWN: usize = 4;
/// Tiles of a process; smaller layers are left out of the picture.
const TILES: usize = 300;

/// The layers of a process, in bytes by kind: weights, saved (`None` if unknown), gradients, optimizer state,
/// buffers.
#[derive(Serialize)]
pub(super) struct LayersData {
    name: String,
    /// The step that held the most.
    step: u64,
    /// Of each layer its name, class and bytes; the largest first.
    layers: Vec<(String, String, [Option<u64>; 5])>,
    /// Of each measured step its end, number and bytes.
    steps: Vec<(u64, u64, [Option<u64>; 5])>,
}

impl LayersData {
    /// Of all processes with layers; `name` is theirs.
    pub(super) fn of(
        report: &Report,
        clock: &CommonClock,
        name: fn(&PausedProcess) -> String,
    ) -> Vec<Self> {
        let with = report.processes.iter().filter_map(|process| {
            let measured = process.layers.as_ref()?;
            let held = measured.layers.iter().filter(|layer| layer.bytes.at_once() > 0);
            let layers = held.take(TILES).map(|layer| {
                (clean_of(&name_of(layer)), clean_of(&layer.type_name), kinds(&layer.bytes))
            });
            let steps = measured.over_time.iter().map(|point| {
                let at_ns = clock.after_start(process.trace, point.since_start_ns);
                (at_ns, point.step, kinds(&point.totals))
            });
            let of =
                PausedProcess { trace: process.trace, pid: Some(process.pid), rank: process.rank };
            Some(Self {
                name: name(&of),
                step: measured.step,
                layers: layers.collect(),
                steps: steps.collect(),
            })
        });
        with.filter(|data| !data.layers.is_empty()).take(DRAWN).collect()
    }
}

fn clean_of(name: &str) -> String {
    clean::line(name).into_owned()
}

fn kinds(bytes: &LayerTotals) -> [Option<u64>; 5] {
    let LayerTotals { weights, saved, gradients, optimizer, buffers, .. } = *bytes;
    [Some(weights), saved, Some(gradients), Some(optimizer), Some(buffers)]
}
