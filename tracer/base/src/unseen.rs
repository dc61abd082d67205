//! Words for collections that the injected library could not see, in reports and in record's message.

use crate::units::{count, counted};
use gctrace_analysis::report::UnseenReport;

/// The clause of a recording; `None` if the library saw all of them.
pub fn unseen_words(unseen: UnseenReport) -> Option<String> {
    let UnseenReport { at_start, at_end, uncounted, .. } = unseen;
    let places = numbered(&[(at_start, "at the start"), (at_end, "at the end")]);
    let unknown = counted(uncounted, "start or end").replace("start or ends", "starts or ends");
    let unknown = format!("counted at {unknown} of interpreters");
    let all = counted(at_start.saturating_add(at_end), "collection");
    let counts = format!("{all} not recorded: {} of an interpreter", places.join(", "));
    match (places.is_empty(), uncounted) {
        (true, 0) => None,
        (true, _) => Some(format!("collections neither recorded nor {unknown}")),
        (false, 0) => Some(counts),
        (false, _) => Some(format!("{counts}; not {unknown}")),
    }
}

/// The same of one process, in a cell of a table.
pub fn unseen_places(unseen: UnseenReport) -> Option<String> {
    let UnseenReport { at_start, at_end, uncounted, .. } = unseen;
    let places = [(at_start, "at start"), (at_end, "at end"), (uncounted, "times uncounted")];
    let places = numbered(&places);
    if places.is_empty() { None } else { Some(places.join(", ")) }
}

/// The places where there were some, each after their number.
fn numbered(places: &[(u64, &str)]) -> Vec<String> {
    let places = places.iter().filter(|(collections, _)| *collections > 0);
    places.map(|(collections, place)| format!("{} {place}", count(*collections))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_recorded_is_counted_by_place() {
        let words = |at_start, at_end, uncounted| {
            let unseen = UnseenReport { at_start, at_end, uncounted, end_ns: None };
            (unseen_words(unseen).unwrap_or_default(), unseen_places(unseen).unwrap_or_default())
        };
        assert_eq!(words(0, 0, 0), Default::default());
        let both = words(6, 3, 0);
        let sentence = "9 collections not recorded: 6 at the start, 3 at the end of an interpreter";
        assert_eq!((both.0.as_str(), both.1.as_str()), (sentence, "6 at start, 3 at end"));
        let one = "1 collection not recorded: 1 at the end of an interpreter; not counted at 1 start or end of interpreters";
        assert_eq!(words(0, 1, 1).0, one);
        let none = "collections neither recorded nor counted at 2 starts or ends of interpreters";
        assert_eq!(words(0, 0, 2).0, none);
    }
}
