//! Counter-based random numbers: a number is a function of what it is for.
//!
//! Simulations that compare two variants of a job want every effect that the variants share to be
//! drawn identically, whatever was added, removed or reordered around it, on any number of threads
//! and with any vector width. So there is no generator state: the 32 random bits of a draw are
//! [`Stream::word`] of a counter (the sample) in a stream named by (seed, [`Key`], replica).
//!
//! # Construction
//! A [`Key`] hashes an effect's label and its entity's fields (stage, microbatch, …) to 64 bits.
//! Seed and replica are mixed in by the same finaliser (Stafford's variant 13, as in `SplitMix64`),
//! giving the stream's 64-bit key (k1, k0). A word is then a bijective 32-bit integer hash of the
//! counter, keyed twice before the first of its three rounds:
//!
//! ```text
//! x = counter + k0
//! x = (x ^ x >> 17 ^ k1) * 0xed5ad4bb
//! x = (x ^ x >> 11) * 0xac4c1b51
//! x = (x ^ x >> 15) * 0x31848bab
//! x =  x ^ x >> 14
//! ```
//!
//! Without the keys this is `triple32` of C. Wellons' hash-prospector, the least biased known
//! 32-bit hash of three multiplications. It needs 32-bit integer operations only, so that SSE2,
//! AVX2, AVX-512 and scalar code give the same bits.
//!
//! # Quality and limits
//! The tests check per-bit and per-byte uniformity, avalanche in counter and key, serial and
//! cross-stream correlation, collisions and birthday spacings across streams. Within one stream the
//! hash is a permutation: a word repeats only after 2³² counters, where a random sequence of n words
//! would repeat about n²/2³³ times. For Monte Carlo with fewer than 2³² samples this is a
//! stratification of the finest digits, far below the sampling error. It is no cipher.
//!
//! ```
//! use prism_stats::counter::{Key, Stream};
//!
//! let key = Key::new("residual").with(3).with(17);
//! let stream = Stream::new(42, key).replica(5);
//! assert_eq!(stream.word(0), Stream::new(42, key).replica(5).word(0));
//! assert_ne!(stream.word(0), Stream::new(42, key).replica(6).word(0));
//! ```

/// Multipliers of the three rounds of [`Stream::word`].
pub const MULTIPLIERS: [u32; 3] = [0xed5a_d4bb, 0xac4c_1b51, 0x3184_8bab];
/// Right shifts before the first, second and third multiplication, and at the end.
pub const SHIFTS: [u32; 4] = [17, 11, 15, 14];

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const CHAIN: u64 = 0xd134_2543_de82_ef95;
const HIGH: u64 = 0xa076_1d64_78bd_642f;

/// A bijection of 64-bit words with full avalanche (Stafford's variant 13).
pub const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a random number is for: an effect and the entity it belongs to, hashed to 64 bits.
///
/// Build it from semantic names, never from an index into some list: `Key::new("residual")
/// .with(stage).with(microbatch)`. The order of the fields matters. Two draws with equal keys use
/// the same uniform number, which is how one effect acts with several loadings. The hash is part of
/// the reproducibility promise: it is the same on every platform and pinned by tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u64);

impl Key {
    /// The key of an effect, before any entity.
    pub const fn new(effect: &str) -> Self {
        Key(0x243f_6a88_85a3_08d3).with_text(effect)
    }

    /// The key with one more field of the entity. Sign-extend signed fields (`as u64`).
    #[must_use]
    pub const fn with(self, field: u64) -> Self {
        Key(mix64(self.0.wrapping_mul(CHAIN).wrapping_add(field).wrapping_add(GOLDEN)))
    }

    /// The key with a name as one more field: its bytes, then its length.
    #[must_use]
    pub const fn with_text(self, name: &str) -> Self {
        let bytes = name.as_bytes();
        let mut key = self;
        let mut i = 0;
        while i < bytes.len() {
            key = key.with(bytes[i] as u64);
            i += 1;
        }
        key.with(bytes.len() as u64)
    }

    /// The 64 bits.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// A stream of 32-bit words addressed by a counter; see the [module](self) for the construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(u64);

impl Stream {
    /// The stream of a key under a seed, shared by all replicas.
    pub const fn new(seed: u64, key: Key) -> Self {
        Stream(mix64(key.0 ^ mix64(seed.wrapping_add(GOLDEN))))
    }

    /// The stream's variant for one replica: another one than the shared stream, also for replica 0.
    #[must_use]
    pub const fn replica(self, replica: u32) -> Self {
        Stream(mix64(self.0.wrapping_add((replica as u64 + 1).wrapping_mul(GOLDEN))))
    }

    /// The stream's continuation for counters whose upper 32 bits are `high`; 0 changes nothing.
    #[must_use]
    pub const fn epoch(self, high: u32) -> Self {
        if high == 0 {
            self
        } else {
            Stream(mix64(self.0.wrapping_add((high as u64).wrapping_mul(HIGH))))
        }
    }

    /// The two key words (k0, k1) of the hash.
    pub const fn words(self) -> (u32, u32) {
        (self.0 as u32, (self.0 >> 32) as u32)
    }

    /// 32 random bits for a counter.
    pub const fn word(self, counter: u32) -> u32 {
        let (k0, k1) = self.words();
        let mut x = counter.wrapping_add(k0);
        x = (x ^ (x >> SHIFTS[0]) ^ k1).wrapping_mul(MULTIPLIERS[0]);
        x = (x ^ (x >> SHIFTS[1])).wrapping_mul(MULTIPLIERS[1]);
        x = (x ^ (x >> SHIFTS[2])).wrapping_mul(MULTIPLIERS[2]);
        x ^ (x >> SHIFTS[3])
    }
}

/// The word as a position in \[0, 2³²): monotone in the uniform number that [a quantile
/// table](crate::quantile_table) reads from it, and mirrored (`!position`) when bit 31 flips.
pub const fn position(word: u32) -> u32 {
    word ^ (((word as i32) >> 31) as u32 >> 1)
}

/// An integer in `0..rows` from a word: `⌊position · rows / 2³²⌋`. Its bias is below rows/2³².
pub const fn row(word: u32, rows: u32) -> u32 {
    ((position(word) as u64 * rows as u64) >> 32) as u32
}
