//! Advice on causes of the idlest GPU's waits, other than the collector and late data, by its ledger.

use crate::paths::{common_directory, place as place_of};
use crate::report::{Advice, AdviceEffect, AdviceId, IdleCause, IdleLedger, IdleRow, Report};
use crate::units::{duration, percent};
use crate::words::AdviceText;

/// Advice on each cause of idle time that has a remedy, then on the host's own work. `advised` contains the advice
/// given already.
///
/// A slow or busy machine makes the host's own work longer, so it is the last to change.
pub(super) fn advice(report: &Report, advised: &[Advice]) -> (Vec<Advice>, Vec<Advice>) {
    let ledgers = report.gpu.iter().flat_map(|work| &work.idle);
    let Some(ledger) = ledgers.max_by_key(|ledger| ledger.idle_ns) else {
        return (Vec::new(), Vec::new());
    };
    let has_data = advised.iter().any(|advice| advice.id == AdviceId::FasterData);
    let rows = ledger.rows.iter().filter(|row| row.cause != IdleCause::Data || !has_data);
    let (host, others): (Vec<_>, Vec<_>) = rows.partition(|row| row.cause == IdleCause::Host);
    let advice =
        |rows: Vec<&IdleRow>| rows.into_iter().filter_map(|row| of_row(ledger, row)).collect();
    (advice(others), advice(host))
}

fn of_row(ledger: &IdleLedger, row: &IdleRow) -> Option<Advice> {
    let (remedy, saves_ns) = (row.remedy?, row.saves_ns?);
    let all = ledger.rows.iter().flat_map(|row| &row.places);
    let folder = common_directory(all.filter_map(|place| place.code.python.as_ref()));
    let place = row.places.iter().find_map(|place| match &place.code.python {
        Some(line) => Some(place_of(line).replace(folder, "")),
        None => place.code.function.clone(),
    });
    let at = if let Some(place) = place { format!(" (at {place})") } else { String::new() };
    let text = AdviceText {
        action: format!("{remedy}{at}"),
        why: format!(
            "The GPU was idle for {} of {} because of {}: {} of its idle time.",
            duration(row.time_ns),
            duration(ledger.span_ns),
            row.cause,
            percent(row.time_ns as f64 / ledger.idle_ns.max(1) as f64),
        ),
        ..AdviceText::default()
    };
    Some(text.advice(AdviceId::KeepGpuBusy, AdviceEffect::saves(saves_ns)))
}
