//! Values that GPUs do not report, gathered into one sentence per cause.

use super::queries::NvmlQuery;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Values missing so far, and the values reported as missing. Outlives the library: a driver that comes back with the
/// same gaps is not reported again.
#[derive(Debug, Default)]
pub struct NvmlAbsences {
    reported: HashSet<(String, u32, NvmlQuery)>,
    new: BTreeMap<String, BTreeMap<GpuAbsences, BTreeSet<NvmlQuery>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GpuAbsences {
    index: u32,
    mig: bool,
}

impl NvmlAbsences {
    pub(super) fn add(&mut self, cause: &str, index: u32, mig: bool, query: NvmlQuery) {
        if self.reported.insert((cause.to_owned(), index, query)) {
            let of_cause = self.new.entry(cause.to_owned()).or_default();
            of_cause.entry(GpuAbsences { index, mig }).or_default().insert(query);
        }
    }

    /// A sentence for each cause seen since the last call, for example
    /// `not recorded of GPU 0 and 1: power, PCIe throughput (the device does not support it)`.
    pub fn take(&mut self) -> Vec<String> {
        let new = std::mem::take(&mut self.new);
        new.into_iter().map(|(cause, gpus)| sentence(&cause, &gpus)).collect()
    }
}

fn sentence(cause: &str, gpus: &BTreeMap<GpuAbsences, BTreeSet<NvmlQuery>>) -> String {
    let mut alike: BTreeMap<&BTreeSet<NvmlQuery>, Vec<GpuAbsences>> = BTreeMap::new();
    for (gpu, queries) in gpus {
        alike.entry(queries).or_default().push(*gpu);
    }
    let parts: Vec<String> = alike
        .into_iter()
        .map(|(queries, gpus)| {
            let names: Vec<&str> = queries.iter().map(|query| query.into_str()).collect();
            format!("{} of {}", names.join(", "), list(&gpus))
        })
        .collect();
    format!("not recorded: {} ({cause})", parts.join("; "))
}

/// `GPU 0, 1, 2 (split by MIG: 1)`.
fn list(gpus: &[GpuAbsences]) -> String {
    let numbers = |gpus: &mut dyn Iterator<Item = &GpuAbsences>| {
        let numbers: Vec<String> = gpus.map(|gpu| gpu.index.to_string()).collect();
        numbers.join(", ")
    };
    let all = numbers(&mut gpus.iter());
    match numbers(&mut gpus.iter().filter(|gpu| gpu.mig)) {
        split if split.is_empty() => format!("GPU {all}"),
        split if split == all => format!("GPU {all}, split by MIG"),
        split => format!("GPU {all} (split by MIG: {split})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sentence_for_each_cause_and_only_once() {
        let mut absences = NvmlAbsences::default();
        let meet = |absences: &mut NvmlAbsences| {
            for index in [0, 1] {
                absences.add("the device does not support it", index, index == 1, NvmlQuery::Power);
                absences.add("the device does not support it", index, index == 1, NvmlQuery::Pcie);
            }
            absences.add("the device does not support it", 2, true, NvmlQuery::Utilization);
            absences.add("no permission", 2, true, NvmlQuery::Processes);
        };
        meet(&mut absences);
        assert_eq!(
            absences.take(),
            [
                "not recorded: memory by process of GPU 2, split by MIG (no permission)",
                "not recorded: utilization of GPU 2, split by MIG; power, PCIe throughput of GPU 0, 1 \
                 (split by MIG: 1) (the device does not support it)",
            ]
        );
        meet(&mut absences);
        assert_eq!(absences.take(), Vec::<String>::new());
    }
}
