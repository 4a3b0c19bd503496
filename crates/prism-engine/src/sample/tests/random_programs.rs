//! Random programs against the naive interpreter, and against themselves run in other ways.

use proptest::prelude::*;

use super::naive;
use crate::sample::kernels::{Kernels, stand_ins};
use crate::sample::{
    Index, Isa, Key, Offset, Program, QuantileTable, RunOptions, Samples, Scope, Sync, Tape, Value,
    Workspace,
};

/// What the next node shall be: kind, and four numbers that choose its operands.
type Step = (u8, [u16; 4]);

const POOL: u32 = 160;

fn tables(program: &mut Program) -> [crate::sample::TableId; 3] {
    let exponential = |q: f64| -q.ln();
    let jump = prism_stats::quantile_table::Jumps { lower: None, upper: Some(0.03) };
    let two = QuantileTable::with_jumps(
        |p| 1.0 + 0.1 * p,
        |q| if q < 0.03 { 3.0 - q } else { 1.1 - 0.1 * q },
        jump,
    );
    let gamma = QuantileTable::from_quantiles(|p| -(-p).ln_1p(), exponential);
    [
        program.table(QuantileTable::uniform()),
        program.table(gamma.unwrap()),
        program.table(two.unwrap()),
    ]
}

/// Builds a program from random steps; values stay of moderate size.
fn build(replicas: u32, steps: &[Step]) -> Program {
    let mut p = Program::new(replicas);
    let tables = tables(&mut p);
    let pool = p.pool((0..POOL).map(|i| 0.5 + ((i * 37) % 100) as f32 / 100.0).collect());
    let mut values: Vec<Value> = vec![p.constant(1.5)];
    let mut rows: Vec<Index> = vec![p.index(9, Key::new("row"), Scope::Shared)];
    for (i, &(kind, n)) in steps.iter().enumerate() {
        let at = |k: usize| values[n[k] as usize % values.len()];
        let recent = |k: usize| values[values.len() - 1 - n[k] as usize % values.len().min(4)];
        let key = Key::new("draw").with(u64::from(n[3] % 8));
        let scope = if n[2] % 3 == 0 { Scope::Shared } else { Scope::PerReplica };
        let index = rows[n[0] as usize % rows.len()];
        let half = p.constant(0.5);
        let value = match kind {
            0 => p.constant(f32::from(n[0]) / 30_000.0 - 1.0),
            1 => p.replica_constant((0..replicas).map(|r| 0.5 + (r as f32 * 0.37) % 1.0).collect()),
            2 | 3 => p.draw(tables[n[0] as usize % 3], key, scope),
            4 => {
                let offsets = (0..replicas).map(|r| (r * 13 + u32::from(n[1])) % 20).collect();
                let offset =
                    if n[2] % 2 == 0 { Offset::Fixed(3) } else { Offset::PerReplica(offsets) };
                p.gather(pool, index, 1 + u32::from(n[3] % 3), offset)
            }
            5 => p.add(at(0), recent(1)),
            6 => p.sub(at(0), at(1)),
            7 => {
                let x = p.mul(at(0), at(1));
                // Products of products would overflow.
                let limit = p.constant(4.0);
                let low = p.constant(-4.0);
                let x = p.min(x, limit);
                p.max(x, low)
            }
            8 => p.max(at(0), at(1)),
            9 => p.min(recent(0), at(1)),
            10 => {
                let x = p.mul(at(0), half);
                p.mul_add(x, half, at(1))
            }
            11 => p.select(at(0), 0.6, at(1), at(2)),
            12 => p.step(at(0), 1.0),
            13 => p.sync_max(at(0), Sync::All),
            14 => p.sync_max(at(0), Sync::Blocks(if replicas.is_multiple_of(2) { 2 } else { 1 })),
            15 => p.max_over_replicas(at(0)),
            16 => {
                let x = p.mul(at(0), half);
                let x = p.mul(x, half);
                p.sum_over_replicas(x)
            }
            17 => p.sum(&[at(0), at(1), recent(2), at(0)]),
            18 => {
                // The end of an operation, in one of the forms that are fused.
                let start = p.max(recent(0), at(1));
                let draw = if n[2] % 4 == 0 {
                    p.gather(pool, index, 2, Offset::Fixed(1))
                } else {
                    p.draw(tables[n[3] as usize % 3], key, scope)
                };
                let scale = p.constant(0.3);
                let x = p.mul(scale, draw);
                let step = p.draw(tables[0], Key::new("step"), Scope::Shared);
                let x = p.mul(x, step);
                let other = p.draw(tables[0], Key::new("replica"), Scope::PerReplica);
                let x = if n[2] % 2 == 0 { p.mul(other, x) } else { x };
                p.add(start, x)
            }
            19 => {
                rows.push(p.index(1 + u32::from(n[0] % 30), key, scope));
                continue;
            }
            20 => {
                let map = (0..40).map(|i| (i * 7 + u32::from(n[1])) % 30).collect();
                rows.push(p.map_index(index, map));
                continue;
            }
            _ => {
                let other = rows[n[1] as usize % rows.len()];
                rows.push(p.select_index(at(2), 0.7, index, other));
                continue;
            }
        };
        values.push(value);
        if i % 7 == 3 {
            p.output(format!("v{i}"), value);
        }
    }
    let last = *values.last().unwrap();
    p.output("last", last);
    p
}

fn run_kernels(tape: &Tape, kernels: &Kernels, options: &RunOptions) -> Samples {
    let mut samples = Samples::default();
    // SAFETY: callers pass kernels that this processor has.
    #[allow(unsafe_code)]
    unsafe {
        tape.run_with(kernels, options, &mut Workspace::new(), &mut samples).unwrap();
    }
    samples
}

fn bits(samples: &Samples) -> Vec<Vec<u32>> {
    samples.outputs().iter().map(|o| o.data().iter().map(|x| x.to_bits()).collect()).collect()
}

fn check_against_naive(program: &Program, samples: &Samples, options: &RunOptions) {
    for s in 0..options.samples {
        let number = options.first_sample + s as u64;
        let want = naive::evaluate(program, options.seed, number, options.antithetic);
        for (output, want) in samples.outputs().iter().zip(want) {
            for (r, want) in want.into_iter().enumerate() {
                let got = f64::from(output.row(r.min(output.rows() - 1))[s]);
                let close = (got - want).abs() <= 2e-4 * want.abs().max(1.0);
                assert!(
                    close,
                    "{} of sample {number}, replica {r}: {got}, not {want}",
                    output.name()
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_way_gives_the_naive_result(
        replicas in prop_oneof![Just(1_u32), Just(2), Just(3), Just(4), Just(6)],
        steps in prop::collection::vec((0_u8..22, any::<[u16; 4]>()), 1..60),
        seed in any::<u64>(),
        first in prop_oneof![0_u64..2000, (1 << 32) - 300_u64..(1 << 32) + 300, any::<u32>().prop_map(|x| u64::from(x) << 20)],
        count in 1_usize..700,
        antithetic in any::<bool>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let program = build(replicas, &steps);
        let mut tape = program.compile().unwrap();
        let options = RunOptions {
            seed, first_sample: first, samples: count, antithetic, threads: 1, isa: Some(Isa::Portable),
        };
        let reference = tape.run(&options).unwrap();

        let few = RunOptions { samples: count.min(40), ..options };
        check_against_naive(&program, &tape.run(&few).unwrap(), &few);

        let want = bits(&reference);
        for threads in [2, 7] {
            prop_assert_eq!(&bits(&tape.run(&RunOptions { threads, ..options }).unwrap()), &want);
        }
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            let run = tape.run(&RunOptions { isa: Some(isa), ..options }).unwrap();
            prop_assert_eq!(&bits(&run), &want);
        }
        for kernels in stand_ins(antithetic) {
            prop_assert_eq!(&bits(&run_kernels(&tape, &kernels, &options)), &want);
        }

        let cut = cut.index(count + 1);
        let head = tape.run(&RunOptions { samples: cut, ..options }).unwrap();
        let tail = RunOptions { first_sample: first + cut as u64, samples: count - cut, ..options };
        let tail = tape.run(&tail).unwrap();
        for (o, whole) in reference.outputs().iter().enumerate() {
            for r in 0..whole.rows() {
                let joined = [head.outputs()[o].row(r), tail.outputs()[o].row(r)].concat();
                prop_assert_eq!(&joined[..], whole.row(r));
            }
        }
        for width in [32, 64, 128, 256] {
            tape.width = width;
            let isa = Some(Isa::detect());
            prop_assert_eq!(&bits(&tape.run(&RunOptions { isa, ..options }).unwrap()), &want);
        }
    }
}

#[test]
fn instruction_sets_that_are_not_here_are_named() {
    for isa in Isa::ALL.into_iter().filter(|i| !i.is_available()) {
        eprintln!("skipped: this processor has no {isa}; its code was not run");
        let program = build(2, &[(2, [1; 4])]);
        let options = RunOptions { isa: Some(isa), ..RunOptions::default() };
        let error = program.compile().unwrap().run(&options).unwrap_err();
        assert_eq!(error, crate::sample::SampleError::IsaUnavailable { isa });
    }
}
