//! Reproducible random streams keyed by what they are for.
//!
//! A stream is a function of a seed, a label that names the purpose, and the entity the numbers belong
//! to, never of how many numbers were drawn before or in what order. Adding an entity leaves the
//! streams of all others alone.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The `ChaCha8` generator for (seed, label, entity).
///
/// The 256-bit key is four `SplitMix64` outputs from a mix of the seed and the label; the 64-bit stream
/// number is a mix of the entity and its length. Streams of one label and seed are distinct parts of
/// one `ChaCha8` family; two of N entities share a stream with probability about N²/2⁶⁵.
///
/// The mixing is written out here, so the numbers are the same on every platform and in every version
/// of this crate.
///
/// ```
/// use prism_stats::stream;
/// use rand::RngExt;
///
/// let first: f64 = stream(7, "bootstrap", &[3, 1]).random();
/// let again: f64 = stream(7, "bootstrap", &[3, 1]).random();
/// let other: f64 = stream(7, "bootstrap", &[3, 2]).random();
/// assert!(first == again && first != other);
/// ```
pub fn stream(seed: u64, label: &str, entity: &[u64]) -> ChaCha8Rng {
    let mut state = mix(seed ^ mix(fnv1a(label.as_bytes())));
    let mut key = [0_u8; 32];
    for word in key.chunks_exact_mut(8) {
        state = state.wrapping_add(GOLDEN);
        word.copy_from_slice(&mix(state).to_le_bytes());
    }
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(mix_all(entity));
    rng
}

/// 2⁶⁴ divided by the golden ratio, the increment of `SplitMix64`.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64 bits.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash of a list of words that tells lists of different length or order apart.
fn mix_all(words: &[u64]) -> u64 {
    words.iter().fold(mix(words.len() as u64 ^ GOLDEN), |h, &w| {
        mix(h.wrapping_add(GOLDEN) ^ mix(w ^ GOLDEN))
    })
}

/// The 64-bit FNV-1a hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, RngExt};

    use super::*;

    #[test]
    fn hashes_equal_their_published_values() {
        // FNV-1a test vectors of Noll; SplitMix64 from seed 0.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(mix(GOLDEN), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(GOLDEN.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn streams_never_change() {
        // Computed by a second implementation of the mixing and of ChaCha8, in Python.
        let first = |mut rng: ChaCha8Rng| [rng.next_u64(), rng.next_u64()];
        assert_eq!(first(stream(0, "", &[])), [0xf4a5_b50c_e270_15bc, 0x1579_b4e9_188d_2224]);
        let want = [0x6c15_0642_6bcb_11e2, 0xf572_31b0_84b5_ea5d];
        assert_eq!(first(stream(42, "bootstrap", &[1, 2])), want);
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let mut seen = BTreeSet::new();
        let mut count = 0;
        for seed in [0, 1, u64::MAX] {
            for label in ["", "a", "b", "ab"] {
                for entity in [&[][..], &[0], &[0, 0], &[1], &[0, 1], &[1, 0], &[u64::MAX]] {
                    seen.insert(stream(seed, label, entity).next_u64());
                    count += 1;
                }
            }
        }
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn neighbouring_entities_are_uncorrelated_and_uniform() {
        let n = 20_000_u64;
        let first: Vec<f64> = (0..n).map(|i| stream(1, "test", &[i]).random()).collect();
        let mean = first.iter().sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 4.0 / (12.0 * n as f64).sqrt());
        let lagged: f64 = first.windows(2).map(|w| (w[0] - 0.5) * (w[1] - 0.5)).sum();
        assert!((12.0 * lagged / n as f64).abs() < 4.0 / (n as f64).sqrt());
    }
}
