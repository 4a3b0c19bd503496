//! Programs: what is computed for every sample, as a list of single assignments.

use prism_stats::counter::Key;
use prism_stats::quantile_table::QuantileTable;

use super::error::SampleError;
use super::tape::Tape;

/// A number per sample, or per replica and sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub(crate) u32);

/// A row number per sample, or per replica and sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Index(pub(crate) u32);

/// A quantile table of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub(crate) u32);

/// A pool of observed values of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub(crate) u32);

/// Whether a draw is one number for all replicas, or one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One draw, the same for every replica.
    Shared,
    /// A draw per replica; the replica's number joins the key.
    PerReplica,
}

/// Over which part of the replica axis a maximum is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sync {
    /// All replicas: the result is one number.
    All,
    /// Consecutive blocks of this many replicas: the result is per replica, equal within a block.
    Blocks(u32),
}

/// Where a gather's rows begin in the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offset {
    /// At one entry, for all replicas.
    Fixed(u32),
    /// At one entry per replica.
    PerReplica(Vec<u32>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Max,
    Min,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Max,
    Sum,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Const(f32),
    ReplicaConst(Vec<f32>),
    Draw { table: u32, key: Key, scope: Scope },
    Index { rows: u32, key: Key, scope: Scope, weights: Option<Vec<f64>> },
    MapIndex { index: u32, map: Vec<u32> },
    Gather { pool: u32, index: u32, stride: u32, offset: Offset },
    Binary(Binary, u32, u32),
    MulAdd(u32, u32, u32),
    Select { condition: u32, threshold: f32, a: u32, b: u32 },
    Step { value: u32, threshold: f32 },
    Sync { value: u32, block: u32 },
    Reduce(Reduction, u32),
    Sum(Vec<u32>),
}

impl Node {
    /// Nodes this one reads, in order.
    pub(crate) fn operands(&self) -> Vec<u32> {
        match self {
            Node::Const(_) | Node::ReplicaConst(_) | Node::Draw { .. } | Node::Index { .. } => {
                Vec::new()
            }
            Node::MapIndex { index, .. } | Node::Gather { index, .. } => vec![*index],
            Node::Binary(_, a, b) => vec![*a, *b],
            Node::MulAdd(a, b, c) => vec![*a, *b, *c],
            Node::Select { condition, a, b, .. } => vec![*condition, *a, *b],
            Node::Step { value, .. } | Node::Sync { value, .. } | Node::Reduce(_, value) => {
                vec![*value]
            }
            Node::Sum(values) => values.clone(),
        }
    }
}

/// A computation over samples, built node by node and then [compiled](Program::compile).
///
/// Methods only append; whether the program makes sense is checked once, by the compiler. A
/// program knows nothing of training: a graph and its duration model are lowered into it, several
/// consecutive steps simply into a longer one. Append time-dependent nodes in a topological order
/// close to time order: it keeps few values alive at once.
///
/// Arithmetic is in single precision. Where a product meets a sum (`mul_add`, or the pattern
/// `start + factor · draw` that the compiler fuses) it is rounded once.
///
/// ```
/// use prism_engine::sample::{Key, Program, QuantileTable, RunOptions, Scope, Sync};
///
/// // Two replicas, each a forward and a backward; the step ends when the slower one has ended.
/// let mut program = Program::new(2);
/// let noise = program.table(QuantileTable::uniform());
/// let forward = program.draw(noise, Key::new("forward").with(0), Scope::PerReplica);
/// let backward = program.draw(noise, Key::new("backward").with(0), Scope::PerReplica);
/// let finish = program.add(forward, backward);
/// let step = program.sync_max(finish, Sync::All);
/// program.output("step", step);
///
/// let tape = program.compile()?;
/// let samples = tape.run(&RunOptions { seed: 7, samples: 10_000, ..RunOptions::default() })?;
/// let mean = samples.get("step").unwrap().row(0).iter().sum::<f32>() / 10_000.0;
/// // E max of two sums of two uniforms is 37/30.
/// assert!((mean - 37.0 / 30.0).abs() < 0.02);
/// # Ok::<(), prism_engine::sample::SampleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) replicas: u32,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tables: Vec<QuantileTable>,
    pub(crate) pools: Vec<Vec<f32>>,
    pub(crate) outputs: Vec<(String, u32)>,
}

impl Program {
    /// An empty program over a replica axis of the given length.
    pub fn new(replicas: u32) -> Self {
        Self {
            replicas,
            nodes: Vec::new(),
            tables: Vec::new(),
            pools: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Length of the replica axis.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Nodes so far.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a law to draw from.
    pub fn table(&mut self, table: QuantileTable) -> TableId {
        self.tables.push(table);
        TableId(self.tables.len() as u32 - 1)
    }

    /// Adds observed values to gather from.
    pub fn pool(&mut self, values: Vec<f32>) -> PoolId {
        self.pools.push(values);
        PoolId(self.pools.len() as u32 - 1)
    }

    /// A number that is the same for every sample and replica.
    pub fn constant(&mut self, value: f32) -> Value {
        self.push(Node::Const(value))
    }

    /// A number per replica, the same for every sample.
    pub fn replica_constant(&mut self, values: Vec<f32>) -> Value {
        self.push(Node::ReplicaConst(values))
    }

    /// A draw from a law. Draws with equal keys use the same uniform number, whatever their laws.
    pub fn draw(&mut self, table: TableId, key: Key, scope: Scope) -> Value {
        self.push(Node::Draw { table: table.0, key, scope })
    }

    /// A uniformly drawn row of `0..rows`; comonotone with draws of the same key.
    pub fn index(&mut self, rows: u32, key: Key, scope: Scope) -> Index {
        Index(self.push(Node::Index { rows, key, scope, weights: None }).0)
    }

    /// A row of `0..weights.len()` drawn in proportion to the weights.
    pub fn weighted_index(&mut self, weights: Vec<f64>, key: Key, scope: Scope) -> Index {
        let rows = u32::try_from(weights.len()).unwrap_or(0);
        Index(self.push(Node::Index { rows, key, scope, weights: Some(weights) }).0)
    }

    /// The row `map[index]`: a window's next row, a step's regime, a microbatch's donor.
    pub fn map_index(&mut self, index: Index, map: Vec<u32>) -> Index {
        Index(self.push(Node::MapIndex { index: index.0, map }).0)
    }

    /// The observed value `pool[offset + index · stride]`. One index and a gather per operation draw
    /// a whole observed vector.
    pub fn gather(&mut self, pool: PoolId, index: Index, stride: u32, offset: Offset) -> Value {
        self.push(Node::Gather { pool: pool.0, index: index.0, stride, offset })
    }

    /// a + b.
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.push(Node::Binary(Binary::Add, a.0, b.0))
    }

    /// a − b.
    pub fn sub(&mut self, a: Value, b: Value) -> Value {
        self.push(Node::Binary(Binary::Sub, a.0, b.0))
    }

    /// a · b.
    pub fn mul(&mut self, a: Value, b: Value) -> Value {
        self.push(Node::Binary(Binary::Mul, a.0, b.0))
    }

    /// The larger of a and b.
    pub fn max(&mut self, a: Value, b: Value) -> Value {
        self.push(Node::Binary(Binary::Max, a.0, b.0))
    }

    /// The smaller of a and b.
    pub fn min(&mut self, a: Value, b: Value) -> Value {
        self.push(Node::Binary(Binary::Min, a.0, b.0))
    }

    /// a · b + c, rounded once.
    pub fn mul_add(&mut self, a: Value, b: Value, c: Value) -> Value {
        self.push(Node::MulAdd(a.0, b.0, c.0))
    }

    /// The largest of some values; `None` of none.
    pub fn max_of(&mut self, values: &[Value]) -> Option<Value> {
        values.iter().copied().reduce(|a, b| self.max(a, b))
    }

    /// The sum of any number of values, each added as soon as it is there. The order of the
    /// additions, and with it the last digits, is the compiler's. An empty sum is 0.
    pub fn sum(&mut self, values: &[Value]) -> Value {
        if values.is_empty() {
            return self.constant(0.0);
        }
        self.push(Node::Sum(values.iter().map(|v| v.0).collect()))
    }

    /// `a` where `condition ≥ threshold`, else `b`: a value under a regime.
    pub fn select(&mut self, condition: Value, threshold: f32, a: Value, b: Value) -> Value {
        self.push(Node::Select { condition: condition.0, threshold, a: a.0, b: b.0 })
    }

    /// Row `a` where `condition ≥ threshold`, else row `b`.
    pub fn select_index(&mut self, condition: Value, threshold: f32, a: Index, b: Index) -> Index {
        Index(self.push(Node::Select { condition: condition.0, threshold, a: a.0, b: b.0 }).0)
    }

    /// 1 where `value ≥ threshold`, else 0.
    pub fn step(&mut self, value: Value, threshold: f32) -> Value {
        self.push(Node::Step { value: value.0, threshold })
    }

    /// The latest of a value over replicas: where replicas wait for each other.
    pub fn sync_max(&mut self, value: Value, sync: Sync) -> Value {
        let block = match sync {
            Sync::All => self.replicas,
            Sync::Blocks(block) => block,
        };
        self.push(Node::Sync { value: value.0, block })
    }

    /// The largest of a value over all replicas, one number.
    pub fn max_over_replicas(&mut self, value: Value) -> Value {
        self.push(Node::Reduce(Reduction::Max, value.0))
    }

    /// The sum of a value over all replicas, one number.
    pub fn sum_over_replicas(&mut self, value: Value) -> Value {
        self.push(Node::Reduce(Reduction::Sum, value.0))
    }

    /// Names a value as a result. Its samples come back per replica if it differs by replica.
    pub fn output(&mut self, name: impl Into<String>, value: Value) {
        self.outputs.push((name.into(), value.0));
    }

    /// Checks the program and lowers it to a tape.
    ///
    /// # Errors
    /// Everything in [`SampleError`] that concerns a program.
    pub fn compile(&self) -> Result<Tape, SampleError> {
        super::compile::compile(self)
    }

    fn push(&mut self, node: Node) -> Value {
        self.nodes.push(node);
        Value(self.nodes.len() as u32 - 1)
    }
}
