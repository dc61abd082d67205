//! Each kind of message goes through a ring unchanged; invalid bytes are none.

use super::ring;
use crate::layout::MessageHead;
use crate::message::LONGEST_TEXT;
use crate::{GpuMessage, Message, PythonMessage, RingCycleEdge, sent_text};
use proptest::prelude::*;
use std::fmt::Debug;
use std::sync::atomic::Ordering;

/// Kinds are numbered from 1; more than there are.
const NUMBERS: std::ops::Range<u8> = 1..40;

/// Bytes that messages have more often than any bytes: small numbers, counts of few.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..400)
}

/// The message of this kind at the front of the bytes, and its length.
fn first<M: Message>(number: u8, bytes: &[u8]) -> Option<(M, usize)> {
    (0..=bytes.len()).find_map(|end| Some((M::unpack(number, &bytes[..end], 0)?, end)))
}

/// `None` if there is no such kind, or the bytes do not start with one.
fn there_and_back<M: Message + Clone + Debug + PartialEq>(
    number: u8,
    bytes: &[u8],
) -> Result<Option<M>, TestCaseError> {
    let Some((message, length)) = first::<M>(number, bytes) else { return Ok(None) };
    prop_assert_eq!(message.number(), number);
    let longer = [&bytes[..length], &[0]].concat();
    prop_assert_eq!(M::unpack(number, &longer, 0), None, "bytes that belong to nothing");
    let (producer, mut consumer) = ring(1 << 6);
    // At any place of the ring, across its end too.
    for _ in 0..20 {
        prop_assert!(producer.push(&message));
        let mut read = Vec::new();
        consumer.read(false, |message: M| read.push(message));
        prop_assert_eq!(read, vec![message.clone()]);
    }
    Ok(Some(message))
}

proptest! {
    #[test]
    fn messages_go_there_and_back(bytes in bytes(), number in NUMBERS) {
        there_and_back::<PythonMessage>(number, &bytes)?;
        there_and_back::<GpuMessage>(number, &bytes)?;
    }

    #[test]
    fn times_are_on_the_clock_of_the_reader(at_ns in 1_000_u64.., ahead_ns in -900_i64..900) {
        let (producer, consumer) = ring(2);
        let mut consumer = consumer.on_clock(ahead_ns);
        let mut read = Vec::new();
        for at_ns in [at_ns, 0] {
            let is_pushed = producer.push(&GpuMessage::Flushed { at_ns });
            prop_assert!(is_pushed);
        }
        consumer.read(false, |message: GpuMessage| read.push(message));
        let expected = at_ns.saturating_add_signed(-ahead_ns);
        let flushed = [expected, 0].map(|at_ns| GpuMessage::Flushed { at_ns });
        prop_assert_eq!(read, flushed, "unknown stays unknown");
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes there, to make the texts")]
    fn a_text_is_cut_at_a_character(text in "\\PC{0,700}") {
        let sent = sent_text(&text);
        prop_assert!(text.starts_with(sent) && sent.len() <= 2000);
        prop_assert!(text.len() < 2000 || sent.len() > 1996);
    }
}

/// The number of no kind is skipped, and each kind is read.
fn every_kind<M: Message + Clone + Debug + PartialEq>() {
    let mut seed = 1_u64;
    let mut next = || {
        // Marsaglia's xorshift64.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        if seed.is_multiple_of(2) { (seed >> 32) as u8 % 4 } else { (seed >> 32) as u8 }
    };
    let is_read = |number: &u8| {
        // Random bytes are rarely a message with several options.
        let tries = if M::NUMBERS.contains(number) { 1_000_000 } else { 1000 };
        (0..tries).any(|_| {
            let bytes: Vec<u8> = (0..100).map(|_| next()).collect();
            there_and_back::<M>(*number, &bytes).expect("the same").is_some()
        })
    };
    let read: Vec<u8> = NUMBERS.filter(is_read).collect();
    assert_eq!(read, M::NUMBERS);
}

#[test]
#[cfg_attr(miri, ignore = "takes hours there")]
fn every_kind_goes_there_and_back() {
    every_kind::<PythonMessage>();
    every_kind::<GpuMessage>();
}

#[test]
fn what_claims_to_be_long_takes_no_memory() {
    // A cycle of 2^56 edges in ten bytes.
    let bytes = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0];
    for number in NUMBERS {
        let read = PythonMessage::unpack(number, &bytes, 0);
        assert!(!matches!(read, Some(PythonMessage::Cycle { .. })));
    }
}

#[test]
fn lists_and_texts_are_as_long_as_the_library_makes_them() {
    let is_read = |message: &PythonMessage| {
        let (producer, mut consumer) = ring(1 << 12);
        producer.push(message) && consumer.read(false, |_: PythonMessage| ()).messages == 1
    };
    let cycle =
        |edges| PythonMessage::Cycle { id: 1, edges: vec![RingCycleEdge::default(); edges] };
    assert!(is_read(&cycle(1 << 12)) && !is_read(&cycle((1 << 12) + 1)));
    let text = |length| PythonMessage::Text { id: 1, text: "x".repeat(length).into() };
    assert!(is_read(&text(LONGEST_TEXT)) && !is_read(&text(LONGEST_TEXT + 1)));
}

#[test]
fn numbers_take_as_many_bytes_as_they_need() {
    for bits in 0..64 {
        for at_ns in [(1_u64 << bits) - 1, 1 << bits, u64::MAX >> bits] {
            let (producer, mut consumer) = ring(1);
            let message = GpuMessage::Flushed { at_ns };
            assert!(producer.push(&message));
            let head = MessageHead::of(producer.mapping.slot(0).words[0].load(Ordering::Relaxed));
            let bytes = if at_ns < 248 { 1 } else { 9 - at_ns.leading_zeros() as usize / 8 };
            assert_eq!(head.length, bytes, "{at_ns}");
            consumer.read(false, |read: GpuMessage| assert_eq!(read, message));
        }
    }
    for number in [&[248, 247][..], &[249, 255, 0], &[255, 1, 1, 1, 1, 1, 1, 1, 0], &[250, 1, 1]] {
        assert_eq!(GpuMessage::unpack(9, number, 0), None, "{number:?}");
    }
}
