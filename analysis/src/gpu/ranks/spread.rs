//! How the figures of a job's ranks are distributed, and outliers among ranks and hosts. Owns the rule for outliers.

use super::waits::RankReport;
use gctrace_stats::median;
use serde::Serialize;
use std::collections::BTreeMap;
use strum::VariantArray;

/// A figure of each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, VariantArray)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RankFigure {
    /// `paused_ns` of the rank.
    Paused,
    /// `peer_wait_ns` of the rank.
    PeerWait,
    /// `transfer_ns` of the rank.
    Transfer,
    /// `useful_busy_ns`, summed over the devices of the rank.
    UsefulBusy,
}

impl RankFigure {
    /// The figure of a rank, in ns.
    #[must_use]
    pub fn of(self, rank: &RankReport) -> u64 {
        match self {
            Self::Paused => rank.paused_ns,
            Self::PeerWait => rank.peer_wait_ns,
            Self::Transfer => rank.transfer_ns,
            Self::UsefulBusy => rank.devices.iter().map(|one| one.useful_busy_ns).sum(),
        }
    }
}

/// The distribution of a figure over the ranks of a job. Percentiles are by nearest rank.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankSpread {
    /// The figure.
    pub figure: RankFigure,
    /// Smallest value, in ns.
    pub min_ns: u64,
    /// 5th percentile, in ns.
    pub p5_ns: u64,
    /// Median, in ns.
    pub p50_ns: u64,
    /// 95th percentile, in ns.
    pub p95_ns: u64,
    /// Greatest value, in ns.
    pub max_ns: u64,
    /// Ranks that stand out from the others, the farthest from the median first, at most 16.
    pub outliers: Vec<RankOutlier>,
    /// Number of further outliers, not listed in `outliers`.
    pub outliers_left_out: u64,
    /// Hosts with a mean that stands out from the other hosts' means, the farthest first, at most 16; empty if fewer
    /// than eight hosts are known.
    pub hosts: Vec<HostOutlier>,
}

/// A rank with a figure that differs from the others' by more than their spread explains.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankOutlier {
    /// Number of the rank in its job, from 0.
    pub rank: u32,
    /// Index of its trace in `traces`, from 0.
    pub trace: u64,
    /// Its host; `null` if unknown.
    pub host: Option<String>,
    /// The figure, in ns.
    pub value_ns: u64,
    /// Modified z-score: the distance from the median, divided by the median absolute deviation of
    /// all ranks and multiplied by 0.6745. Outliers have more than 3.5 or less than -3.5 (Iglewicz
    /// and Hoaglin 1993).
    pub z: f64,
}

/// A host with ranks that differ from the other hosts' ranks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostOutlier {
    /// Name of the host.
    pub host: String,
    /// Number of its ranks in the traces.
    pub ranks: u64,
    /// Mean of the figure over them, in ns.
    pub mean_ns: u64,
    /// Modified z-score among the means of all hosts.
    pub z: f64,
}

/// From this number of ranks, or hosts, some can stand out from the others.
const ENOUGH: usize = 8;

/// A value with a greater modified z-score is an outlier (Iglewicz and Hoaglin, How to Detect and Handle Outliers,
/// 1993).
const CUTOFF: f64 = 3.5;

/// Outliers listed for each figure.
const OUTLIERS: usize = 16;

/// The distribution of each figure over the ranks of a job; empty for fewer than eight. `hosts`: by trace.
pub(crate) fn spread(ranks: &[RankReport], hosts: &[Option<&str>]) -> Vec<RankSpread> {
    if ranks.len() < ENOUGH {
        return Vec::new();
    }
    RankFigure::VARIANTS.iter().map(|figure| of_figure(*figure, ranks, hosts)).collect()
}

fn of_figure(
    figure: RankFigure,
    ranks: &[RankReport],
    hosts_of_traces: &[Option<&str>],
) -> RankSpread {
    let host = |rank: &RankReport| *hosts_of_traces.get(usize::try_from(rank.trace).ok()?)?;
    let values: Vec<u64> = ranks.iter().map(|rank| figure.of(rank)).collect();
    let mut sorted = values.clone();
    sorted.sort_unstable();
    let outliers = outliers(values.iter().map(|value| *value as f64));
    let mut hosts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (rank, value) in ranks.iter().zip(&values) {
        if let Some(host) = host(rank) {
            let (count, sum) = hosts.entry(host).or_default();
            *count += 1;
            crate::time::add_to(sum, *value);
        }
    }
    let of_hosts: Vec<(&str, u64, u64)> =
        hosts.into_iter().map(|(host, (count, sum))| (host, count, sum / count.max(1))).collect();
    let slow_hosts = if of_hosts.len() < ENOUGH {
        Vec::new()
    } else {
        self::outliers(of_hosts.iter().map(|(_, _, mean)| *mean as f64))
    };
    RankSpread {
        figure,
        min_ns: sorted.first().copied().unwrap_or(0),
        p5_ns: percentile(&sorted, 5),
        p50_ns: percentile(&sorted, 50),
        p95_ns: percentile(&sorted, 95),
        max_ns: sorted.last().copied().unwrap_or(0),
        outliers_left_out: outliers.iter().skip(OUTLIERS).count() as u64,
        outliers: outliers
            .iter()
            .take(OUTLIERS)
            .filter_map(|(index, z)| {
                let rank = ranks.get(*index)?;
                Some(RankOutlier {
                    rank: rank.rank,
                    trace: rank.trace,
                    host: host(rank).map(str::to_owned),
                    value_ns: figure.of(rank),
                    z: *z,
                })
            })
            .collect(),
        hosts: slow_hosts
            .iter()
            .take(OUTLIERS)
            .filter_map(|(index, z)| {
                let (host, ranks, mean_ns) = of_hosts.get(*index)?;
                Some(HostOutlier {
                    host: (*host).to_owned(),
                    ranks: *ranks,
                    mean_ns: *mean_ns,
                    z: *z,
                })
            })
            .collect(),
    }
}

/// By nearest rank.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let place = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(place - 1).copied().unwrap_or(0)
}

/// Places and modified z-scores of the outliers, the greatest first.
///
/// The score is 0.6745 (x - median) / MAD. Where more than half of all values are equal the MAD,
/// their median absolute deviation, is 0, and the score is (x - median) / (1.2533 mean absolute
/// deviation) (Iglewicz and Hoaglin).
fn outliers(values: impl Iterator<Item = f64>) -> Vec<(usize, f64)> {
    let values: Vec<f64> = values.collect();
    let Some(center) = median(&values) else {
        return Vec::new();
    };
    let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    let scale = match median(&distances) {
        Some(mad) if mad > 0.0 => mad / 0.6745,
        _ => 1.2533 * distances.iter().sum::<f64>() / distances.len() as f64,
    };
    if scale <= 0.0 {
        return Vec::new();
    }
    let scores = values.iter().map(|value| (value - center) / scale);
    let mut found: Vec<(usize, f64)> = scores.enumerate().collect();
    found.retain(|(_, z)| z.abs() > CUTOFF);
    found.sort_by(|(_, one), (_, other)| other.abs().total_cmp(&one.abs()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_of_iglewicz_and_hoaglin() {
        // Their example: the mean and the standard deviation of these hide both of the last two.
        let values = [2.1, 2.6, 2.4, 2.5, 2.3, 2.1, 2.3, 2.6, 8.2, 8.3];
        let found = outliers(values.into_iter());
        let places: Vec<usize> = found.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [9, 8]);
        assert!(found.iter().all(|(_, z)| *z > CUTOFF));
    }

    #[test]
    fn equal_values_have_no_outliers_and_one_among_them_is_one() {
        assert_eq!(outliers([1.0; 20].into_iter()), []);
        assert_eq!(outliers(std::iter::empty()), []);
        let one = (0..20).map(|place| if place == 7 { 5.0 } else { 1.0 });
        assert!(matches!(outliers(one).as_slice(), [(7, _)]));
    }

    #[test]
    fn percentiles_are_values() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&sorted, 5), 5);
        assert_eq!(percentile(&sorted, 50), 50);
        assert_eq!(percentile(&[7], 95), 7);
        assert_eq!(percentile(&[], 95), 0);
    }
}
