//! A tape with all the data of another program of the same form.

use super::check::check;
use super::error::SampleError;
use super::program::{Node, Offset, Program};
use super::simd::PreparedTable;
use super::tape::{IndexLaw, PER_REPLICA, Tape};

impl Tape {
    /// Takes all data (constants, laws, pools, rows and offsets) from a program of the same form, so
    /// that the tape is the one that compiling it would give, without compiling. Returns whether it
    /// did: `false`, and nothing is changed, if the programs differ in more than their data.
    ///
    /// # Errors
    /// What [`Program::compile`] finds wrong with the program's data.
    pub fn rebind(&mut self, program: Program) -> Result<bool, SampleError> {
        let same = program.replicas == self.replicas
            && program.nodes.len() == self.nodes.len()
            && program.pools.len() == self.pools.len()
            && program.tables.len() == self.tables.len()
            && program.outputs.len() == self.outputs.len()
            && program.outputs.iter().zip(&self.output_nodes).all(|(new, old)| new.1 == *old)
            && program.outputs.iter().zip(&self.outputs).all(|(new, old)| new.0 == old.name)
            && program.nodes.iter().zip(&self.nodes).all(|(new, old)| same_form(new, old));
        if !same {
            return Ok(false);
        }
        check(&program)?;
        for &(node, law) in &self.law_of {
            if let Node::Index { rows, weights, .. } = &program.nodes[node as usize] {
                self.laws[law as usize] = IndexLaw::new(*rows, weights.as_deref());
            }
        }
        for (spec, &node) in self.gathers.iter().zip(&self.gather_nodes) {
            let first = (spec.offset & !PER_REPLICA) as usize;
            match &program.nodes[node as usize] {
                Node::Gather { offset: Offset::Fixed(offset), .. } => self.offsets[first] = *offset,
                Node::Gather { offset: Offset::PerReplica(list), .. } => {
                    self.offsets[first..first + list.len()].copy_from_slice(list);
                }
                _ => {}
            }
        }
        self.tables = program.tables.iter().map(PreparedTable::new).collect();
        self.pools = program.pools;
        self.nodes = program.nodes;
        self.refresh_scalars(None);
        self.refresh_draws(None);
        Ok(true)
    }
}

/// Whether two nodes differ at most in data that instructions look up.
fn same_form(new: &Node, old: &Node) -> bool {
    match (new, old) {
        (Node::Const(_), Node::Const(_)) => true,
        (Node::ReplicaConst(a), Node::ReplicaConst(b)) => a.len() == b.len(),
        (
            Node::Index { key, scope, weights, .. },
            Node::Index { key: old_key, scope: old_scope, weights: old_weights, .. },
        ) => key == old_key && scope == old_scope && weights.is_some() == old_weights.is_some(),
        (
            Node::Gather { pool, index, stride, offset },
            Node::Gather {
                pool: old_pool,
                index: old_index,
                stride: old_stride,
                offset: old_offset,
            },
        ) => {
            let same_kind = match (offset, old_offset) {
                (Offset::Fixed(_), Offset::Fixed(_)) => true,
                (Offset::PerReplica(a), Offset::PerReplica(b)) => a.len() == b.len(),
                _ => false,
            };
            same_kind && (pool, index, stride) == (old_pool, old_index, old_stride)
        }
        _ => new == old,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Key, Offset, Program, QuantileTable, RunOptions, Scope, Sync};

    /// Two replicas that gather, draw and wait, with data of the given size.
    fn program(rows: u32, scale: f32) -> Program {
        let mut p = Program::new(2);
        let pool = p.pool((0..2 * rows).map(|i| scale * i as f32).collect());
        let table = p.table(QuantileTable::uniform());
        let weights = (0..rows).map(|i| 1.0 + f64::from(scale) * f64::from(i)).collect();
        let row = p.index(rows, Key::new("row"), Scope::Shared);
        let other = p.weighted_index(weights, Key::new("other"), Scope::PerReplica);
        let a = p.gather(pool, row, 1, Offset::PerReplica(vec![0, rows]));
        let b = p.gather(pool, other, 1, Offset::Fixed(rows));
        let speed = p.replica_constant(vec![scale, 2.0 * scale]);
        let noise = p.draw(table, Key::new("noise"), Scope::PerReplica);
        let scaled = p.mul(noise, speed);
        let half = p.constant(0.5 * scale);
        let end = p.mul_add(scaled, half, a);
        let end = p.add(end, b);
        let together = p.sync_max(end, Sync::All);
        p.output("step", together);
        p
    }

    #[test]
    fn a_rebound_tape_is_the_compiled_one() {
        let options = RunOptions { samples: 500, ..RunOptions::default() };
        let mut tape = program(5, 1.0).compile().unwrap();
        for (rows, scale) in [(5, 2.0), (9, 0.25), (3, 1.5), (5, 1.0)] {
            assert!(tape.rebind(program(rows, scale)).unwrap());
            let fresh = program(rows, scale).compile().unwrap();
            assert_eq!(tape.run(&options).unwrap(), fresh.run(&options).unwrap(), "{rows} {scale}");
        }
    }

    #[test]
    fn another_form_leaves_the_tape_alone() {
        let options = RunOptions { samples: 100, ..RunOptions::default() };
        let mut tape = program(5, 1.0).compile().unwrap();
        let before = tape.run(&options).unwrap();
        let mut longer = program(5, 3.0);
        let extra = longer.constant(1.0);
        longer.output("extra", extra);
        assert!(!tape.rebind(longer).unwrap());
        let mut renamed = program(5, 3.0);
        renamed.outputs[0].0 = "other".to_owned();
        assert!(!tape.rebind(renamed).unwrap());
        let mut broken = program(5, 3.0);
        broken.pools[0].truncate(7);
        assert!(tape.rebind(broken).is_err());
        assert_eq!(tape.run(&options).unwrap(), before);
    }
}
