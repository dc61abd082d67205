//! Each kind of message goes through a ring unchanged; invalid bytes are none.

#![expect(clippy::panic, reason = "helpers of tests, outside of #[test]")]

use gctrace_ring::{GpuMessage, Message, PythonMessage, RingConsumer, RingProducer, sent_text};
use proptest::prelude::*;
use std::fmt::Debug;
use std::os::fd::AsFd as _;

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
    let (producer, descriptor) =
        RingProducer::create(1 << 6).ok_or_else(|| TestCaseError::fail("no memory"))?;
    let mut consumer = RingConsumer::open(descriptor.as_fd(), 1 << 6)
        .map_err(|error| TestCaseError::fail(error.to_string()))?;
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
        let mut bytes = Vec::new();
        let mut rest = at_ns;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        let flushed = |bytes: &[u8], ahead_ns| {
            NUMBERS.into_iter().find_map(|number| match GpuMessage::unpack(number, bytes, ahead_ns) {
                Some(GpuMessage::Flushed { at_ns }) => Some(at_ns),
                _ => None,
            })
        };
        prop_assert_eq!(flushed(&bytes, ahead_ns), Some(at_ns.saturating_add_signed(-ahead_ns)));
        prop_assert_eq!(flushed(&[0], ahead_ns), Some(0), "unknown stays unknown");
    }

    #[test]
    fn a_text_is_cut_at_a_character(text in "\\PC{0,700}") {
        let sent = sent_text(&text);
        prop_assert!(text.starts_with(sent) && sent.len() <= 2000);
        prop_assert!(text.len() < 2000 || sent.len() > 1996);
    }
}

/// The number of no kind is skipped, and each kind is read.
fn every_kind<M: Message + Clone + Debug + PartialEq>(kinds: usize) {
    let mut seed = 1_u64;
    let mut next = || {
        // Marsaglia's xorshift64.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        if seed.is_multiple_of(2) { (seed >> 32) as u8 % 4 } else { (seed >> 32) as u8 }
    };
    let is_read = |number: &u8| {
        (0..1000).any(|_| {
            let bytes: Vec<u8> = (0..100).map(|_| next()).collect();
            match there_and_back::<M>(*number, &bytes) {
                Ok(message) => message.is_some(),
                Err(difference) => panic!("{difference}"),
            }
        })
    };
    let read: Vec<u8> = NUMBERS.filter(is_read).collect();
    assert_eq!(read, (1..=kinds as u8).collect::<Vec<_>>());
}

#[test]
fn every_kind_goes_there_and_back() {
    every_kind::<PythonMessage>(18);
    every_kind::<GpuMessage>(9);
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
