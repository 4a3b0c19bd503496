//! Every implementation against the scalar definitions, lane by lane and bit by bit.

use prism_stats::QuantileTable;
use prism_stats::counter::{Key, Stream, position, row};
use prism_stats::quantile_table::Jumps;

use super::{Isa, Modelled512, Portable, PreparedTable, Simd};

#[repr(align(64))]
struct Lanes([u32; 16]);

impl Lanes {
    fn as_ptr(&self) -> *const f32 {
        self.0.as_ptr().cast()
    }
}

fn words<S: Simd>(x: S::U) -> Vec<u32> {
    let mut out = Lanes([0; 16]);
    unsafe { S::store_u(out.0.as_mut_ptr().cast(), x) };
    out.0[..S::LANES].to_vec()
}

fn floats<S: Simd>(x: S::F) -> Vec<u32> {
    let mut out = Lanes([0; 16]);
    unsafe { S::store(out.0.as_mut_ptr().cast(), x) };
    out.0[..S::LANES].to_vec()
}

/// Words with magnitudes from every octave, in vectors of mixed and of equal octaves.
fn interesting_words() -> Vec<Lanes> {
    let stream = Stream::new(1, Key::new("words"));
    let mut out = Vec::new();
    for round in 0..2000_u32 {
        let mut lanes = [0; 16];
        for (i, lane) in lanes.iter_mut().enumerate() {
            let w = stream.word(16 * round + i as u32);
            let octave = if round % 2 == 0 { round % 32 } else { w % 32 };
            let magnitude = stream.word(!(16 * round + i as u32)) >> 1 >> octave;
            let magnitude =
                if (w >> 20).is_multiple_of(16) { 0x7fff_ffff >> octave } else { magnitude };
            *lane = magnitude | (w & 0x8000_0000);
        }
        out.push(Lanes(lanes));
    }
    out
}

fn tables() -> Vec<QuantileTable> {
    let plain = QuantileTable::from_quantiles(|p| -(-p).ln_1p(), |q| -q.ln()).unwrap();
    let jumps = Jumps { lower: Some(0.2), upper: Some(0.03) };
    let lower = |p: f64| if p < 0.2 { p } else { 1.0 + p };
    let upper = |q: f64| if q < 0.03 { 5.0 - q } else { 2.0 - q };
    vec![plain, QuantileTable::with_jumps(lower, upper, jumps).unwrap(), QuantileTable::uniform()]
}

unsafe fn check_tables<S: Simd, const SCALED: bool>(table: &QuantileTable) {
    let prepared = PreparedTable::new(table);
    assert_eq!(prepared.scaled, SCALED);
    for lanes in interesting_words() {
        unsafe {
            let word = S::load_u(lanes.as_ptr());
            let rare = S::is_rare::<SCALED>(word);
            let ready = S::table(&prepared);
            let want: Vec<u32> = lanes.0.iter().map(|&w| table.value(w).to_bits()).collect();
            let other = |w: &u32| table.value(w ^ 0x8000_0000).to_bits();
            let partner: Vec<u32> = lanes.0.iter().map(other).collect();
            let n = S::LANES;
            assert_eq!(floats::<S>(S::quantile::<SCALED>(&ready, word, rare)), want[..n]);
            // The slow look-up serves all words.
            assert_eq!(floats::<S>(S::quantile::<SCALED>(&ready, word, true)), want[..n]);
            let (own, mirrored) = S::quantile_pair::<SCALED>(&ready, word, rare);
            assert_eq!(
                (floats::<S>(own), floats::<S>(mirrored)),
                (want[..n].to_vec(), partner[..n].to_vec())
            );
        }
    }
}

unsafe fn check_integers<S: Simd>() {
    let stream = Stream::new(3, Key::new("integers"));
    let (k0, k1) = stream.words();
    for lanes in interesting_words() {
        unsafe {
            let a = S::load_u(lanes.as_ptr());
            let own = &lanes.0[..S::LANES];
            let map = |f: &dyn Fn(u32) -> u32| own.iter().map(|&w| f(w)).collect::<Vec<u32>>();
            let hashed = S::hash(S::add_u(a, S::splat_u(k0)), S::splat_u(k1));
            assert_eq!(words::<S>(hashed), map(&|w| stream.word(w)));
            assert_eq!(words::<S>(S::position(a)), map(&position));
            assert_eq!(words::<S>(S::partner(a)), map(&|w| w ^ 0x8000_0000));
            for rows in [1, 3, 43, 5504, 1 << 31] {
                let r = S::splat_u(rows);
                let drawn = S::mul_high_u(S::position(a), r);
                assert_eq!(words::<S>(drawn), map(&|w| row(w, rows)));
                assert_eq!(words::<S>(S::mul_u(a, r)), map(&|w| w.wrapping_mul(rows)));
            }
            let half = S::splat_u(0x8000_0000);
            let lower = S::select_lt_u(a, half, a, S::splat_u(7));
            assert_eq!(words::<S>(lower), map(&|w| if w < 0x8000_0000 { w } else { 7 }));
            let pool: Vec<u32> = (0..512).map(|i| i * 3 + 1).collect();
            let at = S::mul_high_u(a, S::splat_u(512));
            let want = map(&|w| (w >> 23) * 3 + 1);
            assert_eq!(words::<S>(S::gather_u(pool.as_ptr(), at)), want);
            assert_eq!(floats::<S>(S::gather(pool.as_ptr().cast(), at)), want);
        }
    }
    let counted = unsafe { words::<S>(S::count_from(u32::MAX - 3)) };
    let want: Vec<u32> = (0..S::LANES as u32).map(|i| (u32::MAX - 3).wrapping_add(i)).collect();
    assert_eq!(counted, want);
}

unsafe fn check_floats<S: Simd>() {
    let special =
        [0.0, -0.0, 1.0, -1.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, f32::MAX];
    let stream = Stream::new(4, Key::new("floats"));
    for i in 0..20_000_u32 {
        let value = |field: u32, lane: usize| {
            let w = stream.word((i * 16 + lane as u32) * 3 + field);
            if w.is_multiple_of(4) { special[w as usize / 4 % 9] } else { f32::from_bits(w) }
        };
        let column = |field| Lanes(std::array::from_fn(|lane| value(field, lane).to_bits()));
        let (a, b, c) = (column(0), column(1), column(2));
        let check = |got: Vec<u32>, f: &dyn Fn(f32, f32, f32) -> f32| {
            for (lane, got) in got.into_iter().enumerate() {
                let [a, b, c] = [&a, &b, &c].map(|x| f32::from_bits(x.0[lane]));
                let want = f(a, b, c);
                let same = got == want.to_bits() || (f32::from_bits(got).is_nan() && want.is_nan());
                assert!(same, "{a:e}, {b:e}, {c:e}: {:e}, not {want:e}", f32::from_bits(got));
            }
        };
        unsafe {
            let [x, y, z] = [&a, &b, &c].map(|v| S::load(v.as_ptr()));
            check(floats::<S>(S::add(x, y)), &|a, b, _| a + b);
            check(floats::<S>(S::sub(x, y)), &|a, b, _| a - b);
            check(floats::<S>(S::mul(x, y)), &|a, b, _| a * b);
            check(floats::<S>(S::fma(x, y, z)), &|a, b, c| a.mul_add(b, c));
            check(floats::<S>(S::max(x, y)), &|a, b, _| if a > b { a } else { b });
            check(floats::<S>(S::min(x, y)), &|a, b, _| if a < b { a } else { b });
            check(floats::<S>(S::select_ge(x, y, z, x)), &|a, b, c| if a >= b { c } else { a });
        }
    }
}

/// # Safety
/// The processor must have the instruction set.
unsafe fn check_all<S: Simd>() {
    unsafe {
        for table in tables() {
            if table.scales() == [1.0, 1.0] {
                check_tables::<S, false>(&table);
            }
            if table.scales() != [1.0, 1.0] {
                check_tables::<S, true>(&table);
            }
        }
        check_integers::<S>();
        check_floats::<S>();
    }
}

#[test]
fn portable_lanes() {
    // SAFETY: plain Rust.
    unsafe {
        check_all::<Portable<8>>();
        check_all::<Portable<16>>();
    }
}

#[test]
fn modelled_avx512_lanes() {
    // SAFETY: plain Rust.
    unsafe { check_all::<Modelled512>() }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn avx2_lanes() {
    if !Isa::Avx2.is_available() {
        eprintln!("skipped: this processor has no AVX2");
        return;
    }
    // SAFETY: just asked.
    unsafe { check_all::<super::Avx2>() }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn avx512_lanes() {
    if !Isa::Avx512.is_available() {
        eprintln!("skipped: this processor has no AVX-512; only the model of its code was run");
        return;
    }
    // SAFETY: just asked.
    unsafe { check_all::<super::Avx512>() }
}
