//! The counter-based streams, tested as a random number generator.
//!
//! Seeds are fixed, so that each test passes or fails for good. Its limit is five standard deviations
//! of its statistic under ideal randomness (two-sided 6e-7, or 2e-3 over the 3,500 statistics here),
//! unless it says otherwise.

use prism_stats::counter::{Key, MULTIPLIERS, SHIFTS, Stream, position, row};

const LIMIT: f64 = 5.0;

fn streams() -> Vec<(&'static str, Stream)> {
    let key = Key::new("residual");
    vec![
        ("seed 0", Stream::new(0, key)),
        ("seed 1", Stream::new(1, key)),
        ("entity", Stream::new(1, key.with(3).with(u64::MAX))),
        ("replica 0", Stream::new(1, key).replica(0)),
        ("replica 8191", Stream::new(1, key).replica(8191)),
        ("epoch 1", Stream::new(1, key).epoch(1)),
    ]
}

#[test]
fn the_hash_is_pinned() {
    // Computed by a second implementation, in Python.
    assert_eq!(Key::new("residual").bits(), 0xfc9f_e19a_1e68_5010);
    assert_eq!(Key::new("residual").with(3).with_text("forward").bits(), 0x1022_3ef8_4b04_bfe7);
    let stream = Stream::new(42, Key::new("residual").with(3)).replica(5);
    assert_eq!(stream.words(), (0x3469_9cbd, 0x2b8a_31e9));
    assert_eq!([0, 1, u32::MAX].map(|c| stream.word(c)), [0xd5e0_47f0, 0x06df_6163, 0xb10d_16c6]);
    assert_eq!(stream.epoch(7).word(1), 0xa4cd_887c);
    assert_eq!(stream.epoch(0), stream);
}

#[test]
fn without_keys_it_is_triple32() {
    // Published test of the hash: it maps 0 to 0, and is a bijection built of these constants.
    assert_eq!(MULTIPLIERS, [0xed5a_d4bb, 0xac4c_1b51, 0x3184_8bab]);
    assert_eq!(SHIFTS, [17, 11, 15, 14]);
}

#[test]
fn keys_depend_on_effect_fields_and_their_order() {
    let base = Key::new("launch");
    let keys = [
        base,
        Key::new("launcg"),
        Key::new(""),
        base.with(0),
        base.with(0).with(0),
        base.with(1).with(2),
        base.with(2).with(1),
        base.with_text("ab").with_text("c"),
        base.with_text("a").with_text("bc"),
        Key::new("launchabc"),
    ];
    let mut bits = keys.map(Key::bits);
    bits.sort_unstable();
    assert!(bits.windows(2).all(|w| w[0] != w[1]));
}

#[test]
fn every_bit_is_set_half_the_time() {
    let n = 1_u32 << 20;
    for (name, stream) in streams() {
        let mut ones = [0_u32; 32];
        for c in 0..n {
            let w = stream.word(c);
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += w >> bit & 1;
            }
        }
        for (bit, count) in ones.into_iter().enumerate() {
            let z = (f64::from(count) - f64::from(n) / 2.0) / (f64::from(n) / 4.0).sqrt();
            assert!(z.abs() < LIMIT, "{name}, bit {bit}: {z:.2} sd");
        }
    }
}

/// Chi-square against equal counts, in standard deviations.
fn chi_square(counts: &[u32]) -> f64 {
    let total: u32 = counts.iter().sum();
    let (cells, expected) = (counts.len() as f64, f64::from(total) / counts.len() as f64);
    let chi: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
    (chi - (cells - 1.0)) / (2.0 * (cells - 1.0)).sqrt()
}

#[test]
fn every_byte_is_uniform_and_so_are_pairs_of_neighbours() {
    for (name, stream) in streams() {
        let mut bytes = vec![[0_u32; 256]; 4];
        let mut pairs = [vec![0_u32; 65536], vec![0_u32; 65536]];
        for c in 0..1 << 21 {
            let w = stream.word(c);
            for (byte, counts) in bytes.iter_mut().enumerate() {
                counts[(w >> (8 * byte) & 255) as usize] += 1;
            }
            // Top and bottom byte of two consecutive counters, pairs not overlapping.
            if c % 2 == 0 {
                let next = stream.word(c + 1);
                pairs[0][(w >> 24 << 8 | next >> 24) as usize] += 1;
                pairs[1][((w & 255) << 8 | next & 255) as usize] += 1;
            }
        }
        for (byte, counts) in bytes.iter().enumerate() {
            let z = chi_square(counts);
            assert!(z.abs() < LIMIT, "{name}, byte {byte}: {z:.2} sd");
        }
        for (which, counts) in pairs.iter().enumerate() {
            let z = chi_square(counts);
            assert!(z.abs() < LIMIT, "{name}, pairs {which}: {z:.2} sd");
        }
    }
}

/// Largest deviation from one half of the probability that an output bit flips, over all pairs of an
/// input and an output bit. `flip(i, bit)` gives the two outputs.
fn avalanche(inputs: u32, n: u32, flip: impl Fn(u32, u32) -> (u32, u32)) -> f64 {
    let mut worst = 0.0_f64;
    for bit in 0..inputs {
        let mut flips = [0_u32; 32];
        for i in 0..n {
            let (a, b) = flip(i, bit);
            for (out, count) in flips.iter_mut().enumerate() {
                *count += (a ^ b) >> out & 1;
            }
        }
        for count in flips {
            worst = worst.max((f64::from(count) / f64::from(n) - 0.5).abs());
        }
    }
    worst
}

#[test]
fn one_input_bit_flips_every_output_bit_half_the_time() {
    let n = 1 << 16;
    let random = Stream::new(9, Key::new("inputs"));
    // 1,024 pairs, or 2,048 for keys.
    let limit = LIMIT * 0.5 / f64::from(n).sqrt();
    let stream = Stream::new(3, Key::new("avalanche"));
    let counter = avalanche(32, n, |i, bit| {
        let c = random.word(i);
        (stream.word(c), stream.word(c ^ 1 << bit))
    });
    // The hash itself has a bias of this order for counters that differ in high bits.
    assert!(counter < limit + 0.01, "counter: {counter}");
    let field = avalanche(64, n, |i, bit| {
        let f = u64::from(random.word(i)) << 32 | u64::from(random.word(!i));
        let word = |f| Stream::new(3, Key::new("avalanche").with(f)).word(17);
        (word(f), word(f ^ 1 << bit))
    });
    assert!(field < limit, "field of the key: {field}");
    let replica = avalanche(32, n, |i, bit| {
        let r = random.word(i) & 0x7fff_ffff;
        (stream.replica(r).word(17), stream.replica(r ^ 1 << bit).word(17))
    });
    assert!(replica < limit, "replica: {replica}");
    let seed = avalanche(64, n, |i, bit| {
        let s = u64::from(random.word(i)) << 32 | u64::from(random.word(!i));
        let word = |s| Stream::new(s, Key::new("avalanche")).word(17);
        (word(s), word(s ^ 1 << bit))
    });
    assert!(seed < limit, "seed: {seed}");
}

/// Correlation of two uniform sequences, in standard deviations.
fn correlation(n: u32, pair: impl Fn(u32) -> (u32, u32)) -> f64 {
    let centred = |w: u32| f64::from(w) / 4_294_967_296.0 - 0.5;
    let sum: f64 = (0..n)
        .map(|i| {
            let (a, b) = pair(i);
            centred(a) * centred(b)
        })
        .sum();
    sum * 12.0 / f64::from(n).sqrt()
}

/// Mean number of bits in which two sequences differ, in standard deviations from 16.
fn distance(n: u32, pair: impl Fn(u32) -> (u32, u32)) -> f64 {
    let sum: f64 = (0..n).map(|i| f64::from((pair(i).0 ^ pair(i).1).count_ones()) - 16.0).sum();
    sum / (8.0 * f64::from(n)).sqrt()
}

#[test]
fn neighbours_in_a_stream_are_uncorrelated() {
    for (name, stream) in streams() {
        for lag in (1..=32).chain([64, 128, 256, 1024, 1 << 16, 1 << 31]) {
            let pair = |c: u32| (stream.word(c), stream.word(c.wrapping_add(lag)));
            let (r, d) = (correlation(1 << 18, pair), distance(1 << 18, pair));
            assert!(r.abs() < LIMIT && d.abs() < LIMIT, "{name}, lag {lag}: {r:.2}, {d:.2} sd");
        }
    }
}

#[test]
fn neighbouring_streams_are_uncorrelated() {
    let n = 1 << 17;
    let key = Key::new("residual").with(5);
    for i in 0..64_u32 {
        let wide = u64::from(i);
        let one = Stream::new(11, key.with(wide));
        let pairs = [
            ("microbatch", one, Stream::new(11, key.with(wide + 1))),
            ("replica", one.replica(i), one.replica(i + 1)),
            ("shared and replica", one, one.replica(i)),
            ("seed", Stream::new(wide, key), Stream::new(wide + 1, key)),
            ("effect", one, Stream::new(11, Key::new("launch").with(5).with(wide))),
            ("epoch", one, one.epoch(i + 1)),
        ];
        for (name, a, b) in pairs {
            let pair = |c: u32| (a.word(c), b.word(c));
            let (r, d) = (correlation(n, pair), distance(n, pair));
            assert!(r.abs() < LIMIT && d.abs() < LIMIT, "{name} {i}: {r:.2}, {d:.2} sd");
        }
    }
}

/// Streams at equal k0 whose k1 differ in one bit. The hash leaves a correlation of about 0.01 where
/// that is a high bit; one pair of streams in 2⁵⁹ is such a pair.
#[test]
fn streams_that_differ_in_one_bit_of_k1_are_nearly_uncorrelated() {
    let word = |k1: u32, c: u32| {
        let mut x = (c ^ (c >> SHIFTS[0]) ^ k1).wrapping_mul(MULTIPLIERS[0]);
        x = (x ^ (x >> SHIFTS[1])).wrapping_mul(MULTIPLIERS[1]);
        x = (x ^ (x >> SHIFTS[2])).wrapping_mul(MULTIPLIERS[2]);
        x ^ (x >> SHIFTS[3])
    };
    let stream = Stream::new(1, Key::new("same"));
    let (k0, k1) = stream.words();
    assert_eq!(stream.word(99), word(k1, 99_u32.wrapping_add(k0)));
    for bit in 0..32 {
        let pair = |c: u32| (word(k1, c), word(k1 ^ 1 << bit, c));
        let r = correlation(1 << 18, pair) / 512.0;
        assert!(r.abs() < 0.01 + LIMIT / 512.0, "bit {bit}: {r:.4}");
    }
}

/// The order in which a simulation uses numbers: all draws of a sample, then the next sample's.
fn in_order_of_use(n: usize, draws: u64) -> Vec<u32> {
    let stream =
        |d: u64| Stream::new(5, Key::new("op").with(d / 16).with(d % 16)).replica(d as u32 % 4);
    let streams: Vec<Stream> = (0..draws).map(stream).collect();
    (0..n).map(|i| streams[i % streams.len()].word((i / streams.len()) as u32)).collect()
}

#[test]
fn words_across_streams_collide_as_often_as_random_ones() {
    let n = 1 << 21;
    let mut words = in_order_of_use(n, 1 << 14);
    words.sort_unstable();
    let collisions = words.windows(2).filter(|w| w[0] == w[1]).count() as f64;
    let expected = (n as f64).powi(2) / 2.0_f64.powi(33);
    let z = (collisions - expected) / expected.sqrt();
    assert!(z.abs() < LIMIT, "{collisions} collisions, {expected} expected: {z:.2} sd");
}

/// Marsaglia's birthday spacings: 4,096 birthdays in 2³² days have 4 equal spacings on average.
#[test]
fn birthday_spacings_are_poisson() {
    let birthdays = 4096;
    let rounds = 500;
    let words = in_order_of_use(birthdays * rounds, 4096);
    let stream = Stream::new(8, Key::new("birthday"));
    let within: Vec<u32> = (0..(birthdays * rounds) as u32).map(|c| stream.word(c)).collect();
    for (name, words) in [("in order of use", words), ("within a stream", within)] {
        let mut equal = 0;
        for year in words.chunks(birthdays) {
            let mut days = year.to_vec();
            days.sort_unstable();
            let mut spacings: Vec<u32> = days.windows(2).map(|w| w[1] - w[0]).collect();
            spacings.sort_unstable();
            equal += spacings.windows(2).filter(|w| w[0] == w[1]).count();
        }
        let expected = 4.0 * rounds as f64;
        let z = (equal as f64 - expected) / expected.sqrt();
        assert!(z.abs() < LIMIT, "{name}: {equal} equal spacings, {expected} expected: {z:.2} sd");
    }
}

#[test]
fn positions_are_monotone_and_mirrored() {
    // Lower side: the magnitude itself. Upper side: the mirror image.
    assert_eq!(position(0), 0);
    assert_eq!(position(0x7fff_ffff), 0x7fff_ffff);
    assert_eq!(position(0xffff_ffff), 0x8000_0000);
    assert_eq!(position(0x8000_0000), 0xffff_ffff);
    let stream = Stream::new(1, Key::new("position"));
    for c in 0..10_000 {
        let w = stream.word(c);
        assert_eq!(position(w ^ 0x8000_0000), !position(w));
        for rows in [1, 2, 3, 43, 5504, u32::MAX] {
            let r = row(w, rows);
            assert!(r < rows);
            assert_eq!(r, (f64::from(position(w)) * f64::from(rows) / 4_294_967_296.0) as u32);
        }
    }
}
