use super::*;

const S: u64 = 1_000_000_000;
/// The recording of a service.
const HOUR_S: u64 = 3_600;

/// Numbers from 0 to 1; a congruential generator (W. Press et al., Numerical Recipes, 1992).
pub(crate) struct Noise(pub(crate) u32);

impl Noise {
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(self.0 >> 8) / f64::from(1 << 24)
    }

    /// Nearly normal, of variance 1 (Irwin and Hall).
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// Objects as full collections leave them, one every ten seconds.
fn watch(until_s: u64, mut left: impl FnMut(f64) -> f64) -> LeakWatch {
    let mut watch = LeakWatch::default();
    for at_s in (0..until_s).step_by(10) {
        watch.objects(at_s * S, left(at_s as f64) as u64);
    }
    watch
}

fn life(until_s: u64) -> WatchedLife {
    WatchedLife { until_ns: until_s * S, ..WatchedLife::default() }
}

fn objects(watch: &LeakWatch, until_s: u64) -> Option<Trend> {
    watch.trend(&life(until_s))?.objects
}

fn rises(watch: &LeakWatch, until_s: u64) -> bool {
    objects(watch, until_s).is_some_and(|objects| objects.rises)
}

/// Set-up for 600 s, to 800,000 objects, then a slope per hour with noise of 1 %.
fn service(seed: u32, set_up_s: f64, per_hour: f64) -> LeakWatch {
    let mut noise = Noise(seed);
    watch(HOUR_S, |at_s| {
        let built = 800_000.0 * (at_s / set_up_s).min(1.0);
        200_000.0 + built + per_hour * at_s / 3_600.0 + 10_000.0 * noise.normal()
    })
}

#[test]
fn a_leak_is_seen_through_set_up_and_noise() {
    for seed in 1..40 {
        let leaking = service(seed, 10.0 * f64::from(seed), 300_000.0);
        let trend = objects(&leaking, HOUR_S).unwrap();
        assert!(trend.rises, "{seed}: {trend:?}");
        let per_s = 300_000.0 / 3_600.0;
        assert!((trend.per_s - per_s).abs() < per_s / 10.0, "{seed}: {trend:?}");
        assert!(trend.at_least_per_s < per_s * 1.1 && trend.at_most_per_s > per_s * 0.9);
    }
}

/// A leak whose rate halves each twenty minutes is none that goes on, but it is not missed; a level is neither.
#[test]
fn a_leak_that_slows_down_is_stated() {
    for seed in 1..40 {
        let mut noise = Noise(seed);
        let slowing = watch(HOUR_S, |at_s| {
            1e6 + 2e6 * (1.0 - f64::powf(0.5, at_s / 1_200.0)) + 3_000.0 * noise.normal()
        });
        let trend = objects(&slowing, HOUR_S).unwrap();
        assert!(trend.rises || trend.slows, "{seed}: {trend:?}");
        let level = watch(HOUR_S, |_| 1e6 * (1.0 + 0.05 * noise.normal()));
        let level = objects(&level, HOUR_S).unwrap();
        assert!(!level.rises && !level.slows, "{seed}: {level:?}");
    }
}

/// Clean services of an hour: levels, noise, caches that fill, requests that overlap.
#[test]
fn a_clean_service_has_no_leak() {
    for seed in 1..60_u32 {
        let mut noise = Noise(seed);
        let length = 10.0 + 14.0 * f64::from(seed);
        let level = watch(HOUR_S, |_| 1e6 * (1.0 + 0.05 * noise.normal()));
        let filling = watch(HOUR_S, |at_s| 1e6 * (1.1 - (-at_s / length).exp()));
        let loaded = service(seed, length * 2.0, 0.0);
        let curve = watch(HOUR_S, |at_s| 2e5 * (1.0 + at_s / (length / 10.0)).ln());
        let flushed = watch(HOUR_S, |at_s| 1e6 * (1.0 + 0.2 * (at_s % length) / length));
        let stairs = watch(HOUR_S, |at_s| 1e6 + 2e5 * (at_s / length * 3.0).min(4.0).floor());
        let all = [level, filling, loaded, curve, flushed, stairs];
        for (kind, clean) in all.iter().enumerate() {
            assert!(!rises(clean, HOUR_S), "{kind} of {seed}: {:?}", objects(clean, HOUR_S));
        }
    }
}

/// What grew for nearly all of the time, and rests for a few samples at the end, is not forgotten: it slows.
#[test]
fn growth_that_rests_at_last_is_stated() {
    for rests_s in 1..=8 {
        let mut grown = LeakWatch::default();
        for at_s in 0..=61 {
            grown.objects(at_s * S, 1_000_000 + at_s.min(61 - rests_s) * 20_000);
        }
        let trend = objects(&grown, 61).unwrap_or_else(|| panic!("{rests_s}"));
        assert!(trend.rises || trend.slows, "{rests_s}: {trend:?}");
    }
}

/// Full collections while the heap is built, and none once it is flat, as CPython's 25 % rule has it:
/// every sample is of the warm-up.
#[test]
fn a_warm_up_that_alone_was_collected_is_no_leak() {
    for until_s in [20, 40, 600] {
        let built = watch(until_s, |at_s| 1e6 + at_s * 1e4);
        assert!(!rises(&built, HOUR_S), "{until_s} s");
    }
    // Four seconds of set-up, then 36 s in which each collection finds the same.
    let mut short = LeakWatch::default();
    for at_s in [1, 2, 3, 4, 11, 18, 25, 32, 39] {
        short.objects(at_s * S, at_s.min(4) * 241_372);
    }
    assert!(!rises(&short, 40));
}

/// The same rule, and a heap that grows all the time: each full collection comes at 1.25 times
/// the heap of the one before.
#[test]
fn growth_that_goes_on_is_seen_at_few_collections() {
    let mut growing = LeakWatch::default();
    let mut last_s = 0;
    for n in 0..18 {
        last_s = (f64::powi(1.25, n) * 2.0) as u64;
        growing.objects(last_s * S, last_s * 10_000);
    }
    let trend = growing.trend(&life(last_s * 5 / 4)).unwrap();
    assert!(trend.objects.unwrap().rises, "{trend:?}");
    assert!(trend.may_be_set_up(), "two minutes without steps show no leak");
    let known = WatchedLife { set_up_ns: Some(2 * S), ..life(last_s * 5 / 4) };
    assert!(!growing.trend(&known).unwrap().may_be_set_up());
}

#[test]
fn growth_before_the_first_step_does_not_count() {
    let built = watch(600, |at_s| 1e6 + at_s.min(400.0) * 1e4);
    let trained = WatchedLife { set_up_ns: Some(400 * S), ..life(600) };
    assert!(!built.trend(&trained).unwrap().rises());
}

#[test]
fn resident_memory_without_objects_is_outside_python() {
    let native = |objects_per_s: f64| {
        let mut watch = watch(HOUR_S, |at_s| 1e6 + objects_per_s * at_s);
        for at_s in (0..HOUR_S).step_by(3) {
            // What a request takes is gone after it.
            let request = if at_s % 2 == 0 { 1 << 30 } else { 0 };
            watch.resident(at_s * S, (1 << 30) + at_s * (1 << 18) + request);
        }
        watch.trend(&WatchedLife { limit_bytes: Some(4 << 30), ..life(HOUR_S) }).unwrap()
    };
    let outside = native(0.0);
    assert_eq!(outside.outside_python, Some(true), "{outside:?}");
    let resident = outside.resident.unwrap();
    assert!((resident.per_s - 262_144.0).abs() < 3_000.0, "{resident:?}");
    let ends = outside.reaches_limit.unwrap();
    assert!(ends.at_least_ns <= ends.likely_ns && ends.likely_ns <= ends.at_most_ns);
    assert_eq!(native(1_000.0).outside_python, Some(false));
    let mut alone = LeakWatch::default();
    for at_s in 0..HOUR_S {
        alone.resident(at_s * S, (1 << 30) + at_s * (1 << 20));
    }
    let alone = alone.trend(&life(HOUR_S)).unwrap();
    assert_eq!((alone.outside_python, alone.objects), (None, None));
    assert_eq!(alone.reaches_limit, None, "no limit known");
}

#[test]
fn a_limit_is_predicted_for_ten_times_what_was_seen_at_most() {
    let mut growing = LeakWatch::default();
    for at_s in 0..400 {
        growing.resident(at_s * S, at_s * 100_000);
    }
    let predicted = |limit| {
        let life = WatchedLife { limit_bytes: Some(limit), ..life(400) };
        growing.trend(&life).unwrap().reaches_limit
    };
    assert!(predicted(400_000_000).is_some());
    assert_eq!(predicted(40_000_000 + (1 << 30)), None);
}

/// It was read while the process freed what it had: the last four of an even rise looked like another part.
#[test]
fn readings_while_a_process_exits_are_no_trend() {
    for readings in 0..=2 {
        let mut watch = LeakWatch::default();
        for at_s in (0..60).step_by(2) {
            watch.resident(at_s * S, 10_000_000 + at_s * 1_450_000);
        }
        for at_s in 0..readings {
            watch.resident((60 + at_s) * S, 94_000_000 - at_s * 30_000_000);
        }
        let resident = watch.trend(&life(62)).unwrap().resident.unwrap();
        assert!(resident.rises, "{readings}: {resident:?}");
        assert!((resident.per_s - 1_450_000.0).abs() < 1_000.0, "{readings}: {resident:?}");
        assert_eq!(watch.memory()[0].len() as u64, 30 + readings, "they are shown");
    }
}

/// Activations come and go; the sum over devices of what is left grows.
#[test]
fn device_memory_grows_below_what_a_step_takes() {
    let mut watch = LeakWatch::default();
    let memory = |at_ns, device, allocated| DeviceMemory {
        pid: 1,
        tid: 1,
        at_ns,
        device_type: 1,
        device,
        bytes: 0,
        allocated,
        reserved: allocated,
    };
    for at_ms in (0..600_000_u64).step_by(50) {
        let step = (at_ms / 50 % 10) << 28;
        for (device, allocated) in [(0, (1 << 30) + step + (at_ms << 10)), (1, 1 << 30)] {
            watch.device(&memory(at_ms * S / 1_000, device, allocated));
        }
    }
    let device = watch.trend(&life(600)).unwrap().device.unwrap();
    assert!(device.rises && (device.per_s - 1_024_000.0).abs() < 20_000.0, "{device:?}");
}

#[test]
fn few_samples_show_no_trend() {
    let wanders = |at_s: f64| 1e6 + if at_s > 15.0 { 0.0 } else { at_s * 1e5 };
    assert_eq!(watch(40, wanders).trend(&life(40)), None);
    let frozen = WatchedLife { frozen_ns: Some(3_560 * S), ..life(HOUR_S) };
    assert_eq!(service(1, 100.0, 1e6).trend(&frozen), None);
}

#[test]
fn a_series_keeps_the_lowest_of_each_time() {
    let mut series = LowestSeries::default();
    for at_s in (0..10_000).rev() {
        series.add(at_s * S, if at_s % 100 == 7 { at_s } else { 1 << 40 });
    }
    let mut samples: Vec<(u64, u64)> = series.samples().collect();
    assert!((33..=64).contains(&samples.len()), "{samples:?}");
    // The last time has just begun.
    samples.pop();
    assert!(samples.iter().all(|(at_ns, value)| at_ns / S == *value));
    assert_eq!(series.last(), Some(1 << 40));
    series.add(u64::MAX, 3);
    assert_eq!((series.samples().last(), series.last()), (Some((u64::MAX, 3)), Some(3)));
}
