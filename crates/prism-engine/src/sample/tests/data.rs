//! Programs that are wrong, and tapes whose data change.

use crate::sample::{
    Index, Isa, Key, Offset, Program, QuantileTable, Rows, RunOptions, SampleError, Scope, Sync,
    Tape, Value,
};

fn options() -> RunOptions {
    RunOptions { seed: 3, samples: 500, threads: 1, ..RunOptions::default() }
}

fn run(tape: &Tape) -> Vec<f32> {
    tape.run(&options()).unwrap().outputs()[0].data().to_vec()
}

fn error(build: impl FnOnce(&mut Program)) -> SampleError {
    let mut program = Program::new(4);
    build(&mut program);
    let error = program.compile().unwrap_err();
    assert!(!error.hint().is_empty());
    error
}

fn draw(p: &mut Program, scope: Scope) -> Value {
    let table = p.table(QuantileTable::uniform());
    p.draw(table, Key::new("x"), scope)
}

#[test]
fn wrong_programs_are_named() {
    assert_eq!(Program::new(0).compile().unwrap_err(), SampleError::NoReplicas);
    assert_eq!(error(|_| ()), SampleError::NoOutputs);
    let twice = error(|p| {
        let c = p.constant(1.0);
        p.output("step", c);
        p.output("step", c);
    });
    assert_eq!(twice, SampleError::DuplicateOutput { name: "step".into() });
    let foreign = error(|p| {
        let mut other = Program::new(4);
        let other = (0..5).map(|_| other.constant(1.0)).last().unwrap();
        let c = p.constant(1.0);
        let sum = p.add(c, other);
        p.output("sum", sum);
    });
    assert_eq!(foreign, SampleError::Unknown { node: 1, kind: "node", id: 4, count: 1 });
    let output = error(|p| p.output("none", Value(7)));
    assert_eq!(output, SampleError::Unknown { node: 0, kind: "node", id: 7, count: 0 });
    let nan = error(|p| {
        let c = p.constant(f32::NAN);
        p.output("c", c);
    });
    assert_eq!(nan, SampleError::NotFinite { node: 0 });
    let short = error(|p| {
        let c = p.replica_constant(vec![1.0; 3]);
        p.output("c", c);
    });
    assert_eq!(short, SampleError::ReplicaCount { node: 0, found: 3, replicas: 4 });
    for block in [0, 3] {
        let blocks = error(|p| {
            let x = draw(p, Scope::PerReplica);
            let s = p.sync_max(x, Sync::Blocks(block));
            p.output("s", s);
        });
        assert_eq!(blocks, SampleError::BadBlocks { node: 1, block, replicas: 4 });
    }
}

#[test]
fn wrong_indices_are_named() {
    let gather = |pool: usize, rows: u32, stride: u32, offset: Offset| {
        let mut p = Program::new(4);
        let pool = p.pool(vec![1.0; pool]);
        let index = p.index(rows, Key::new("row"), Scope::Shared);
        let x = p.gather(pool, index, stride, offset);
        p.output("x", x);
        p.compile().map(|_| ())
    };
    assert_eq!(gather(10, 10, 1, Offset::Fixed(0)), Ok(()));
    assert_eq!(gather(28, 10, 3, Offset::Fixed(0)), Ok(()));
    let out = |last, len| Err(SampleError::OutOfPool { node: 1, pool: 0, last, len });
    assert_eq!(gather(10, 10, 1, Offset::Fixed(1)), out(10, 10));
    assert_eq!(gather(27, 10, 3, Offset::Fixed(0)), out(27, 27));
    assert_eq!(gather(0, 1, 1, Offset::Fixed(0)), out(0, 0));
    assert_eq!(gather(10, 5, 1, Offset::PerReplica(vec![0, 5, 6, 1])), out(10, 10));
    let huge = u64::from(u32::MAX) + u64::from(u32::MAX) * 9;
    assert_eq!(gather(10, 10, u32::MAX, Offset::Fixed(u32::MAX)), out(huge, 10));
    assert_eq!(gather(10, 0, 1, Offset::Fixed(0)), Err(SampleError::BadRows { node: 0 }));
    let count = SampleError::ReplicaCount { node: 1, found: 2, replicas: 4 };
    assert_eq!(gather(10, 5, 1, Offset::PerReplica(vec![0, 5])), Err(count));
    for weights in [vec![], vec![0.0, 0.0], vec![1.0, -1.0], vec![f64::NAN]] {
        let bad = error(|p| {
            let index = p.weighted_index(weights, Key::new("row"), Scope::Shared);
            let pool = p.pool(vec![1.0; 10]);
            let x = p.gather(pool, index, 1, Offset::Fixed(0));
            p.output("x", x);
        });
        assert_eq!(bad, SampleError::BadRows { node: 0 });
    }
    let map = error(|p| {
        let index = p.index(5, Key::new("row"), Scope::Shared);
        let index = p.map_index(index, vec![0; 4]);
        let pool = p.pool(vec![1.0; 10]);
        let x = p.gather(pool, index, 1, Offset::Fixed(0));
        p.output("x", x);
    });
    assert_eq!(map, SampleError::ShortMap { node: 1, found: 4, rows: 5 });
    let number = error(|p| {
        let index = p.index(5, Key::new("row"), Scope::Shared);
        let sum = p.add(Value(index.0), Value(index.0));
        p.output("x", sum);
    });
    assert_eq!(number, SampleError::WrongKind { node: 1, id: 0, expected: "a number" });
    let index = error(|p| {
        let c = p.constant(1.0);
        let pool = p.pool(vec![1.0; 10]);
        let x = p.gather(pool, Index(c.0), 1, Offset::Fixed(0));
        p.output("x", x);
    });
    assert_eq!(index, SampleError::WrongKind { node: 1, id: 0, expected: "an index" });
}

/// A program in which every kind of datum acts, with the numbers given.
fn program(c: f32, r: [f32; 2], table: &QuantileTable, pool: &[f32], weights: &[f64]) -> Program {
    let mut p = Program::new(2);
    let (table, pool) = (p.table(table.clone()), p.pool(pool.to_vec()));
    let c = p.constant(c);
    let r = p.replica_constant(r.to_vec());
    let noise = p.draw(table, Key::new("noise"), Scope::PerReplica);
    let uniform = p.index(3, Key::new("row"), Scope::Shared);
    let weighted = p.weighted_index(weights.to_vec(), Key::new("donor"), Scope::PerReplica);
    let a = p.gather(pool, uniform, 1, Offset::Fixed(0));
    let b = p.gather(pool, weighted, 1, Offset::PerReplica(vec![0, 1]));
    let x = p.mul(c, noise);
    let x = p.mul(x, r);
    let start = p.add(a, b);
    let end = p.add(start, x);
    let end = p.add(end, c);
    p.output("end", end);
    p
}

#[test]
fn changed_data_give_what_a_new_program_gives() {
    let plain = QuantileTable::uniform();
    let jump = prism_stats::quantile_table::Jumps { lower: None, upper: Some(0.03) };
    let upper = |q: f64| if q < 0.03 { 3.0 } else { 1.0 };
    let jumping = QuantileTable::with_jumps(|_| 1.0, upper, jump).unwrap();
    let (pool, other) = ([1.0, 2.0, 3.0, 4.0], [5.0, -1.0, 2.0, 0.5]);
    let before = program(0.5, [1.0, 2.0], &plain, &pool, &[1.0, 2.0, 3.0]);
    let after = program(-3.0, [0.25, 0.5], &jumping, &other, &[3.0, 0.0, 1.0]);
    let mut tape = before.compile().unwrap();
    let old = run(&tape);
    // Handles are numbered by kind in the order of creation.
    let (c, r) = (Value(0), Value(1));
    tape.set_constant(c, -3.0).unwrap();
    tape.set_replica_constant(r, &[0.25, 0.5]).unwrap();
    tape.set_table(crate::sample::TableId(0), &jumping).unwrap();
    tape.set_pool(crate::sample::PoolId(0), &other).unwrap();
    tape.set_rows(Index(4), Rows::Weights(&[3.0, 0.0, 1.0])).unwrap();
    let new = run(&tape);
    assert_eq!(new, run(&after.compile().unwrap()));
    assert_ne!(new, old);
    tape.set_table(crate::sample::TableId(0), &plain).unwrap();
    tape.set_constant(c, 0.5).unwrap();
    tape.set_replica_constant(r, &[1.0, 2.0]).unwrap();
    tape.set_pool(crate::sample::PoolId(0), &pool).unwrap();
    tape.set_rows(Index(4), Rows::Weights(&[1.0, 2.0, 3.0])).unwrap();
    assert_eq!(run(&tape), old);
}

#[test]
fn changes_that_do_not_fit_are_refused_and_leave_the_tape_alone() {
    let plain = QuantileTable::uniform();
    let p = program(0.5, [1.0, 2.0], &plain, &[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0]);
    let mut tape = p.compile().unwrap();
    let old = run(&tape);
    let out = SampleError::OutOfPool { node: 6, pool: 0, last: 3, len: 3 };
    assert_eq!(tape.set_pool(crate::sample::PoolId(0), &[1.0; 3]).unwrap_err(), out);
    let out = SampleError::OutOfPool { node: 5, pool: 0, last: 4, len: 4 };
    assert_eq!(tape.set_rows(Index(3), Rows::Uniform(5)).unwrap_err(), out);
    assert_eq!(
        tape.set_rows(Index(3), Rows::Uniform(0)).unwrap_err(),
        SampleError::BadRows { node: 3 }
    );
    let settable = |node, expected| SampleError::NotSettable { node, expected };
    let weights = tape.set_rows(Index(3), Rows::Weights(&[1.0; 3])).unwrap_err();
    assert_eq!(weights, settable(3, "weighted index"));
    let draw = tape.set_constant(Value(2), 1.0).unwrap_err();
    assert_eq!(draw, settable(2, "constant"));
    assert_eq!(tape.set_constant(Value(99), 1.0).unwrap_err(), settable(99, "constant"));
    let short = tape.set_replica_constant(Value(1), &[1.0]).unwrap_err();
    assert_eq!(short, SampleError::ReplicaCount { node: 1, found: 1, replicas: 2 });
    let infinite = tape.set_constant(Value(0), f32::INFINITY).unwrap_err();
    assert_eq!(infinite, SampleError::NotFinite { node: 0 });
    assert!(tape.set_table(crate::sample::TableId(1), &plain).is_err());
    assert!(tape.set_pool(crate::sample::PoolId(1), &[]).is_err());
    assert_eq!(run(&tape), old);
}

#[test]
fn a_pool_may_grow_with_its_rows() {
    let plain = QuantileTable::uniform();
    let p = program(0.5, [1.0, 2.0], &plain, &[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0]);
    let mut tape = p.compile().unwrap();
    tape.set_pool(crate::sample::PoolId(0), &[1.0; 9]).unwrap();
    tape.set_rows(Index(3), Rows::Uniform(9)).unwrap();
    tape.set_rows(Index(4), Rows::Weights(&[1.0; 8])).unwrap();
    assert_eq!(run(&tape).len(), 1000);
}

#[test]
fn ranges_of_samples_are_checked() {
    let mut p = Program::new(1);
    let x = draw(&mut p, Scope::PerReplica);
    p.output("x", x);
    let tape = p.compile().unwrap();
    let far = RunOptions { first_sample: u64::MAX - 10, samples: 100, ..options() };
    let error = tape.run(&far).unwrap_err();
    assert_eq!(error, SampleError::TooManySamples { first: u64::MAX - 10, count: 100 });
    let huge = RunOptions { samples: usize::MAX / 2, ..options() };
    assert!(matches!(tape.run(&huge), Err(SampleError::TooManySamples { .. })));
    let none = tape.run(&RunOptions { samples: 0, ..options() }).unwrap();
    assert_eq!(none.get("x").map(|o| o.row(0).len()), Some(0));
    assert_eq!(none.isa(), Some(Isa::detect()));
}
