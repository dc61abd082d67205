//! The section on ranks of distributed jobs: waits between ranks, the cost of one rank's pauses to the others, and the
//! waits of each communicator's ranks for each other.

use crate::document::{Block, Section, Table, paragraph};
use crate::text::OrDash as _;
use crate::units::{count, counted, duration, percent, three_digits};
use gctrace_analysis::report::{
    CollectiveWaits, CollectivesReport, CommunicatorKind, CommunicatorReport, PauseSource,
    RankFigure, RankPauses, RankReport, RankSpread, RankedJob, RanksReport, Report,
};

/// Maximum number of ranks listed; the others are in the JSON.
const RANKS_SHOWN: usize = 16;
/// Maximum number of ranks with a shown matrix: more columns do not fit.
const MATRIX_RANKS: usize = 8;
/// Maximum number of outliers named for a figure.
const OUTLIERS_SHOWN: usize = 3;
/// Maximum number of sources of pauses shown.
const SOURCES_SHOWN: usize = 8;
/// Maximum number of kinds of communicators shown; the others are in the JSON.
const KINDS_SHOWN: usize = 3;
/// Maximum number of communicators shown of each kind.
const LONGEST_SHOWN: usize = 2;

pub(crate) fn ranks(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if let Some(work) = &report.gpu
        && let Some(ranks) = &work.ranks
    {
        for (at, job) in ranks.jobs.iter().enumerate() {
            if at > 0 {
                blocks.push(Block::Gap);
            }
            blocks.extend(of_job(job));
        }
        if let Some(sentence) = unrelated(ranks) {
            blocks.push(paragraph(sentence));
        }
    }
    Section::new("Ranks", blocks)
}

fn of_job(job: &RankedJob) -> Vec<Block> {
    let mut blocks = vec![paragraph(matched(job.ranks.len(), &job.collectives))];
    blocks.extend(warnings(job).iter().map(paragraph));
    blocks.push(Block::Gap);
    blocks.push(waits(&job.ranks));
    blocks.push(paragraph(legend(job)));
    if job.ranks.len() > RANKS_SHOWN {
        blocks.push(Block::Gap);
        blocks.extend(spread(job));
    }
    if let Some(pauses) = &job.pauses {
        blocks.push(Block::Gap);
        blocks.push(paragraph(costliest(pauses)));
        blocks.extend(costs(pauses));
        blocks.push(paragraph(COSTS));
        if (2..=MATRIX_RANKS).contains(&pauses.victims.len()) {
            blocks.push(Block::Gap);
            blocks.push(paragraph(MATRIX));
            blocks.push(matrix(pauses));
        }
    }
    blocks.extend(communicators(job));
    blocks
}

/// Legend of the table of costs.
const COSTS: &str = "own: how much earlier the rank itself would finish without its pauses; \
    others: sum over all other ranks; ampl.: (own + others) / own; job: the last rank; step: mean \
    step of all ranks as measured and without the pauses. All inferred, by replay of all ranks.";
const SPREAD: &str = "stand out: ranks with a modified z-score beyond 3.5, by the median and the \
    median deviation of all ranks; a rank that waits less than the others is one that they wait for.";
const MATRIX: &str = "Without the pauses of the rank of a row, the rank of a column would finish \
    earlier by (inferred):";

const COMMUNICATORS: &str = "waited: peer wait in their collectives, summed over the ranks; for pauses: how \
    much less without the pauses of all ranks, of whatever communicator; most for: the same of one \
    rank. All inferred, for pauses by replay.";

fn matched(ranks: usize, collectives: &CollectivesReport) -> String {
    let all = if collectives.on_all_ranks == collectives.matched {
        String::new()
    } else {
        format!(", {} of them on all ranks", count(collectives.on_all_ranks))
    };
    let mut sentence = format!(
        "{ranks} ranks of one job: {} matched{all} (inferred).",
        counted(collectives.matched, "collective")
    );
    if collectives.kernels_unmatched > 0 {
        sentence.push_str(&format!(
            " {} found on one rank only, {} of them while not all ranks were being recorded.",
            counted(collectives.kernels_unmatched, "collective kernel"),
            count(collectives.kernels_unmatched_outside)
        ));
    }
    if collectives.point_to_point > 0 {
        sentence.push_str(&format!(
            " Of {}, {} matched with the other side.",
            counted(collectives.point_to_point, "send and receive kernel"),
            count(collectives.point_to_point_matched)
        ));
    }
    sentence
}

/// The collective kernels without figures, if the profiler named no communicators.
fn unnamed(collectives: &CollectivesReport) -> Option<String> {
    let ambiguous = collectives.kernels_ambiguous;
    if ambiguous == 0 {
        return None;
    }
    Some(format!(
        "{} ambiguous: their communicators have no names in the traces, and groups of ranks that \
             run in step end together, too. They are in no figure of waits and costs. PyTorch 2.4 \
             and later record the names (Process Group Name), 2.12 and later also the numbers (Seq).",
        counted(ambiguous, "collective kernel")
    ))
}

fn warnings(job: &RankedJob) -> Vec<String> {
    let mut warnings: Vec<String> = unnamed(&job.collectives).into_iter().collect();
    let ambiguous: Vec<String> = job
        .ranks
        .iter()
        .filter(|rank| rank.clock_ambiguous)
        .map(|rank| rank.rank.to_string())
        .collect();
    if !ambiguous.is_empty() {
        warnings.push(format!(
            "The clock offset of rank {} is ambiguous: collectives are so evenly spaced that other \
             alignments fit as well. Figures that compare it with other ranks may be wrong; annotate \
             steps with torch.profiler's step() to resolve this.",
            listed(&ambiguous)
        ));
    }
    let numbers = job.ranks.iter().map(|rank| rank.rank);
    let highest = if let Some(highest) = numbers.max() { u64::from(highest) + 1 } else { 0 };
    let missing = gctrace_units::beyond(highest, job.ranks.len() as u64);
    if missing > 0 {
        warnings.push(format!(
            "{} below the highest {} not in any trace: waiting for {} counts as transfer.",
            counted(missing, "rank"),
            if missing == 1 { "is" } else { "are" },
            if missing == 1 { "it" } else { "them" }
        ));
    }
    warnings
}

/// `1, 2, 5 and 9 more`.
fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MATRIX_RANKS).cloned();
    let shown = shown.collect::<Vec<String>>().join(", ");
    match names.iter().skip(MATRIX_RANKS).count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// For more ranks than are listed: how their figures are distributed, and the outliers.
fn spread(job: &RankedJob) -> Vec<Block> {
    let name = |figure| match figure {
        RankFigure::Paused => "paused",
        RankFigure::PeerWait => "peer wait",
        RankFigure::Transfer => "transfer",
        RankFigure::UsefulBusy => "useful busy",
    };
    let table = Table::of(&job.spread)
        .right("min", |spread| duration(spread.min_ns))
        .right("p5", |spread| duration(spread.p5_ns))
        .right("p50", |spread| duration(spread.p50_ns))
        .right("p95", |spread| duration(spread.p95_ns))
        .right("max", |spread| duration(spread.max_ns))
        .left("of all ranks", |spread| name(spread.figure).to_owned())
        .left("stand out", outliers);
    let mut blocks = vec![table.into()];
    for spread in &job.spread {
        for host in &spread.hosts {
            blocks.push(paragraph(format!(
                "Host {}: {} of {} on average over {}, unlike the other hosts (z {:.1}).",
                host.host,
                duration(host.mean_ns),
                name(spread.figure),
                counted(host.ranks, "rank"),
                host.z
            )));
        }
    }
    blocks.push(paragraph(SPREAD));
    blocks
}

/// The outlier ranks of a figure, `-` if there is none.
fn outliers(spread: &RankSpread) -> String {
    let outliers = spread.outliers.iter().map(|rank| match &rank.host {
        Some(host) => format!("{} ({host})", rank.rank),
        None => rank.rank.to_string(),
    });
    let all = spread.outliers.len() as u64 + spread.outliers_left_out;
    let shown: Vec<String> = outliers.take(OUTLIERS_SHOWN).collect();
    match gctrace_units::beyond(all, shown.len() as u64) {
        0 if shown.is_empty() => "-".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Per rank: the time it waited for others, and how often others waited for it.
fn waits(ranks: &[RankReport]) -> Block {
    let mut shown: Vec<&RankReport> = ranks.iter().collect();
    if shown.len() > RANKS_SHOWN {
        shown.sort_by_key(|rank| std::cmp::Reverse((rank.last_after_pause, rank.paused_ns)));
        shown.truncate(RANKS_SHOWN);
    }
    Table::of(shown)
        .right("rank", |rank| rank.rank.to_string())
        .right("paused", |rank| duration(rank.paused_ns))
        .right("peer wait", |rank| duration(rank.peer_wait_ns))
        .right("transfer", |rank| duration(rank.transfer_ns))
        .right("useful", useful)
        .right("last", |rank| count(rank.last))
        .right("after pause", |rank| count(rank.last_after_pause))
        .right("clock ±", |rank| rank.clock_error_ns.map(duration).or_dash())
        .into()
}

/// Share of the busy time without waiting for peers.
fn useful(rank: &RankReport) -> String {
    let busy: f64 = rank.devices.iter().map(|one| one.busy_ns as f64).sum();
    let useful = rank.devices.iter().map(|one| one.useful_busy_ns as f64);
    if busy > 0.0 { percent(useful.sum::<f64>() / busy) } else { "-".to_owned() }
}

fn legend(job: &RankedJob) -> String {
    let more = match job.ranks.iter().skip(RANKS_SHOWN).count() {
        0 => String::new(),
        more => format!("{more} more ranks (--format json lists more). "),
    };
    let undecided = match job.collectives.last_undecided {
        0 => String::new(),
        some => format!(" ({} undecided)", count(some)),
    };
    format!(
        "{more}peer wait: time in collectives before the last rank had started; transfer: the rest, \
         including waits for ranks without a trace; useful: share of GPU busy time that is not peer \
         wait; last: collectives that the rank started last{undecided}; after pause: those of them \
         with a pause of the rank since the previous collective; clock ±: median distance of the ends \
         of collectives from those of other ranks after alignment. All but paused: inferred."
    )
}

/// `Pauses of rank 1 cost the job most: ...`
fn costliest(pauses: &RankPauses) -> String {
    let all = &pauses.all;
    let error = match pauses.all_standard_error_ns {
        Some(error_ns) => format!(", standard error {}", duration(error_ns)),
        None => String::new(),
    };
    let job = |source: &PauseSource| {
        format!("the job would finish {} earlier", signed(source.job_earlier_ns))
    };
    match pauses.sources.first() {
        Some(first) if first.total_ns > 0 && pauses.sources.len() > 1 => format!(
            "Pauses of {} cost the most: without them {}; without any pauses, {} (inferred{error}).",
            who(first),
            job(first),
            signed(all.job_earlier_ns)
        ),
        _ => format!("Without the pauses of {}, {} (inferred{error}).", who(all), job(all)),
    }
}

fn who(source: &PauseSource) -> String {
    match source.ranks.as_slice() {
        [rank] => format!("rank {rank}"),
        ranks => format!("{} ranks", ranks.len()),
    }
}

/// Per source of pauses: their cost for the rank itself, for the others and for the job.
fn costs(pauses: &RankPauses) -> Vec<Block> {
    let listed = pauses.sources.iter().take(SOURCES_SHOWN);
    let rows = listed.map(|source| (None, source));
    let all = if pauses.sources.len() > 1 { Some((Some("all"), &pauses.all)) } else { None };
    let own_ns = |source| own_ns(source, &pauses.victims);
    let table = Table::of(rows.chain(all))
        .right("rank", |(name, source)| name.map_or_else(|| label(source), str::to_owned))
        .right("pauses", |(_, source)| count(source.pauses))
        .right("paused", |(_, source)| duration(source.paused_ns))
        .right("own", |(_, source)| signed(own_ns(source)))
        .right("others", |(_, source)| signed(source.total_ns.saturating_sub(own_ns(source))))
        .right("ampl.", |(_, source)| {
            source.amplification_ratio.map(|ratio| format!("{}x", three_digits(ratio))).or_dash()
        })
        .right("job", |(_, source)| signed(source.job_earlier_ns))
        .right("step", |(_, source)| {
            let lengths = source.steps.map(|steps| {
                format!("{} -> {}", duration(steps.mean_ns), duration(steps.mean_without_ns))
            });
            lengths.or_dash()
        });
    let mut blocks = vec![table.into()];
    let more = pauses.sources.iter().skip(SOURCES_SHOWN).count();
    if more > 0 {
        blocks.push(paragraph(format!("{more} more rows are in the JSON.")));
    }
    blocks
}

fn label(source: &PauseSource) -> String {
    match source.ranks.as_slice() {
        [rank] => rank.to_string(),
        ranks => format!("{} more", ranks.len()),
    }
}

/// Time that the ranks of a source would save themselves.
fn own_ns(source: &PauseSource, victims: &[u32]) -> i64 {
    let savings = victims.iter().zip(&source.earlier_ns);
    let savings = savings.filter(|(victim, _)| source.ranks.contains(victim));
    savings.map(|(_, earlier_ns)| *earlier_ns).fold(0, i64::saturating_add)
}

/// The matrix of costs: a row per source, a column per affected rank.
fn matrix(pauses: &RankPauses) -> Block {
    let mut head = vec!["rank".to_owned()];
    head.extend(pauses.victims.iter().map(u32::to_string));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(&head, &[]);
    let rows = pauses.sources.iter().map(|source| (label(source), source));
    let all = if pauses.sources.len() > 1 { Some(("all".to_owned(), &pauses.all)) } else { None };
    for (label, source) in rows.chain(all) {
        let mut row = vec![label];
        row.extend(source.earlier_ns.iter().map(|earlier_ns| signed(*earlier_ns)));
        table.row(row);
    }
    table.into()
}

fn signed(ns: i64) -> String {
    match ns {
        0 => "0".to_owned(),
        ns if ns < 0 => format!("-{}", duration(ns.unsigned_abs())),
        ns => duration(ns.unsigned_abs()),
    }
}

/// Empty for a job with one communicator: its waits are the waits of its ranks.
fn communicators(job: &RankedJob) -> Vec<Block> {
    let all: u64 = job.communicators.iter().map(|kind| kind.communicators).sum();
    if all < 2 {
        return Vec::new();
    }
    let sources = job.pauses.iter().flat_map(|pauses| &pauses.sources);
    let sources: Vec<&PauseSource> = sources.collect();
    let mut table = Table::new(&["waited", "for pauses", "most for", "communicators"], &[2, 3]);
    for kind in job.communicators.iter().take(KINDS_SHOWN) {
        table.row(communicator_row(&kind.waits, &sources, kind_label(kind)));
        if kind.communicators > 1 {
            for longest in kind.longest.iter().take(LONGEST_SHOWN) {
                table.row(communicator_row(
                    &longest.waits,
                    &sources,
                    format!("  {}", named(longest)),
                ));
            }
        }
    }
    let more = job.communicators.iter().skip(KINDS_SHOWN).count();
    let more = match more {
        0 => String::new(),
        more => format!("{more} more kinds of communicators are in the JSON. "),
    };
    vec![Block::Gap, table.into(), paragraph(format!("{more}{COMMUNICATORS}"))]
}

fn communicator_row(
    waits: &CollectiveWaits,
    sources: &[&PauseSource],
    label: String,
) -> [String; 4] {
    let by_source = sources.iter().zip(&waits.for_sources_ns);
    let by_source = by_source.filter(|(_, for_ns)| **for_ns > 0);
    // One rank rather than all that are not listed one by one, even if these cost more.
    let most = by_source.max_by_key(|(source, for_ns)| (source.ranks.len() == 1, **for_ns));
    [
        duration(waits.wait_ns),
        waits.for_pauses_ns.map(signed).or_dash(),
        most.map(|(source, for_ns)| format!("{}: {}", who(source), signed(*for_ns))).or_dash(),
        label,
    ]
}

/// `16 of 8 ranks each, neighbors`.
fn kind_label(kind: &CommunicatorKind) -> String {
    if let ([only], 1) = (kind.longest.as_slice(), kind.communicators) {
        return named(only);
    }
    let communicators = count(kind.communicators);
    let Some(size) = kind.size else {
        return format!("{communicators} of other kinds");
    };
    let apart = match kind.stride {
        Some(1) => ", neighbors".to_owned(),
        Some(stride) => format!(", {stride} apart"),
        None => String::new(),
    };
    format!("{communicators} of {} ranks each{apart}", count(size))
}

/// `"tp_0", 8 ranks, 0 to 7`.
fn named(communicator: &CommunicatorReport) -> String {
    let name = communicator.name.as_ref();
    let name = if let Some(name) = name { format!("\"{name}\", ") } else { String::new() };
    let (ranks, first, last) =
        (count(communicator.ranks), communicator.first_rank, communicator.last_rank);
    format!("{name}{ranks} ranks, {first} to {last}")
}

fn unrelated(ranks: &RanksReport) -> Option<String> {
    let alone: Vec<String> = ranks
        .unrelated
        .iter()
        .take(RANKS_SHOWN)
        .map(|one| format!("rank {} (trace {})", one.rank, one.trace + 1))
        .collect();
    let more = match ranks.unrelated.iter().skip(RANKS_SHOWN).count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if alone.is_empty() {
        return None;
    }
    Some(format!(
        "Not compared, as none of their collectives is in another trace: {}{more}.",
        alone.join(", ")
    ))
}
