//! Which operations a question is about.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use prism_graph::{Op, StepGraph};
use prism_model::{Direction, KernelClass, OpKind, Signature};
use serde::{Deserialize, Serialize};

/// Where replicas and stages run: ranks and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Layout {
    /// GPUs of one worker: one (replica, stage) cell.
    pub gpus_per_worker: u32,
    /// Data-parallel replicas.
    pub replicas: u32,
    /// Pipeline stages.
    pub stages: u16,
    /// GPUs of one node.
    pub gpus_per_node: u32,
}

impl Layout {
    /// First global rank of a worker: ranks run over its GPUs, then replicas, then stages.
    pub fn rank(&self, replica: u32, stage: u16) -> u32 {
        let worker = self.replicas.saturating_mul(u32::from(stage)).saturating_add(replica);
        self.gpus_per_worker.saturating_mul(worker)
    }

    /// Global ranks of a worker.
    fn ranks_of(&self, replica: u32, stage: u16) -> std::ops::Range<u32> {
        let first = self.rank(replica, stage);
        first..first.saturating_add(self.gpus_per_worker.max(1))
    }

    /// Nodes on which a worker has GPUs.
    fn nodes_of(&self, replica: u32, stage: u16) -> std::ops::RangeInclusive<u32> {
        let ranks = self.ranks_of(replica, stage);
        let size = self.gpus_per_node.max(1);
        ranks.start / size..=(ranks.end - 1) / size
    }

    fn ranks(&self) -> u32 {
        let workers = self.replicas.saturating_mul(u32::from(self.stages));
        self.gpus_per_worker.saturating_mul(workers)
    }
}

/// A set of numbers: `3`, `0-2`, `last`, or several joined by commas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Numbers {
    /// Inclusive ranges.
    ranges: Vec<(i64, i64)>,
    /// Whether the largest number there is belongs to it.
    last: bool,
}

impl Numbers {
    fn contains(&self, value: i64, largest: i64) -> bool {
        (self.last && value == largest)
            || self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&value))
    }

    /// A number that is out of `0..=largest`, if there is one.
    fn beyond(&self, largest: i64) -> Option<i64> {
        self.ranges.iter().map(|r| r.1).find(|v| *v > largest)
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Numbers, String> {
        let mut out = Numbers { ranges: Vec::new(), last: false };
        for part in text.split(',') {
            let part = part.trim();
            let wrong = || format!("`{part}` is not a number, a range such as `0-3`, or `last`");
            if part == "last" {
                out.last = true;
                continue;
            }
            let bounds = part.split_once("..").or_else(|| part.split_once('-'));
            let (from, to) = match bounds {
                Some((from, to)) => (from, to.trim_start_matches('=')),
                None => (part, part),
            };
            let parse = |t: &str| t.trim().parse::<u32>().map(i64::from).map_err(|_| wrong());
            let (from, to) = (parse(from)?, parse(to)?);
            if from > to {
                return Err(format!("the range `{part}` is empty: it ends before it begins"));
            }
            out.ranges.push((from, to));
        }
        Ok(out)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self
            .ranges
            .iter()
            .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
            .collect();
        if self.last {
            parts.push("last".to_owned());
        }
        f.write_str(&parts.join(","))
    }
}

/// A set of kinds of operations, by name, class or direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Kinds {
    /// As given.
    text: String,
    kinds: BTreeSet<OpKind>,
}

impl Kinds {
    /// Whether the kind belongs to it.
    pub fn contains(&self, kind: OpKind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// Names of groups of kinds.
const GROUPS: [&str; 6] = ["compute", "p2p", "collective", "forward", "backward", "dp-comm"];

fn group(name: &str) -> Option<BTreeSet<OpKind>> {
    let of = |keep: &dyn Fn(OpKind) -> bool| {
        Some(OpKind::TIMED.into_iter().filter(|k| keep(*k)).collect())
    };
    match name {
        "compute" => of(&|k| k.is_microbatch_compute()),
        "p2p" => of(&|k| k.is_p2p()),
        "collective" => of(&|k| k.class() == KernelClass::Collective),
        "forward" => of(&|k| k.direction() == Some(Direction::Forward)),
        "backward" => of(&|k| k.direction() == Some(Direction::Backward)),
        "dp-comm" => of(&|k| {
            matches!(
                k,
                OpKind::ParamsAllGather
                    | OpKind::GradsReduceScatter
                    | OpKind::SeparateGradsAllReduce
            )
        }),
        _ => None,
    }
}

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Kinds, String> {
        let mut kinds = BTreeSet::new();
        for part in text.split(',') {
            let part = part.trim();
            if let Some(set) = group(part) {
                kinds.extend(set);
            } else {
                let named = OpKind::TIMED.into_iter().find(|kind| kind.as_str() == part);
                let kind = named.ok_or_else(|| {
                    let names: Vec<&str> = OpKind::TIMED.iter().map(|k| k.as_str()).collect();
                    format!(
                        "`{part}` is no kind of operation; there are {} and the groups {}",
                        names.join(", "),
                        GROUPS.join(", ")
                    )
                })?;
                kinds.insert(kind);
            }
        }
        Ok(Kinds { text: text.to_owned(), kinds })
    }
}

/// Operations by kind, stage, replica, rank, node, microbatch and step. What is not given is not asked
/// about: an empty selection is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Selection {
    /// Kinds.
    pub kind: Option<Kinds>,
    /// Pipeline stages.
    pub stage: Option<Numbers>,
    /// Data-parallel replicas.
    pub dp: Option<Numbers>,
    /// Global ranks.
    pub rank: Option<Numbers>,
    /// Nodes.
    pub node: Option<Numbers>,
    /// Microbatches of a replica.
    pub microbatch: Option<Numbers>,
    /// Training step ids.
    pub step: Option<Numbers>,
}

impl Selection {
    /// Names of the keys.
    pub const KEYS: [&str; 7] = ["kind", "stage", "dp", "rank", "node", "microbatch", "step"];

    /// Sets one key from text.
    ///
    /// # Errors
    /// In words, if there is no such key or the value is no set.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "kind" => self.kind = Some(value.parse()?),
            "stage" => self.stage = Some(value.parse()?),
            "dp" => self.dp = Some(value.parse()?),
            "rank" => self.rank = Some(value.parse()?),
            "node" => self.node = Some(value.parse()?),
            "microbatch" | "mb" => self.microbatch = Some(value.parse()?),
            "step" => self.step = Some(value.parse()?),
            other => {
                return Err(format!(
                    "no selection by `{other}`; there are {}",
                    Self::KEYS.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Whether the kind and stage of a signature are selected.
    pub fn has_signature(&self, signature: &Signature, layout: &Layout) -> bool {
        let last_stage = i64::from(layout.stages) - 1;
        self.kind.as_ref().is_none_or(|k| k.contains(signature.kind))
            && within(self.stage.as_ref(), i64::from(signature.stage), last_stage)
    }

    /// Whether the operation is selected on some replica.
    pub fn has_op(&self, op: &Op, microbatches: u32, layout: &Layout) -> bool {
        self.has_signature(&op.signature(), layout)
            && within(
                self.microbatch.as_ref(),
                i64::from(op.microbatch),
                i64::from(microbatches) - 1,
            )
    }

    /// Whether the worker of a replica and stage is selected.
    pub fn has_worker(&self, replica: u32, stage: u16, layout: &Layout) -> bool {
        let last_rank = i64::from(layout.ranks()) - 1;
        let last_node = last_rank / i64::from(layout.gpus_per_node.max(1));
        let has = |set: &Option<Numbers>, mut own: Box<dyn Iterator<Item = u32>>, last: i64| {
            set.as_ref().is_none_or(|s| own.any(|v| s.contains(i64::from(v), last)))
        };
        within(self.dp.as_ref(), i64::from(replica), i64::from(layout.replicas) - 1)
            && has(&self.rank, Box::new(layout.ranks_of(replica, stage)), last_rank)
            && has(&self.node, Box::new(layout.nodes_of(replica, stage)), last_node)
    }

    /// Which observed steps are selected; `None` for all.
    pub fn steps(&self, steps: &[i64]) -> Option<Vec<bool>> {
        let set = self.step.as_ref()?;
        let largest = steps.last().copied().unwrap_or(0);
        Some(steps.iter().map(|s| set.contains(*s, largest)).collect())
    }

    /// Checks that every number names something that is there and that something is selected.
    ///
    /// # Errors
    /// In words.
    pub fn check(
        &self,
        graph: &StepGraph,
        microbatches: u32,
        steps: &[i64],
        layout: &Layout,
    ) -> Result<(), String> {
        let ranks = i64::from(layout.ranks());
        let limits = [
            ("stage", &self.stage, i64::from(layout.stages)),
            ("dp", &self.dp, i64::from(layout.replicas)),
            ("rank", &self.rank, ranks),
            ("node", &self.node, (ranks - 1) / i64::from(layout.gpus_per_node.max(1)) + 1),
            ("microbatch", &self.microbatch, i64::from(microbatches)),
        ];
        for (name, set, count) in limits {
            if let Some(beyond) = set.as_ref().and_then(|s| s.beyond(count - 1)) {
                return Err(format!("there is no {name} {beyond}: they are 0 to {}", count - 1));
            }
        }
        if self.steps(steps).is_some_and(|s| !s.contains(&true)) {
            return Err("none of the recorded steps is selected".to_owned());
        }
        let some = graph.ops().iter().any(|op| {
            op.kind != OpKind::Barrier
                && self.has_op(op, microbatches, layout)
                && (0..layout.replicas).any(|r| self.has_worker(r, op.stage, layout))
        });
        if some { Ok(()) } else { Err(format!("`{self}` selects no operation")) }
    }
}

fn within(set: Option<&Numbers>, value: i64, largest: i64) -> bool {
    set.is_none_or(|s| s.contains(value, largest))
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(kinds) = &self.kind {
            parts.push(format!("kind={}", kinds.text));
        }
        let numbers = [
            ("stage", &self.stage),
            ("dp", &self.dp),
            ("rank", &self.rank),
            ("node", &self.node),
            ("microbatch", &self.microbatch),
            ("step", &self.step),
        ];
        parts.extend(
            numbers.iter().filter_map(|(name, set)| set.as_ref().map(|s| format!("{name}={s}"))),
        );
        f.write_str(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { gpus_per_worker: 4, replicas: 4, stages: 4, gpus_per_node: 8 };

    #[test]
    fn sets_of_numbers_are_read_back_as_written() {
        for text in ["3", "0-2", "1,4-6,last", "last"] {
            assert_eq!(text.parse::<Numbers>().unwrap().to_string(), text);
        }
        assert_eq!("0..3".parse::<Numbers>().unwrap(), "0-3".parse().unwrap());
        for text in ["", "x", "3-1", "-1", "1.5"] {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_node_has_the_workers_whose_gpus_it_holds() {
        let mut selection = Selection::default();
        selection.set("node", "1").unwrap();
        let workers: Vec<(u32, u16)> = (0..4)
            .flat_map(|s| (0..4).map(move |r| (r, s)))
            .filter(|(r, s)| selection.has_worker(*r, *s, &LAYOUT))
            .collect();
        assert_eq!(workers, [(2, 0), (3, 0)]);
        let mut by_rank = Selection::default();
        by_rank.set("rank", "13").unwrap();
        assert!(by_rank.has_worker(3, 0, &LAYOUT) && !by_rank.has_worker(2, 0, &LAYOUT));
    }

    #[test]
    fn groups_of_kinds_are_sets() {
        let kinds: Kinds = "p2p,optimizer".parse().unwrap();
        assert!(kinds.contains(OpKind::BackwardRecv) && kinds.contains(OpKind::Optimizer));
        assert!(!kinds.contains(OpKind::ForwardCompute));
        let planned: Kinds = "backward-weight".parse().unwrap();
        assert!(planned.contains(OpKind::BackwardWeight));
        for group in ["compute", "backward"] {
            assert!(group.parse::<Kinds>().unwrap().contains(OpKind::BackwardWeight));
        }
        assert!("forwards".parse::<Kinds>().unwrap_err().contains("forward-compute"));
    }
}
