//! The bytes of simulated days, by what is thinned.

use super::*;

const MINUTE_NS: u64 = 60_000_000_000;
const BYTES: u64 = 25;
/// Text is so much longer.
const TEXT: u64 = 15;

/// A minute with records of some kinds, each of so many bytes, and with others.
fn minute(kinds: &[(Kind, u64, u64)], others: u64) -> WrittenSegment {
    let mut written = WrittenSegment { took_ns: MINUTE_NS, ..WrittenSegment::default() };
    let mut bytes = others;
    for (kind, count, each) in kinds {
        written.count(*kind, *count);
        written.add_text(*kind, count * each * TEXT);
        bytes += count * each;
    }
    WrittenSegment { bytes, text: bytes * TEXT, ..written }
}

/// A day of pauses of 10 us to 1 ms; the bytes written.
fn day(thinning: &mut Thinning, pauses_a_second: u64) -> u64 {
    let mut all = 0;
    for number in 0..24 * 60 {
        let mut written = 0;
        for pause in 0..pauses_a_second * 60 {
            let duration_ns = 10_000 + (pause * 7919 + number) % 990_000;
            thinning.see(duration_ns, 0);
            written += u64::from(duration_ns >= thinning.min_pause_ns());
        }
        thinning.decide(&minute(&[(Kind::Pauses, written, BYTES)], 0));
        all += written * BYTES;
    }
    all
}

#[test]
fn a_day_stays_below_its_bytes() {
    for pauses_a_second in [50, 400] {
        let mut thinning = Thinning::new(Some(100_000_000));
        // The first day may use what an hour saves; the next ones may not.
        let first = day(&mut thinning, pauses_a_second);
        let second = day(&mut thinning, pauses_a_second);
        assert!(first <= 105_000_000, "{first} at {pauses_a_second}/s");
        assert!(second <= 101_000_000, "{second} at {pauses_a_second}/s");
        assert!(second >= 90_000_000, "{second} at {pauses_a_second}/s");
    }
}

#[test]
fn other_records_take_their_part() {
    let mut thinning = Thinning::new(Some(100_000_000));
    let (mut all, others) = (0, 800 * 60);
    for number in 0..48 * 60u64 {
        let mut written = 0;
        for pause in 0..50 * 60 {
            let duration_ns = 10_000 + (pause * 7919 + number) % 990_000;
            thinning.see(duration_ns, 0);
            written += u64::from(duration_ns >= thinning.min_pause_ns());
        }
        let segment = minute(&[(Kind::Pauses, written, 17)], others);
        thinning.decide(&segment);
        all += segment.bytes;
    }
    assert!((170_000_000..=205_000_000).contains(&all), "{all}");
}

#[test]
fn waits_are_thinned_beside_few_pauses_and_leave_half_to_many() {
    for (pauses_a_second, waits_a_second) in [(5, 400), (200, 400), (200, 5)] {
        let mut thinning = Thinning::new(Some(100_000_000));
        let mut all = [0u64; 3];
        for number in 0..24 * 60u64 {
            let (mut pauses, mut waits) = (0, 0);
            for one in 0..pauses_a_second * 60 {
                let duration_ns = 10_000 + (one * 7919 + number) % 990_000;
                thinning.see(duration_ns, 0);
                pauses += u64::from(duration_ns >= thinning.min_pause_ns());
            }
            for one in 0..waits_a_second * 60 {
                let duration_ns = 1_000_000 + (one * 7919 + number) % 90_000_000;
                thinning.waits.see(duration_ns);
                waits += u64::from(duration_ns >= thinning.min_wait_ns());
            }
            let segment = minute(&[(Kind::Pauses, pauses, 25), (Kind::Waits, waits, 15)], 0);
            thinning.decide(&segment);
            for (sum, more) in all.iter_mut().zip([segment.bytes, pauses, waits]) {
                *sum += more;
            }
        }
        let [bytes, pauses, waits] = all;
        let name = format!("{pauses_a_second} {waits_a_second}: {all:?}");
        assert!((85_000_000..=105_000_000).contains(&bytes), "{name}");
        // Few of one kind are all written; of many, each has at least three tenths of the bytes.
        let few = |rate: u64, written: u64| rate > 5 || written == rate * 24 * 3600;
        assert!(few(pauses_a_second, pauses) && few(waits_a_second, waits), "{name}");
        if pauses_a_second == waits_a_second / 2 {
            assert!(pauses * 25 * 10 >= bytes * 3 && waits * 15 * 10 >= bytes * 3, "{name}");
        }
    }
}

#[test]
fn many_records_of_all_kinds_share_a_day_evenly() {
    // Of each a second: pauses with what they called, 4 times the usual bytes; times off the CPU, samples, readings.
    // Text of them is not compressed alike, which is not known.
    const BYTES_AND_TEXT: [(Kind, u64, u64); 4] = [
        (Kind::Pauses, 110, 1200),
        (Kind::Waits, 20, 300),
        (Kind::Samples, 9, 250),
        (Kind::Memory, 12, 150),
    ];
    let mut thinning = Thinning::new(Some(100_000_000));
    let (mut day_bytes, mut last_hour) = (0, Vec::new());
    for number in 0..27 * 60u64 {
        let mut counts = [0u64; 4];
        for one in 0..90 * 60 {
            let duration_ns = 10_000 + (one * 7919 + number) % 990_000;
            thinning.see(duration_ns, 0);
            counts[0] += u64::from(duration_ns >= thinning.min_pause_ns());
        }
        for one in 0..200 * 60 {
            let duration_ns = 1_000_000 + (one * 7919 + number) % 90_000_000;
            thinning.waits.see(duration_ns);
            counts[1] += u64::from(duration_ns >= thinning.min_wait_ns());
        }
        for (count, (kind, a_second)) in
            counts[2..].iter_mut().zip([(Kind::Samples, 400), (Kind::Memory, 1000)])
        {
            *count = (0..a_second * 60).map(|_| u64::from(thinning.takes(kind, 1))).sum();
        }
        let mut segment = WrittenSegment { took_ns: MINUTE_NS, ..WrittenSegment::default() };
        (segment.bytes, segment.text) = (6_000, 90_000);
        for (count, (kind, bytes, text)) in counts.into_iter().zip(BYTES_AND_TEXT) {
            segment.count(kind, count);
            segment.add_text(kind, count * text);
            segment.bytes += count * bytes;
            segment.text += count * text;
        }
        thinning.decide(&segment);
        if number >= 3 * 60 {
            day_bytes += segment.bytes;
        }
        if number >= 26 * 60 {
            last_hour.push(segment.bytes);
        }
    }
    assert!((90_000_000..=101_000_000).contains(&day_bytes), "{day_bytes}");
    let (least, most) = (last_hour.iter().min().unwrap(), last_hour.iter().max().unwrap());
    assert!(*most <= least * 12 / 10, "{last_hour:?}");
}

#[test]
fn few_pauses_and_no_limit_leave_all() {
    for (bytes_a_day, rate) in [(Some(100_000_000), 30), (None, 400)] {
        let mut thinning = Thinning::new(bytes_a_day);
        assert_eq!(day(&mut thinning, rate), rate * 86_400 * BYTES);
        assert_eq!(thinning.min_pause_ns(), 0);
    }
}

#[test]
fn lengths_are_told_apart() {
    for ns in [0, 1, 2, 999, 50_000, 1 << 39] {
        assert!(length_ns(place(ns)) <= ns.max(1), "{ns}");
        assert!(length_ns(place(ns) + 1) > ns, "{ns}");
    }
    assert_eq!(place(u64::MAX), LENGTHS - 1);
}
