use super::*;

/// Of what is alive: a line that allocates at first, one that does later on, and one all along.
const LINES: usize = 3;

struct Program {
    samples: Box<Samples>,
    random: u32,
    /// Addresses: a pool of 4 KiB is filled after the other, as CPython's allocator does.
    next: usize,
    alive: [u64; LINES],
}

impl Program {
    fn new(seed: u32) -> Self {
        let samples = Box::new(Samples::new());
        let random =
            (0..20).fold(seed.wrapping_mul(0x9e37_79b9) | 1, |random, _| next_random(random));
        Self { samples, random, next: 0x7f00_0000_0000, alive: [0; LINES] }
    }

    /// As many samples, each of which stays alive, or is freed at once.
    fn allocate(&mut self, line: u32, samples: usize, dies: bool) {
        for _ in 0..samples {
            self.random = next_random(self.random);
            // On average a block of 64 bytes in 256 is sampled.
            self.next += 64 * (1 + (self.random % (2 * EVERY - 1)) as usize);
            self.samples.place(self.next, 64, line | FRESH, &mut self.random);
            if dies {
                self.free(self.next);
            } else {
                self.alive[line as usize] += 1;
            }
        }
    }

    fn free(&self, block: usize) -> Option<u32> {
        self.samples.find(block).map(|at| self.samples.forget(at))
    }

    /// What the samples stand for, by line.
    fn estimates(&self) -> [u64; LINES] {
        let mut sums = [0; LINES];
        for (_, line) in self.samples.all() {
            sums[index_of(line) as usize] += u64::from(stands_for(line));
        }
        sums
    }
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let number = values.len() as f64;
    let mean = values.iter().sum::<f64>() / number;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (squares / number).sqrt())
}

/// The mean of estimates is true, as far as their deviation allows.
#[track_caller]
fn assert_unbiased(ratios: &[f64]) {
    let (mean, deviation) = moments(ratios);
    let of_mean = deviation / (ratios.len() as f64).sqrt();
    assert!((mean - 1.0).abs() < 4.0 * of_mean, "{mean}, {deviation}");
}

/// Without a look in between, up to twice as many samples stay as there are slots, twenty times as many
/// as are kept.
#[test]
fn far_more_samples_than_slots_are_estimated_without_bias() {
    const SEEDS: u32 = 32;
    for (rounds, most) in [(20, 0.008), (100, 0.04), (400, 0.05)] {
        let run = |seed| {
            let mut program = Program::new(seed);
            for round in 0..rounds {
                program.allocate(u32::from(round >= rounds / 2), 180, false);
                program.allocate(2, 20, false);
                program.allocate(0, 20, true);
            }
            assert!(program.samples.all().count() <= MOST_SAMPLES);
            let estimates = program.estimates();
            [0, 1, 2].map(|line| estimates[line] as f64 / program.alive[line] as f64)
        };
        let runs: Vec<[f64; LINES]> = (1..=SEEDS).map(run).collect();
        for line in 0..LINES {
            let ratios: Vec<f64> = runs.iter().map(|run| run[line]).collect();
            assert_unbiased(&ratios);
            // Each of the first two has 45 % of what is alive, the third 10 %.
            let (_, deviation) = moments(&ratios);
            let most = if line == 2 { 2.0 * most } else { most };
            assert!(deviation < most, "{rounds} rounds, line {line}: {deviation}");
        }
    }
}

/// What is left of a large program that ends counts in full.
#[test]
fn what_stays_of_many_is_estimated_without_bias() {
    const SEEDS: u32 = 32;
    let run = |seed| {
        let mut program = Program::new(seed);
        program.allocate(0, 20_000, false);
        program.allocate(1, 20_000, false);
        for (at, _) in program.samples.all().filter(|(_, line)| index_of(*line) == 0) {
            program.free(program.samples.block(at).0);
        }
        program.allocate(2, 4_000, false);
        let estimates = program.estimates();
        assert_eq!(estimates[0], 0);
        [1, 2].map(|line| estimates[line] as f64 / program.alive[line] as f64)
    };
    let runs: Vec<[f64; 2]> = (1..=SEEDS).map(run).collect();
    for line in 0..2 {
        assert_unbiased(&runs.iter().map(|run| run[line]).collect::<Vec<_>>());
    }
}

#[test]
fn blocks_of_the_same_slots_are_estimated_without_bias() {
    const BLOCKS: usize = 32;
    let mut program = Program::new(1);
    let shared = (1..).map(|number| number * 16).filter(|block| slots_of(*block) == 0);
    let blocks: Vec<usize> = shared.take(BLOCKS).collect();
    let mut ratio = || {
        for block in &blocks {
            program.samples.place(*block, 16, FRESH, &mut program.random);
        }
        let [sum, ..] = program.estimates();
        for block in &blocks {
            program.free(*block);
        }
        sum as f64 / BLOCKS as f64
    };
    let ratios: Vec<f64> = (0..10_000).map(|_| ratio()).collect();
    assert_unbiased(&ratios);
    // Two are left of them.
    let (_, deviation) = moments(&ratios);
    assert!(deviation < 0.9, "{deviation}");
    assert_eq!(program.samples.all().count(), 0);
}

#[test]
fn a_sample_stands_for_as_many_wherever_it_moves() {
    let mut program = Program::new(1);
    let kept = 3 << HALVINGS;
    program.samples.place(16, 100, FRESH | kept | 5, &mut program.random);
    let line = program.free(16).unwrap();
    assert_eq!((index_of(line), stands_for(line)), (5, 8));
    assert_eq!(program.free(16), None);
    program.samples.place(32, 200, line, &mut program.random);
    program.samples.place(48, 1, UNSURE | 6, &mut program.random);
    // Of those that were freed, or have a text, none is fresh.
    let fresh: Vec<(usize, u32)> = program.samples.take_fresh().collect();
    let at = program.samples.find(32).unwrap();
    assert_eq!(fresh, [(at, line)]);
    assert_eq!(program.samples.block(at), (32, 200));
    let settled = with_index(line, 7);
    assert_eq!((settled, stands_for(settled)), (kept | 7, 8));
    assert_eq!(program.samples.take_fresh().count(), 0);
}
