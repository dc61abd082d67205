use super::*;
use crate::leak_watch::LeakWatch;
use crate::leak_watch::tests::Noise;
use crate::stacks::TraceFrames;
use gctrace_event::Frame;

const S: u64 = 1_000_000_000;
const HOUR_S: u64 = 3_600;
const EVERY: u64 = 256;
/// Samples from which on the library drops every second one.
const MOST_SAMPLES: u64 = 4_096;
/// Lines of the service: what set-up built, what requests use for themselves, what leaks.
const SET_UP: u32 = 10;
const REQUESTS: u32 = 20;
const LEAK: u32 = 30;

/// How many of so many are sampled.
fn hits(noise: &mut Noise, of: u64, one_in: u64) -> u64 {
    (0..of).filter(|_| noise.uniform() * (one_in as f64) < 1.0).count() as u64
}

/// A service of an hour as the library samples it: what it keeps by a look every 30 s.
fn service(seed: u32, built: u64, leaks_per_s: u64) -> HeapTrend {
    let mut noise = Noise(seed);
    let (mut tree, mut frames) = (StackTree::default(), TraceFrames::default());
    for line in [SET_UP, REQUESTS, LEAK] {
        let place = Frame {
            id: line,
            parent: None,
            function: "serve".into(),
            file: "serve.py".into(),
            line: Some(line),
        };
        frames.add(place, &mut tree);
    }
    let (mut alive, mut watch) = (AliveByLine::default(), LeakWatch::default());
    let mut samples = [hits(&mut noise, built, EVERY), 0];
    let mut stands_for = EVERY;
    for at_s in (0..HOUR_S).step_by(30) {
        samples[1] += hits(&mut noise, 30 * leaks_per_s, stands_for);
        if samples.iter().sum::<u64>() > MOST_SAMPLES {
            samples = samples.map(|count| hits(&mut noise, count, 2));
            stands_for *= 2;
        }
        let lines = [
            (SET_UP, samples[0] * stands_for),
            (REQUESTS, hits(&mut noise, 2_000, EVERY) * EVERY),
            (LEAK, samples[1] * stands_for),
        ];
        let lines = lines.map(|(line, objects)| (line, objects, objects * 64)).to_vec();
        let look = AliveLines { pid: 1, at_ns: at_s * S, lines };
        alive.add(&look, |frame| frames.resolve(frame, &mut tree));
        watch.resident(at_s * S, (1 << 30) + 64 * (built + at_s * leaks_per_s));
        watch.objects(at_s * S, built);
    }
    let life = WatchedLife { until_ns: HOUR_S * S, ..WatchedLife::default() };
    let mut heap = watch.trend(&life).unwrap();
    alive.explain(&mut heap, &tree, &life);
    heap
}

#[test]
fn the_line_of_a_leak_is_found_and_no_other() {
    for seed in 1..30 {
        for (built, leaks_per_s) in [(10_000, 100), (300_000, 100), (900_000, 300)] {
            let heap = service(seed, built, leaks_per_s);
            let lines: Vec<Option<u32>> =
                heap.lines.iter().map(|line| line.location.line).collect();
            assert_eq!(lines, [Some(LEAK)], "{seed}, {built}: {heap:?}");
            let per_s = heap.lines[0].objects.per_s / leaks_per_s as f64;
            assert!((0.7..1.4).contains(&per_s), "{seed}, {built}: {per_s}");
            // Texts, for example, are objects that the collector does not count.
            assert_eq!(heap.outside_python, Some(false), "{seed}, {built}");
        }
    }
}

#[test]
fn without_growth_no_line_grows() {
    for seed in 1..30 {
        let heap = service(seed, 300_000, 0);
        assert!(!heap.rises() && heap.lines.is_empty(), "{seed}: {heap:?}");
    }
}
