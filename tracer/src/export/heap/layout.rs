//! Where boxes and arrows of a picture go: layers from top to bottom, few crossings, arrows that
//! avoid boxes.
//!
//! The method of Sugiyama, Tagawa and Toda ("Methods for visual understanding of hierarchical system
//! structures", IEEE SMC 1981), as graphviz's `dot` uses it too: turn around the arrows that close
//! cycles, put each box a layer below those that refer to it, cut long arrows at each layer, order
//! the layers by the positions of neighbors, then move boxes towards their neighbors. Between two
//! layers of boxes is one for the names of arrows, so that names overlap nothing.

use std::cmp::Ordering;

/// Pixels between neighbors in a layer.
const GAP: f64 = 24.0;
/// Sweeps through the layers, down and up. The last one is down: boxes are below what refers to them.
const SWEEPS: usize = 25;
/// Room of an arrow that passes a layer.
const NO_NAME: Size = Size { width: 8.0, height: 0.0 };

/// A box or a name, with its size in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    pub width: f64,
    pub height: f64,
}

/// A point, in pixels from the top left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
}

/// An arrow to lay out: two boxes, and the size of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrow {
    pub from: usize,
    pub to: usize,
    pub name: Size,
}

/// The result.
#[derive(Debug, PartialEq)]
pub(super) struct Layout {
    pub size: Size,
    /// Centers of the boxes.
    pub boxes: Vec<Point>,
    /// Of each arrow its way from box to box; empty if it leads to where it comes from.
    pub ways: Vec<Vec<Point>>,
    /// Centers of the arrows' names.
    pub names: Vec<Point>,
}

/// A place in a layer: a box, or an arrow on its way.
#[derive(Debug)]
struct Place {
    layer: usize,
    size: Size,
    /// Places in the layer above and below that it is connected to.
    above: Vec<usize>,
    below: Vec<usize>,
    /// Part of an arrow, not a box.
    is_way: bool,
    x: f64,
}

/// The places of an arrow, from box to box; none if it leads to where it comes from.
#[derive(Debug, Default)]
struct Way {
    places: Vec<usize>,
    /// The one that has the arrow's name.
    named: Option<usize>,
}

/// Lays out a picture. Arrows from a box to itself are beside it; `boxes` must have room for them.
pub(super) fn layout(boxes: &[Size], arrows: &[Arrow]) -> Layout {
    let layers = layers(boxes.len(), arrows);
    let mut places: Vec<Place> = boxes
        .iter()
        .zip(&layers)
        .map(|(size, layer)| Place {
            layer: layer * 2,
            size: *size,
            above: Vec::new(),
            below: Vec::new(),
            is_way: false,
            x: 0.0,
        })
        .collect();
    let ways: Vec<Way> = arrows.iter().map(|arrow| cut(*arrow, &mut places)).collect();
    let mut rows = rows(&places);
    order(&mut rows, &places);
    align(&rows, &mut places);
    let heights = heights(&rows, &places);
    let point = |place: usize| Point { x: places[place].x, y: heights[places[place].layer] };
    let way = |way: &Way| way.places.iter().map(|place| point(*place)).collect();
    let name = |way: &Way| way.named.map(point).unwrap_or_default();
    let right = |place: &Place| place.x + place.size.width / 2.0;
    let last = rows.last().into_iter().flatten();
    let low = last.map(|place| places[*place].size.height / 2.0).fold(0.0, f64::max);
    Layout {
        size: Size {
            width: places.iter().map(right).fold(0.0, f64::max),
            height: heights.last().map_or(0.0, |y| y + low),
        },
        boxes: (0..boxes.len()).map(point).collect(),
        ways: ways.iter().map(way).collect(),
        names: ways.iter().map(name).collect(),
    }
}

/// The layer of each box: below all that refer to it, but for arrows that close a cycle.
fn layers(boxes: usize, arrows: &[Arrow]) -> Vec<usize> {
    let is_back = back(boxes, arrows);
    let mut layers = vec![0; boxes];
    // At most as many rounds as there are layers.
    for _ in 0..boxes {
        let before = layers.clone();
        for (arrow, is_back) in arrows.iter().zip(&is_back) {
            let (upper, lower) =
                if *is_back { (arrow.to, arrow.from) } else { (arrow.from, arrow.to) };
            if upper != lower {
                layers[lower] = layers[lower].max(layers[upper] + 1);
            }
        }
        if layers == before {
            break;
        }
    }
    layers
}

/// Which arrows lead back to a box that a depth-first search is still in.
fn back(boxes: usize, arrows: &[Arrow]) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut states = vec![State::New; boxes];
    let mut is_back = vec![false; arrows.len()];
    for start in 0..boxes {
        let mut stack = Vec::new();
        if states[start] == State::New {
            states[start] = State::Open;
            stack.push((start, 0));
        }
        while let Some((at, next)) = stack.last_mut() {
            let mut arrows = arrows.iter().enumerate().filter(|(_, arrow)| arrow.from == *at);
            match arrows.nth(*next) {
                None => {
                    states[*at] = State::Done;
                    stack.pop();
                }
                Some((position, arrow)) => {
                    *next += 1;
                    match states[arrow.to] {
                        State::New => {
                            states[arrow.to] = State::Open;
                            stack.push((arrow.to, 0));
                        }
                        State::Open => is_back[position] = true,
                        State::Done => {}
                    }
                }
            }
        }
    }
    is_back
}

/// Gives an arrow a place in each layer between its boxes; one in the middle has its name.
fn cut(arrow: Arrow, places: &mut Vec<Place>) -> Way {
    if arrow.from == arrow.to {
        return Way::default();
    }
    let is_down = places[arrow.from].layer < places[arrow.to].layer;
    let (upper, lower) = if is_down { (arrow.from, arrow.to) } else { (arrow.to, arrow.from) };
    let (top, bottom) = (places[upper].layer, places[lower].layer);
    let middle = top + (bottom - top) / 2;
    // Names are between layers of boxes.
    let layer_of_name = middle - usize::from(middle % 2 == 0);
    let mut way = Way { places: vec![upper], named: None };
    for layer in top + 1..bottom {
        let place = places.len();
        let is_named = layer == layer_of_name;
        places.push(Place {
            layer,
            size: if is_named { arrow.name } else { NO_NAME },
            above: Vec::new(),
            below: Vec::new(),
            is_way: true,
            x: 0.0,
        });
        way.places.push(place);
        if is_named {
            way.named = Some(place);
        }
    }
    way.places.push(lower);
    for pair in way.places.windows(2) {
        if let [above, below] = pair {
            places[*above].below.push(*below);
            places[*below].above.push(*above);
        }
    }
    if !is_down {
        way.places.reverse();
    }
    way
}

/// The places of each layer, in any order.
fn rows(places: &[Place]) -> Vec<Vec<usize>> {
    let last = places.iter().map(|place| place.layer).max();
    let mut rows = vec![Vec::new(); last.map_or(0, |last| last + 1)];
    for (index, place) in places.iter().enumerate() {
        rows[place.layer].push(index);
    }
    rows
}

/// Orders each layer by the mean position of neighbors, down and up again; keeps the best.
fn order(rows: &mut Vec<Vec<usize>>, places: &[Place]) {
    let mut best = rows.clone();
    let mut fewest = crossings(rows, places);
    for sweep in 0..SWEEPS {
        let is_down = sweep % 2 == 0;
        let mut layers: Vec<usize> = (0..rows.len()).collect();
        if !is_down {
            layers.reverse();
        }
        let mut position = vec![0.0; places.len()];
        for layer in layers {
            let row = &mut rows[layer];
            let mean = |place: usize, own: f64| {
                let place = &places[place];
                let neighbors = if is_down { &place.above } else { &place.below };
                match neighbors.len() {
                    0 => own,
                    count => {
                        let sum: f64 = neighbors.iter().map(|at| position[*at]).sum();
                        sum / count as f64
                    }
                }
            };
            let keyed = row.iter().enumerate().map(|(own, at)| (mean(*at, own as f64), *at));
            let mut keyed: Vec<(f64, usize)> = keyed.collect();
            keyed.sort_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(Ordering::Equal));
            *row = keyed.into_iter().map(|(_, at)| at).collect();
            for (own, at) in row.iter().enumerate() {
                position[*at] = own as f64;
            }
        }
        let crossings = crossings(rows, places);
        if crossings < fewest {
            fewest = crossings;
            best.clone_from(rows);
        }
    }
    *rows = best;
}

/// Pairs of lines between neighboring layers that cross.
fn crossings(rows: &[Vec<usize>], places: &[Place]) -> usize {
    let mut position = vec![0; places.len()];
    for row in rows {
        for (own, at) in row.iter().enumerate() {
            position[*at] = own;
        }
    }
    let lines = |row: &Vec<usize>| -> Vec<(usize, usize)> {
        let of = |at: &usize| {
            let position = position[*at];
            let below = places[*at].below.iter();
            below.map(move |below| (position, *below)).collect::<Vec<_>>()
        };
        let lines = row.iter().flat_map(of);
        lines.map(|(own, below)| (own, position[below])).collect()
    };
    let crossed = |row| {
        let lines = lines(row);
        let pairs = lines
            .iter()
            .enumerate()
            .flat_map(|(at, line)| lines[at + 1..].iter().map(move |other| (*line, *other)));
        pairs
            .filter(|((a, below_a), (b, below_b))| {
                (a < b && below_a > below_b) || (a > b && below_a < below_b)
            })
            .count()
    };
    rows.iter().map(crossed).sum()
}

/// Moves places towards their neighbors, keeping order and distance.
fn align(rows: &[Vec<usize>], places: &mut [Place]) {
    for row in rows {
        set(row, places, &vec![0.0; row.len()]);
    }
    for sweep in 0..SWEEPS {
        let is_down = sweep % 2 == 0;
        let mut layers: Vec<usize> = (0..rows.len()).collect();
        if !is_down {
            layers.reverse();
        }
        for layer in layers {
            let wish = |at: &usize| {
                let place = &places[*at];
                let neighbors = if is_down { &place.above } else { &place.below };
                let sum: f64 = neighbors.iter().map(|at| places[*at].x).sum();
                match neighbors.len() {
                    0 => place.x,
                    count => sum / count as f64,
                }
            };
            let wishes: Vec<f64> = rows[layer].iter().map(wish).collect();
            set(&rows[layer], places, &wishes);
        }
    }
    let left = |place: &Place| place.x - place.size.width / 2.0;
    let least = places.iter().map(left).fold(f64::INFINITY, f64::min);
    for place in places {
        place.x -= if least.is_finite() { least } else { 0.0 };
    }
}

/// Puts the places of a layer as near to their wishes as order and distance allow: least squares by
/// pooling neighbors that would overlap (Ayer et al. 1955), arrows weighing more than boxes, which
/// makes them straight.
fn set(row: &[usize], places: &mut [Place], wishes: &[f64]) {
    struct Pool {
        sum: f64,
        weight: f64,
        count: usize,
    }
    // Where each place is from the first one, if all are packed.
    let mut offsets = Vec::new();
    let mut offset = 0.0;
    for (index, at) in row.iter().enumerate() {
        if let Some(before) = index.checked_sub(1).and_then(|before| row.get(before)) {
            offset += (places[*before].size.width + places[*at].size.width) / 2.0 + GAP;
        }
        offsets.push(offset);
    }
    let mut pools: Vec<Pool> = Vec::new();
    for ((at, offset), wish) in row.iter().zip(&offsets).zip(wishes) {
        let weight = if places[*at].is_way { 4.0 } else { 1.0 };
        pools.push(Pool { sum: (wish - offset) * weight, weight, count: 1 });
        while let [.., before, last] = pools.as_slice()
            && before.sum / before.weight > last.sum / last.weight
        {
            let (sum, weight, count) = (last.sum, last.weight, last.count);
            pools.pop();
            if let Some(before) = pools.last_mut() {
                before.sum += sum;
                before.weight += weight;
                before.count += count;
            }
        }
    }
    let starts =
        pools.iter().flat_map(|pool| std::iter::repeat_n(pool.sum / pool.weight, pool.count));
    for ((at, offset), start) in row.iter().zip(&offsets).zip(starts) {
        places[*at].x = start + offset;
    }
}

/// The middle of each layer.
fn heights(rows: &[Vec<usize>], places: &[Place]) -> Vec<f64> {
    /// Pixels between a layer of boxes and one of names.
    const BETWEEN: f64 = 18.0;
    let mut heights = Vec::new();
    let mut bottom = 0.0;
    for row in rows {
        let sizes = row.iter().map(|at| places[*at].size.height);
        let height = sizes.fold(0.0, f64::max);
        heights.push(bottom + height / 2.0);
        bottom += height + BETWEEN;
    }
    heights
}

#[cfg(test)]
mod tests;
