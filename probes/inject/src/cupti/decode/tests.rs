use super::*;
use proptest::prelude::*;

/// A record of a kind with each field at its offset, and the rest poisoned.
fn record(kind: u32, fields: &[(usize, &[u8])], bytes: usize) -> Vec<u8> {
    let mut record = vec![0xa5; bytes];
    record[..4].copy_from_slice(&kind.to_ne_bytes());
    for (at, value) in fields {
        record[*at..at + value.len()].copy_from_slice(value);
    }
    record
}

#[test]
fn a_kernel_by_its_documented_offsets() {
    let fields: [(usize, &[u8]); 8] = [
        (16, &1_000_u64.to_ne_bytes()),
        (24, &2_000_u64.to_ne_bytes()),
        (40, &1_u32.to_ne_bytes()),
        (44, &2_u32.to_ne_bytes()),
        (48, &13_u32.to_ne_bytes()),
        (92, &77_u32.to_ne_bytes()),
        (104, &0x7f00_u64.to_ne_bytes()),
        (156, &5_u32.to_ne_bytes()),
    ];
    // Sizes of 11.8, 12.4, 13.0, and a future one; the shortest that has all fields.
    for bytes in [200, 208, 216, 400, 160] {
        let expected = RingGpuOp {
            interval: TimeInterval { start_ns: 1_000, end_ns: 2_000 },
            work: GpuRecord::Kernel,
            copy_kind: 0,
            device: 1,
            context: 2,
            stream: 13,
            correlation: 77,
            bytes: 0,
            name: NO_TEXT,
            graph: 5,
        };
        let decoded = decode(&record(KERNEL, &fields, bytes));
        let record = GpuMessage::Gpu(expected);
        assert_eq!(decoded, Some(ActivityRecord { record, name: 0x7f00 }));
    }
    assert_eq!(decode(&record(KERNEL, &fields, 160)[..159]), None);
}

#[test]
fn a_function_of_the_host_by_its_documented_offsets() {
    let fields: [(usize, &[u8]); 6] = [
        (4, &13_u32.to_ne_bytes()),
        (8, &2_u32.to_ne_bytes()),
        (12, &1_u32.to_ne_bytes()),
        (16, &77_u32.to_ne_bytes()),
        (32, &1_000_u64.to_ne_bytes()),
        (40, &2_000_u64.to_ne_bytes()),
    ];
    let bytes = record(HOST_LAUNCH, &fields, 48);
    let expected = RingGpuOp {
        interval: TimeInterval { start_ns: 1_000, end_ns: 2_000 },
        work: GpuRecord::HostFunction,
        copy_kind: 0,
        device: 1,
        context: 2,
        stream: 13,
        correlation: 77,
        bytes: 0,
        name: NO_TEXT,
        graph: 0,
    };
    let record = GpuMessage::Gpu(expected);
    assert_eq!(decode(&bytes), Some(ActivityRecord { record, name: 0 }));
    assert_eq!(decode(&bytes[..47]), None);
    // Asked for only where it is known: an older CUPTI refuses it.
    let known = [18, 22, 130_001, 130_202].map(|version| is_known(HOST_LAUNCH, version));
    assert_eq!(known, [false, false, false, true]);
}

#[test]
fn copies_have_the_correlation_of_their_kind() {
    let fields: [(usize, &[u8]); 3] =
        [(4, &[10]), (44, &44_u32.to_ne_bytes()), (60, &60_u32.to_ne_bytes())];
    let correlation = |kind| match decode(&record(kind, &fields, 96)) {
        Some(ActivityRecord { record: GpuMessage::Gpu(work), .. }) => {
            (work.copy_kind, work.correlation)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(correlation(MEMCPY), (10, 44));
    assert_eq!(correlation(MEMSET), (0, 44));
    assert_eq!(correlation(PEER_MEMCPY), (10, 60));
}

/// The last byte that a kind's fields need.
fn needed(kind: u32) -> Option<usize> {
    Some(match kind {
        KERNEL => 160,
        MEMCPY | MEMSET | HOST_LAUNCH => 48,
        PEER_MEMCPY => 64,
        DRIVER | RUNTIME => 36,
        SYNCHRONIZATION | OVERHEAD => 40,
        EVENT => 20,
        _ => return None,
    })
}

proptest! {
    /// Whatever the bytes and their number: nothing beyond them is read (the slice would panic),
    /// and the result depends on the prefix alone.
    #[test]
    fn any_bytes_of_any_length(kind in 0..60_u32, mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Some(start) = bytes.get_mut(..4) {
            start.copy_from_slice(&kind.to_ne_bytes());
        }
        let decoded = decode(&bytes);
        let is_whole = needed(kind).is_some_and(|needed| bytes.len() >= needed);
        prop_assert_eq!(decoded.is_some(), is_whole);
        if let Some(needed) = needed(kind).filter(|_| is_whole) {
            prop_assert_eq!(&decode(&bytes[..needed]), &decoded);
            bytes[needed..].fill(0xa5);
            prop_assert_eq!(decode(&bytes), decoded);
        }
    }

    #[test]
    fn any_bytes_at_all(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode(&bytes);
    }
}
