//! PyTorch's memory by layer of one process.

pub mod words;

use crate::bounded::{ThinnedSeries, ranked};
use crate::time::{add_known, add_to, duration_ns, sum};
use gctrace_event::{AllocatorMemory, LayerMark, LayerRow, Layers, LayersRemark};
use gctrace_stats::ratio;
use serde::Serialize;
use std::collections::BTreeSet;

/// PyTorch's memory by layer (`--layers`), measured in some steps of one process. Bytes are sizes of storages, each
/// counted once: tied weights count at the first layer that has them.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayersReport {
    /// Steps that were measured.
    pub measured_steps: u64,
    /// Number of the measured step that held the most at once, the first if several did. `layers` and `totals` are
    /// about this step.
    pub step: u64,
    /// Each how many-th step was measured at last; `null` if unknown.
    pub every: Option<u32>,
    /// Time that measuring took, in ns.
    pub cost_ns: u64,
    /// `cost_ns` / the observed time of the process, 0 to 1; `null` if too little was observed.
    pub cost_ratio: Option<f64>,
    /// Sums over the layers of that step.
    pub totals: LayerTotals,
    /// Weights, gradients, buffers and optimizer state at the end of the process; `null` if it did not end in
    /// order, or the models were gone.
    pub at_end: Option<LayerTotals>,
    /// The layers of that step, most bytes at once first; at most 1,100. The last may be the sum of others.
    pub layers: Vec<LayerReport>,
    /// Limits of the figures, or hints for reading them, in any measured step: `saved_forbidden`, `own_hooks`,
    /// `compiled`, `sharded`, `replicated`, `zero`, `quantized`, `sparse`, `inference`, `several_models`,
    /// `no_optimizer`, `several_optimizers`, `several_passes`, `other_threads`.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub remarks: Vec<LayersRemark>,
    /// Memory of its GPUs by the caching allocator, as of the last measured step.
    pub devices: Vec<AllocatorMemory>,
    /// The sums of measured steps in order, at most 1,000, evenly spread.
    pub over_time: Vec<LayersPoint>,
}

/// Memory of all layers, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayerTotals {
    /// Parameters.
    pub weights: u64,
    /// Their gradients at the end of the step.
    pub gradients: u64,
    /// Buffers.
    pub buffers: u64,
    /// The optimizers' state.
    pub optimizer: u64,
    /// Memory saved for a backward pass, at most at once; `null` if unknown.
    pub saved: Option<u64>,
    /// Outputs of modules; saved outputs are in `saved` too. `null` if unknown.
    pub outputs: Option<u64>,
    /// Gradients of these outputs; the backward pass frees each after its use. `null` if unknown.
    pub output_gradients: Option<u64>,
}

impl LayerTotals {
    /// Memory held as a backward pass begins, in bytes: everything but outputs (they are saved or freed) and their
    /// gradients.
    pub fn at_once(&self) -> u64 {
        let Self { weights, gradients, buffers, optimizer, saved, .. } = *self;
        sum([weights, gradients, buffers, optimizer].into_iter().chain(saved))
    }
}

/// The latest measured step of a process that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatestLayers {
    /// Its number.
    pub step: u64,
    /// Sums over its layers.
    pub totals: LayerTotals,
    /// Its layers, most bytes at once first, at most 20.
    pub layers: Vec<LayerReport>,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayerReport {
    /// Path in its model; with several models the class of its model first. Empty: the model itself, or, with a mark
    /// `rest` or `no_layer`, the rows that the mark describes.
    pub path: String,
    /// Name of its class; empty if it is of no layer or several.
    pub type_name: String,
    /// Shape of the first tensor that it returned; `null` if it returned none.
    pub shape: Option<String>,
    /// Weights that are another layer's and count there, as in `weight = emb.weight`; `null` without any.
    pub tied: Option<String>,
    /// Device of its weights, or of its model; `null` if unknown.
    pub device: Option<String>,
    /// `frozen`, `offloaded`, `recomputed`, `not_called`, `rest` (the sum of smaller layers), `no_layer`.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub marks: Vec<LayerMark>,
    /// How often its forward ran in the step; for `rest` the number of layers.
    pub calls: u64,
    /// Its memory.
    #[serde(flatten)]
    pub bytes: LayerTotals,
}

/// A measured step.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayersPoint {
    /// Its number.
    pub step: u64,
    /// Number of its epoch, as a variable `epoch` of the program has it; `null` if unknown.
    pub epoch: Option<u32>,
    /// Its end, in ns after the start of the recording.
    pub since_start_ns: u64,
    /// Sums over its layers.
    #[serde(flatten)]
    pub totals: LayerTotals,
    /// Memory of tensors on all GPUs at its end, in bytes; `null` without GPUs.
    pub allocated: Option<u64>,
}

/// Layers of the latest step.
const LATEST: usize = 20;
/// Points of the curve; twice as many are kept before every other one goes.
const POINTS: usize = 1_000;

/// The measured steps of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct LayerSums {
    /// The report without the step that held the most.
    report: LayersReport,
    /// The rows of the last step; the next step's may be the same.
    last: Vec<LayerRow>,
    /// Totals of these rows.
    totals: LayerTotals,
    /// The step that held the most, with its rows.
    most: Option<(u64, LayerTotals, Vec<LayerRow>)>,
    remarks: BTreeSet<LayersRemark>,
    devices: Vec<AllocatorMemory>,
    /// With times of CLOCK_MONOTONIC.
    points: ThinnedSeries<LayersPoint, { 2 * POINTS }>,
}

impl LayerSums {
    pub(crate) fn add(&mut self, layers: Layers) {
        add_to(&mut self.report.cost_ns, layers.cost_ns);
        if !layers.devices.is_empty() {
            self.devices.clone_from(&layers.devices);
        }
        if layers.remarks.contains(&LayersRemark::AtEnd) {
            let rows = layers.rows.unwrap_or_default();
            self.report.at_end = if rows.is_empty() { None } else { Some(totals(&rows, None)) };
            return;
        }
        self.report.measured_steps += 1;
        self.report.every = layers.every.or(self.report.every);
        self.remarks.extend(layers.remarks);
        if let Some(rows) = layers.rows {
            self.totals = totals(&rows, layers.saved_bytes);
            self.last = rows;
        }
        let is_most = |most: &(u64, LayerTotals, _)| self.totals.at_once() > most.1.at_once();
        if self.most.as_ref().is_none_or(is_most) {
            self.most = Some((layers.step, self.totals, self.last.clone()));
        }
        let allocated = layers.devices.iter().map(|device| device.allocated);
        self.points.add(LayersPoint {
            step: layers.step,
            epoch: layers.epoch,
            since_start_ns: layers.at_ns,
            totals: self.totals,
            allocated: allocated.reduce(u64::saturating_add),
        });
    }

    /// `observed_ns`: recorded time of the process.
    pub(crate) fn report(&self, started_ns: u64, observed_ns: u64) -> Option<LayersReport> {
        let (step, totals, rows) = self.most.as_ref()?;
        let layers = largest_first(rows, usize::MAX);
        let points = self.points.points();
        let points = points.iter().step_by(points.len().div_ceil(POINTS).max(1));
        Some(LayersReport {
            step: *step,
            cost_ratio: ratio(self.report.cost_ns.min(observed_ns), observed_ns),
            totals: *totals,
            layers,
            remarks: self.remarks.iter().copied().collect(),
            devices: self.devices.clone(),
            over_time: points
                .map(|point| LayersPoint {
                    since_start_ns: duration_ns(started_ns, point.since_start_ns),
                    ..*point
                })
                .collect(),
            ..self.report.clone()
        })
    }
}

impl LatestLayers {
    /// Adds a measured step; what layers hold as the process ends is none.
    pub fn add(&mut self, layers: &Layers) {
        if layers.remarks.contains(&LayersRemark::AtEnd) {
            return;
        }
        self.step = layers.step;
        if let Some(rows) = &layers.rows {
            self.totals = totals(rows, layers.saved_bytes);
            self.layers = largest_first(rows, LATEST);
        }
    }
}

fn largest_first(rows: &[LayerRow], most: usize) -> Vec<LayerReport> {
    let weight = |layer: &LayerReport| (layer.bytes.at_once(), layer.bytes.outputs);
    ranked(rows.iter().map(layer), most, weight)
}

/// Sums of rows; `saved`: memory saved at once, if known.
fn totals(rows: &[LayerRow], saved: Option<u64>) -> LayerTotals {
    let mut sums = LayerTotals::default();
    for row in rows {
        let bytes = bytes(row);
        add_to(&mut sums.weights, bytes.weights);
        add_to(&mut sums.gradients, bytes.gradients);
        add_to(&mut sums.buffers, bytes.buffers);
        add_to(&mut sums.optimizer, bytes.optimizer);
        add_known(&mut sums.outputs, bytes.outputs);
        add_known(&mut sums.output_gradients, bytes.output_gradients);
    }
    LayerTotals { saved, ..sums }
}

fn bytes(row: &LayerRow) -> LayerTotals {
    let (held, made) = (row.held, row.made);
    LayerTotals {
        weights: held.weights,
        gradients: held.gradients,
        buffers: held.buffers,
        optimizer: held.optimizer,
        saved: made.map(|made| made.saved),
        outputs: made.map(|made| made.outputs),
        output_gradients: made.map(|made| made.output_gradients),
    }
}

fn layer(row: &LayerRow) -> LayerReport {
    LayerReport {
        path: row.path.clone(),
        type_name: row.type_name.clone(),
        shape: row.shape.clone(),
        tied: row.tied.clone(),
        device: row.device.clone(),
        marks: row.marks.clone(),
        calls: row.calls,
        bytes: bytes(row),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::{LayerHeld, LayerMade};

    fn row(path: &str, weights: u64, saved: u64) -> LayerRow {
        LayerRow {
            path: path.to_owned(),
            held: LayerHeld { weights, ..LayerHeld::default() },
            made: Some(LayerMade { saved, ..LayerMade::default() }),
            ..LayerRow::default()
        }
    }

    fn step(step: u64, saved: u64, rows: Option<Vec<LayerRow>>) -> Layers {
        Layers { step, rows, saved_bytes: Some(saved), cost_ns: 5, ..Layers::default() }
    }

    #[test]
    fn the_step_that_held_the_most_is_reported() {
        let mut sums = LayerSums::default();
        assert!(sums.report(0, 100).is_none());
        sums.add(step(2, 10, Some(vec![row("a", 100, 4), row("b", 1, 6)])));
        sums.add(step(12, 10, None));
        sums.add(step(22, 50, Some(vec![row("a", 100, 4), row("b", 1, 46)])));
        sums.add(step(32, 10, Some(vec![row("a", 100, 4), row("b", 1, 6)])));
        let end = LayerRow { made: None, ..row("a", 70, 0) };
        let end = Layers { remarks: vec![LayersRemark::AtEnd], ..step(40, 0, Some(vec![end])) };
        sums.add(end);
        let report = sums.report(0, 1_000).unwrap();
        assert_eq!((report.step, report.measured_steps, report.cost_ns), (22, 4, 25));
        assert_eq!((report.totals.weights, report.totals.saved), (101, Some(50)));
        assert_eq!(report.totals.at_once(), 151);
        assert_eq!(report.at_end.unwrap().weights, 70);
        let order: Vec<&str> = report.layers.iter().map(|layer| &*layer.path).collect();
        assert_eq!(order, ["a", "b"]);
        let steps: Vec<(u64, u64)> =
            report.over_time.iter().map(|point| (point.step, point.totals.at_once())).collect();
        assert_eq!(steps, [(2, 111), (12, 111), (22, 151), (32, 111)]);
        assert!(report.remarks.is_empty());
    }

    /// Tables without end take no memory, and sizes beyond any are the most there is.
    #[test]
    fn the_curve_is_bounded() {
        let mut sums = LayerSums::default();
        for number in 0..9_000 {
            sums.add(step(number, u64::MAX, Some(vec![row("a", u64::MAX, u64::MAX); 2])));
        }
        let report = sums.report(0, 0).unwrap();
        assert!(sums.points.points().len() <= 2 * POINTS && report.over_time.len() <= POINTS);
        assert!(report.over_time.len() > POINTS / 2);
        assert!(report.over_time.is_sorted_by_key(|point| point.step));
        assert_eq!((report.totals.at_once(), report.cost_ratio), (u64::MAX, None));
    }
}
