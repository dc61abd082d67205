use super::*;
use proptest::prelude::*;

const BOX: Size = Size { width: 80.0, height: 40.0 };
const NAME: Size = Size { width: 50.0, height: 15.0 };

fn arrows(pairs: &[(usize, usize)]) -> Vec<Arrow> {
    let arrow = |(from, to): &(usize, usize)| Arrow { from: *from, to: *to, name: NAME };
    pairs.iter().map(arrow).collect()
}

fn overlaps(a: (Point, Size), b: (Point, Size)) -> bool {
    let apart = |a: f64, b: f64, sum: f64| (a - b).abs() >= sum / 2.0 - 1e-6;
    !apart(a.0.x, b.0.x, a.1.width + b.1.width) && !apart(a.0.y, b.0.y, a.1.height + b.1.height)
}

#[test]
fn a_path_is_straight() {
    let laid = layout(&[BOX; 4], &arrows(&[(0, 1), (1, 2), (2, 3)]));
    assert!(laid.boxes.iter().all(|center| center.x == laid.boxes[0].x));
    assert!(laid.boxes.is_sorted_by(|a, b| a.y < b.y));
}

#[test]
fn a_ring_has_one_way_up() {
    let laid = layout(&[BOX; 3], &arrows(&[(0, 1), (1, 2), (2, 0)]));
    assert!(laid.boxes.is_sorted_by(|a, b| a.y < b.y));
    let up = &laid.ways[2];
    assert!(up.is_sorted_by(|a, b| a.y > b.y), "{up:?}");
}

proptest! {
    #[test]
    fn nothing_overlaps(
        boxes in 1..20_usize,
        pairs in proptest::collection::vec((0..20_usize, 0..20_usize), 0..40),
    ) {
        let pairs: Vec<_> = pairs.iter().map(|(from, to)| (from % boxes, to % boxes)).collect();
        let arrows = arrows(&pairs);
        let laid = layout(&vec![BOX; boxes], &arrows);
        let mut drawn: Vec<(Point, Size)> = laid.boxes.iter().map(|center| (*center, BOX)).collect();
        for (arrow, name) in arrows.iter().zip(&laid.names) {
            if arrow.from != arrow.to {
                drawn.push((*name, NAME));
            }
        }
        for (at, own) in drawn.iter().enumerate() {
            prop_assert!(own.0.x.is_finite() && own.0.y.is_finite());
            prop_assert!(own.0.x + own.1.width / 2.0 <= laid.size.width + 1e-6);
            prop_assert!(own.0.y + own.1.height / 2.0 <= laid.size.height + 1e-6);
            for other in &drawn[at + 1..] {
                prop_assert!(!overlaps(*own, *other), "{:?} {:?}", own, other);
            }
        }
        for (arrow, way) in arrows.iter().zip(&laid.ways) {
            if arrow.from != arrow.to {
                prop_assert_eq!(way.first(), laid.boxes.get(arrow.from));
                prop_assert_eq!(way.last(), laid.boxes.get(arrow.to));
            }
        }
    }
}
