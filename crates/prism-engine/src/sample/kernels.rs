//! What every instruction does to a block of samples, for any instruction set.
//!
//! A kernel is called once per instruction, replica and block. It is generic in [`Simd`] and inlined
//! into a function compiled for the instruction set; [`for_isa`] collects those in a table by
//! operation code.

use std::mem::MaybeUninit;

use prism_stats::counter::Stream;

use super::simd::{Isa, PreparedTable, Simd};
use super::tape::{GatherSpec, IndexLaw, Ins, PER_REPLICA, SLOT_BITS, op};

/// Samples of a block that share random numbers two by two: number i of the first half of each group
/// of this many samples is the partner of number i of the second half.
pub(crate) const GROUP: usize = 32;

/// Samples of the widest block: vectors of 8 in it have a bit each in 64.
pub(crate) const MAX_WIDTH: usize = 256;

/// A row of an output: where this block's sample 0 would be stored, and the distance to the next
/// replica's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputRow {
    pub(crate) data: *mut f32,
    pub(crate) stride: usize,
}

// SAFETY: threads that share a row write different samples of it.
unsafe impl Send for OutputRow {}
// SAFETY: as above.
unsafe impl Sync for OutputRow {}

/// Words of a block.
#[repr(align(64))]
struct Words(#[expect(dead_code, reason = "written and read by address")] [u32; MAX_WIDTH]);

/// What kernels see of a run: one block, one replica.
pub(crate) struct Ctx<'a> {
    /// First slot of each bank; the fourth is unused.
    pub(crate) bases: [*mut f32; 4],
    /// Samples per block.
    pub(crate) width: usize,
    pub(crate) replica: u32,
    /// First counter of the block, and its upper half.
    pub(crate) counter: u32,
    pub(crate) epoch: u32,
    pub(crate) streams: &'a [Stream],
    pub(crate) scalars: &'a [f32],
    pub(crate) gathers: &'a [GatherSpec],
    pub(crate) offsets: &'a [u32],
    pub(crate) pools: &'a [Vec<f32>],
    pub(crate) laws: &'a [IndexLaw],
    pub(crate) maps: &'a [Vec<u32>],
    pub(crate) tables: &'a [PreparedTable],
    pub(crate) outputs: &'a [OutputRow],
    /// Samples of the block that are wanted, and where the first one goes in an output row.
    pub(crate) wanted: std::ops::Range<usize>,
    pub(crate) at: usize,
}

impl Ctx<'_> {
    /// First element of an operand's slot.
    #[inline(always)]
    unsafe fn slot(&self, operand: u32) -> *mut f32 {
        let bank = (operand >> SLOT_BITS) as usize & 3;
        let slot = (operand & ((1 << SLOT_BITS) - 1)) as usize;
        unsafe { self.bases[bank].add(slot * self.width) }
    }

    /// An entry that may have a variant per replica.
    #[inline(always)]
    fn entry(&self, entry: u32) -> usize {
        let first = (entry & !PER_REPLICA) as usize;
        if entry & PER_REPLICA == 0 { first } else { first + self.replica as usize }
    }

    #[inline(always)]
    fn scalar(&self, ins: &Ins) -> f32 {
        self.scalars[self.entry(ins.scalar)]
    }

    /// Counters to which k0 was added, for the first vector, and k1.
    #[inline(always)]
    unsafe fn stream<S: Simd>(&self, draw: u32) -> (S::U, S::U) {
        let mut stream = self.streams[(draw & !PER_REPLICA) as usize];
        if draw & PER_REPLICA != 0 {
            stream = stream.replica(self.replica);
        }
        let (k0, k1) = stream.epoch(self.epoch).words();
        unsafe { (S::count_from(self.counter.wrapping_add(k0)), S::splat_u(k1)) }
    }
}

/// Turns a draw x into `max(starts) + x · scalar · Π factors`, at any place of the block.
#[derive(Clone, Copy)]
struct End<S: Simd, const STARTS: usize, const FACTORS: usize> {
    out: *mut f32,
    starts: [*const f32; 2],
    factors: [*const f32; 2],
    scalar: S::F,
}

impl<S: Simd, const STARTS: usize, const FACTORS: usize> End<S, STARTS, FACTORS> {
    #[inline(always)]
    unsafe fn new(c: &Ctx<'_>, i: &Ins) -> Self {
        unsafe {
            Self {
                out: c.slot(i.out),
                starts: [c.slot(i.a), c.slot(i.b)],
                factors: [c.slot(i.f[0]), c.slot(i.f[1])],
                scalar: S::splat(c.scalar(i)),
            }
        }
    }

    #[inline(always)]
    unsafe fn put(&self, q: usize, x: S::F) {
        unsafe {
            let mut scale = self.scalar;
            if FACTORS > 0 {
                scale = S::mul(scale, S::load(self.factors[0].add(q)));
            }
            if FACTORS > 1 {
                scale = S::mul(scale, S::load(self.factors[1].add(q)));
            }
            let end = match STARTS {
                0 => S::mul(x, scale),
                1 => S::fma(x, scale, S::load(self.starts[0].add(q))),
                _ => {
                    let (a, b) = (S::load(self.starts[0].add(q)), S::load(self.starts[1].add(q)));
                    S::fma(x, scale, S::max(a, b))
                }
            };
            S::store(self.out.add(q), end);
        }
    }
}

/// Calls `f(v, word, rare)` for vector v = 0, 1, … of a draw's words.
#[inline(always)]
unsafe fn each_word<S: Simd, const SCALED: bool>(
    c: &Ctx<'_>,
    i: &Ins,
    vectors: usize,
    mut f: impl FnMut(usize, S::U, bool),
) {
    unsafe {
        let (mut counter, k1) = c.stream::<S>(i.aux);
        let step = S::splat_u(S::LANES as u32);
        if !S::AHEAD {
            for v in 0..vectors {
                let word = S::hash(counter, k1);
                f(v, word, S::is_rare::<SCALED>(word));
                counter = S::add_u(counter, step);
            }
            return;
        }
        let mut words = MaybeUninit::<Words>::uninit();
        let words = words.as_mut_ptr().cast::<f32>();
        let mut rare = 0_u64;
        for v in 0..vectors {
            let word = S::hash(counter, k1);
            S::store_u(words.add(v * S::LANES), word);
            rare |= u64::from(S::is_rare::<SCALED>(word)) << v;
            counter = S::add_u(counter, step);
        }
        for v in 0..vectors {
            f(v, S::load_u(words.add(v * S::LANES)), rare >> v & 1 != 0);
        }
    }
}

#[inline(always)]
unsafe fn draw<S: Simd, const SCALED: bool, const STARTS: usize, const FACTORS: usize>(
    c: &Ctx<'_>,
    i: &Ins,
) {
    unsafe {
        let table = S::table(&c.tables[i.data as usize]);
        let end = End::<S, STARTS, FACTORS>::new(c, i);
        each_word::<S, SCALED>(c, i, c.width / S::LANES, |v, word, rare| {
            end.put(v * S::LANES, S::quantile::<SCALED>(&table, word, rare));
        });
    }
}

#[inline(always)]
unsafe fn draw_pairs<S: Simd, const SCALED: bool, const STARTS: usize, const FACTORS: usize>(
    c: &Ctx<'_>,
    i: &Ins,
) {
    const HALF: usize = GROUP / 2;
    unsafe {
        let table = S::table(&c.tables[i.data as usize]);
        let end = End::<S, STARTS, FACTORS>::new(c, i);
        each_word::<S, SCALED>(c, i, c.width / 2 / S::LANES, |v, word, rare| {
            let (x, y) = S::quantile_pair::<SCALED>(&table, word, rare);
            let pair = v * S::LANES;
            let q = pair / HALF * GROUP + pair % HALF;
            end.put(q, x);
            end.put(q + HALF, y);
        });
    }
}

#[inline(always)]
unsafe fn gather<S: Simd, const STARTS: usize, const FACTORS: usize>(c: &Ctx<'_>, i: &Ins) {
    unsafe {
        let spec = &c.gathers[i.aux as usize];
        let offset = c.offsets[c.entry(spec.offset)] as usize;
        let base = c.pools[spec.pool as usize].as_ptr().add(offset);
        let stride = S::splat_u(spec.stride);
        let index = c.slot(i.data);
        let end = End::<S, STARTS, FACTORS>::new(c, i);
        let mut q = 0;
        while q < c.width {
            let row = S::mul_u(S::load_u(index.add(q)), stride);
            end.put(q, S::gather(base, row));
            q += S::LANES;
        }
    }
}

/// The row that a word draws.
#[inline(always)]
unsafe fn row<S: Simd, const ALIAS: bool>(law: &IndexLaw, word: S::U) -> S::U {
    unsafe {
        let (position, rows) = (S::position(word), S::splat_u(law.rows));
        let row = S::mul_high_u(position, rows);
        if !ALIAS {
            return row;
        }
        let threshold = S::gather_u(law.threshold.as_ptr(), row);
        let alias = S::gather_u(law.alias.as_ptr(), row);
        S::select_lt_u(S::mul_u(position, rows), threshold, row, alias)
    }
}

#[inline(always)]
unsafe fn index<S: Simd, const PAIRS: bool, const ALIAS: bool>(c: &Ctx<'_>, i: &Ins) {
    unsafe {
        let law = &c.laws[i.data as usize];
        let (mut counter, k1) = c.stream::<S>(i.aux);
        let step = S::splat_u(S::LANES as u32);
        let out = c.slot(i.out);
        let mut q = 0;
        while q < c.width {
            let word = S::hash(counter, k1);
            S::store_u(out.add(q), row::<S, ALIAS>(law, word));
            counter = S::add_u(counter, step);
            q += S::LANES;
            if PAIRS {
                let partner = row::<S, ALIAS>(law, S::partner(word));
                S::store_u(out.add(q - S::LANES + GROUP / 2), partner);
                if q % GROUP == GROUP / 2 {
                    q += GROUP / 2;
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn map_index<S: Simd>(c: &Ctx<'_>, i: &Ins) {
    unsafe {
        let map = c.maps[i.aux as usize].as_ptr();
        let (from, out) = (c.slot(i.a), c.slot(i.out));
        let mut q = 0;
        while q < c.width {
            S::store_u(out.add(q), S::gather_u(map, S::load_u(from.add(q))));
            q += S::LANES;
        }
    }
}

/// Applies `f` to three operands, element by element.
#[inline(always)]
unsafe fn each<S: Simd>(c: &Ctx<'_>, i: &Ins, f: impl Fn(S::F, S::F, S::F) -> S::F) {
    unsafe {
        let (a, b, x, out) = (c.slot(i.a), c.slot(i.b), c.slot(i.f[0]), c.slot(i.out));
        let mut q = 0;
        while q < c.width {
            let value = f(S::load(a.add(q)), S::load(b.add(q)), S::load(x.add(q)));
            S::store(out.add(q), value);
            q += S::LANES;
        }
    }
}

#[inline(always)]
unsafe fn splat<S: Simd>(c: &Ctx<'_>, i: &Ins) {
    unsafe {
        let (out, value) = (c.slot(i.out), S::splat(c.scalar(i)));
        let mut q = 0;
        while q < c.width {
            S::store(out.add(q), value);
            q += S::LANES;
        }
    }
}

#[inline(always)]
unsafe fn load_block<S: Simd>(c: &Ctx<'_>, i: &Ins) {
    unsafe {
        let from = c.slot(i.a + c.replica / i.aux);
        std::ptr::copy_nonoverlapping(from, c.slot(i.out), c.width);
    }
}

/// Folds a value into the accumulator of its block of replicas.
#[inline(always)]
unsafe fn fold<S: Simd>(c: &Ctx<'_>, i: &Ins, f: impl Fn(S::F, S::F) -> S::F) {
    unsafe {
        let (from, out) = (c.slot(i.a), c.slot(i.out + c.replica / i.aux));
        if c.replica.is_multiple_of(i.aux) {
            std::ptr::copy_nonoverlapping(from, out, c.width);
            return;
        }
        let mut q = 0;
        while q < c.width {
            S::store(out.add(q), f(S::load(out.add(q)), S::load(from.add(q))));
            q += S::LANES;
        }
    }
}

#[inline(always)]
unsafe fn output(c: &Ctx<'_>, i: &Ins) {
    let row = c.outputs[i.aux as usize];
    let replica = if i.data == 0 { 0 } else { c.replica as usize };
    let (from, count) = (c.wanted.start, c.wanted.end - c.wanted.start);
    unsafe {
        let to = row.data.add(replica * row.stride + c.at);
        std::ptr::copy_nonoverlapping(c.slot(i.a).add(from), to, count);
    }
}

/// An instruction's code for one instruction set.
pub(crate) type Kernel = unsafe fn(&Ctx<'_>, &Ins);

/// Kernels by operation code.
pub(crate) type Kernels = [Kernel; op::COUNT];

/// Compiles every kernel for one instruction set.
macro_rules! kernels_for {
    ($module:ident, $simd:ty $(, $features:literal)?) => {
        mod $module {
            use super::*;
            type S = $simd;

            macro_rules! kernel {
                ($name:ident, $c:ident, $i:ident, $body:expr) => {
                    $(#[target_feature(enable = $features)])?
                    unsafe fn $name($c: &Ctx<'_>, $i: &Ins) {
                        unsafe { $body }
                    }
                };
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn draw<const SCALED: bool, const PAIRS: bool, const ST: usize, const FA: usize>(
                c: &Ctx<'_>,
                i: &Ins,
            ) {
                unsafe {
                    if PAIRS {
                        super::draw_pairs::<S, SCALED, ST, FA>(c, i);
                    } else {
                        super::draw::<S, SCALED, ST, FA>(c, i);
                    }
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn gather<const ST: usize, const FA: usize>(c: &Ctx<'_>, i: &Ins) {
                unsafe { super::gather::<S, ST, FA>(c, i) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn index<const PAIRS: bool, const ALIAS: bool>(c: &Ctx<'_>, i: &Ins) {
                unsafe { super::index::<S, PAIRS, ALIAS>(c, i) }
            }
            kernel!(map_index, c, i, super::map_index::<S>(c, i));
            kernel!(add, c, i, super::each::<S>(c, i, |a, b, _| S::add(a, b)));
            kernel!(sub, c, i, super::each::<S>(c, i, |a, b, _| S::sub(a, b)));
            kernel!(mul, c, i, super::each::<S>(c, i, |a, b, _| S::mul(a, b)));
            kernel!(max, c, i, super::each::<S>(c, i, |a, b, _| S::max(a, b)));
            kernel!(min, c, i, super::each::<S>(c, i, |a, b, _| S::min(a, b)));
            kernel!(mul_add, c, i, super::each::<S>(c, i, |a, b, x| S::fma(a, b, x)));
            kernel!(max_add, c, i, super::each::<S>(c, i, |a, b, x| S::add(S::max(a, b), x)));
            kernel!(select, c, i, {
                let t = S::splat(c.scalar(i));
                super::each::<S>(c, i, |a, b, x| S::select_ge(x, t, a, b))
            });
            kernel!(step, c, i, {
                let (t, one, zero) = (S::splat(c.scalar(i)), S::splat(1.0), S::splat(0.0));
                super::each::<S>(c, i, |a, _, _| S::select_ge(a, t, one, zero))
            });
            kernel!(splat, c, i, super::splat::<S>(c, i));
            kernel!(load_block, c, i, super::load_block::<S>(c, i));
            kernel!(fold_max, c, i, super::fold::<S>(c, i, |a, b| S::max(a, b)));
            kernel!(fold_sum, c, i, super::fold::<S>(c, i, |a, b| S::add(a, b)));
            kernel!(output, c, i, super::output(c, i));

            fn table<const PAIRS: bool>() -> Kernels {
                [
                    draw::<false, PAIRS, 0, 0>,
                    draw::<false, PAIRS, 0, 1>,
                    draw::<false, PAIRS, 0, 2>,
                    draw::<false, PAIRS, 1, 0>,
                    draw::<false, PAIRS, 1, 1>,
                    draw::<false, PAIRS, 1, 2>,
                    draw::<false, PAIRS, 2, 0>,
                    draw::<false, PAIRS, 2, 1>,
                    draw::<false, PAIRS, 2, 2>,
                    draw::<true, PAIRS, 0, 0>,
                    draw::<true, PAIRS, 0, 1>,
                    draw::<true, PAIRS, 0, 2>,
                    draw::<true, PAIRS, 1, 0>,
                    draw::<true, PAIRS, 1, 1>,
                    draw::<true, PAIRS, 1, 2>,
                    draw::<true, PAIRS, 2, 0>,
                    draw::<true, PAIRS, 2, 1>,
                    draw::<true, PAIRS, 2, 2>,
                    gather::<0, 0>,
                    gather::<0, 1>,
                    gather::<0, 2>,
                    gather::<1, 0>,
                    gather::<1, 1>,
                    gather::<1, 2>,
                    gather::<2, 0>,
                    gather::<2, 1>,
                    gather::<2, 2>,
                    index::<PAIRS, false>,
                    index::<PAIRS, true>,
                    map_index,
                    add,
                    sub,
                    mul,
                    max,
                    min,
                    mul_add,
                    max_add,
                    select,
                    step,
                    splat,
                    load_block,
                    fold_max,
                    fold_sum,
                    output,
                ]
            }

            pub(super) fn kernels(pairs: bool) -> Kernels {
                if pairs { table::<true>() } else { table::<false>() }
            }
        }
    };
}

kernels_for!(portable, crate::sample::simd::Portable<8>);
#[cfg(test)]
kernels_for!(portable16, crate::sample::simd::Portable<16>);
#[cfg(test)]
kernels_for!(modelled512, crate::sample::simd::Modelled512);
#[cfg(target_arch = "x86_64")]
kernels_for!(avx2, crate::sample::simd::Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
kernels_for!(avx512, crate::sample::simd::Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");

/// The kernels of an instruction set, for plain or antithetic sampling. Calling one requires that the
/// processor has the instruction set.
pub(crate) fn for_isa(isa: Isa, antithetic: bool) -> Kernels {
    match isa {
        Isa::Portable => portable::kernels(antithetic),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::kernels(antithetic),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::kernels(antithetic),
        #[cfg(not(target_arch = "x86_64"))]
        _ => portable::kernels(antithetic),
    }
}

/// The portable code at 16 lanes, and the AVX-512 code over a scalar model of its instructions: the
/// logic of the widest instruction set on any processor.
#[cfg(test)]
pub(crate) fn stand_ins(antithetic: bool) -> [Kernels; 2] {
    [portable16::kernels(antithetic), modelled512::kernels(antithetic)]
}
