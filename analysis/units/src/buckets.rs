//! Lengths of time by bucket, each known to one part in 64. `ebpf/bpf/loop.bpf.h` counts in the same buckets.

/// The bucket of all lengths from 68 s on.
pub const LAST_BUCKET: u32 = 1791;

/// The shortest length, in ns, that belongs to the bucket: units of 16 ns, one each below 128, then 64 buckets for
/// each power of two. The last bucket has all lengths from 68 s on.
#[must_use]
pub fn bucket_ns(bucket: u32) -> u64 {
    let (power, rest) = (bucket / 64, u64::from(bucket % 64));
    let units = match power {
        0 => rest,
        // 64 to 127 are units of the first power, too.
        _ => (rest + 64).checked_shl(power - 1).unwrap_or(u64::MAX >> 4),
    };
    units << 4
}

/// The bucket of a length.
#[must_use]
#[inline]
pub fn length_bucket(length_ns: u64) -> u32 {
    let units = length_ns >> 4;
    let bits = (u64::BITS - units.leading_zeros()).max(7) - 7;
    let bucket = u64::from(bits) * 64 + (units >> bits);
    if let Ok(bucket) = u32::try_from(bucket) { bucket.min(LAST_BUCKET) } else { LAST_BUCKET }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_ascend_without_gaps() {
        assert_eq!([0, 1, 127, 128, 129].map(bucket_ns), [0, 16, 2032, 2048, 2080]);
        for number in 128..LAST_BUCKET {
            let (this, next) = (bucket_ns(number), bucket_ns(number + 1));
            assert!(this < next && (next - this) * 64 <= this, "{number}: {this} {next}");
            assert_eq!([this, next - 1, next].map(length_bucket), [number, number, number + 1]);
        }
        assert!(bucket_ns(LAST_BUCKET) > 67_000_000_000);
        assert!(bucket_ns(u32::MAX) > 0);
    }
}
