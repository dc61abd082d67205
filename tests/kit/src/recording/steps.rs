//! CPU time of steps in a trace.

use super::Trace;

/// What a step of `step_cpu.py` works, if it does not sleep.
const WORK_NS: u64 = 50_000_000;

impl Trace {
    /// Asserts that the marks of this name in a trace of `step_cpu.py` have the CPU times that it
    /// printed (`truth`), within `most_ns` for each step and for all together.
    ///
    /// # Panics
    /// If not.
    pub fn assert_cpu_times_of_steps(&self, name: &str, truth: Vec<u64>, most_ns: u64) {
        let marks = self.events.iter().filter(|event| event["name"] == name);
        let seen: Vec<u64> =
            marks.map(|mark| mark["args"]["cpu_ns"].as_u64().expect("a CPU time")).collect();
        assert_eq!(seen.len(), truth.len(), "{name}");
        let [whole, expected] = [&seen, &truth].map(|marks| marks[marks.len() - 1] - marks[0]);
        assert!(whole.abs_diff(expected) < most_ns, "{seen:?} {truth:?}");
        let steps = |marks: &[u64]| -> Vec<u64> {
            marks.windows(2).map(|ends| ends[1] - ends[0]).collect()
        };
        for (turn, (seen, truth)) in steps(&seen).into_iter().zip(steps(&truth)).enumerate() {
            assert!(seen.abs_diff(truth) < most_ns, "step {turn}: {seen} {truth}");
            let sleeps = turn % 2 == 1;
            assert_eq!(seen < WORK_NS / 2, sleeps, "step {turn}: {seen}");
        }
    }
}
