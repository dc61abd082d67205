//! PyTorch's memory by layer in the selected process, below the objects that the collector frees.

use super::{plain, styled};
use crate::top::view::{text, theme};
use crate::units;
use gctrace_analysis::live::ProcessDetail;
use gctrace_analysis::words::layers::name;
use ratatui::text::Line;

/// Layers shown.
const LAYERS: usize = 5;
/// Characters before the name of a layer.
const BEFORE: usize = 27;

/// All lines, for a pane of `width` columns; empty without a measured step.
pub(super) fn lines(detail: &ProcessDetail, width: usize) -> Vec<Line<'static>> {
    let Some(layers) = &detail.layers else {
        return Vec::new();
    };
    let heading = format!(
        "AT ONCE  WEIGHTS    SAVED  LAYER (STEP {}: {} IN ALL)",
        units::count(layers.step),
        text::memory(layers.totals.at_once())
    );
    let heading = Line::from(styled(text::cut(&heading, width), theme::bold()));
    let room = text::rest(width, BEFORE);
    let rows = layers.layers.iter().take(LAYERS).map(|layer| {
        let bytes = layer.bytes;
        let sizes = [Some(bytes.at_once()), Some(bytes.weights), bytes.saved];
        let sizes = sizes.map(|size| match size {
            Some(size @ 1..) => text::memory(size),
            _ => String::new(),
        });
        let [all, weights, saved] = sizes.map(|size| text::fill(&size, 7, false));
        let what = text::cut(&text::clean(&format!("{} {}", name(layer), layer.type_name)), room);
        Line::from(vec![plain(format!("{all}  {weights}  {saved}  {what}"))])
    });
    [Line::default(), heading].into_iter().chain(rows).collect()
}
