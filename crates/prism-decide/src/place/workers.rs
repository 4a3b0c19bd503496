//! Workers and how fast they are.

use std::collections::{BTreeMap, BTreeSet};

use prism_stats::robust::median;
use serde::{Deserialize, Serialize};

use super::PlaceError;

/// A measured GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuSpeed {
    /// Its name.
    pub id: String,
    /// The node it is in.
    pub node: Option<String>,
    /// Value of the label that a replica's workers must share.
    pub label: Option<String>,
    /// Time of the same work, in any unit; all repeats.
    pub times: Vec<f64>,
}

/// What computes one (replica, stage) cell: a GPU, or a tensor-parallel group inside a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Worker {
    /// The GPU, or the group by node and number.
    pub name: String,
    /// The GPUs of a tensor-parallel group; empty if the worker is one GPU.
    pub gpus: Vec<String>,
    /// The node it is in.
    pub node: Option<String>,
    /// Value of the label that a replica's workers must share.
    pub label: Option<String>,
    /// Its time for the same compute, relative to the median worker's.
    pub factor: f64,
}

/// Workers in the order as given: replica by replica, stage by stage, then the spares.
#[derive(Clone, Debug, PartialEq)]
pub struct Workers {
    /// All of them.
    pub list: Vec<Worker>,
    /// GPUs that no group could take, slowest of their node.
    pub left_over: Vec<String>,
}

/// Factors that a worker can have; beyond them a measurement or its unit is wrong.
pub(super) const FACTORS: std::ops::RangeInclusive<f64> = 1e-3..=1e3;

impl Workers {
    /// Workers of given factors, without names of their own: `r0s0`, `r0s1`, …, then `spare0`, ….
    pub fn of_factors(factors: &[f64], stages: usize, cells: usize) -> Workers {
        let name = |i: usize| {
            if i < cells {
                format!("r{}s{}", i / stages, i % stages)
            } else {
                format!("spare{}", i - cells)
            }
        };
        let worker = |(i, &factor)| Worker {
            name: name(i),
            gpus: Vec::new(),
            node: None,
            label: None,
            factor,
        };
        let list = factors.iter().enumerate().map(worker).collect();
        Workers { list, left_over: Vec::new() }
    }

    /// Workers from measured GPUs, in their order; groups of `tp` GPUs inside a node if `tp` is above
    /// 1.
    ///
    /// A GPU's time is the median of its repeats. A group synchronises in every layer, so that it is
    /// as slow as its slowest GPU; GPUs of a node are grouped by falling speed, so that slow ones share
    /// a group, and a node's slowest GPUs are left over where it has too few for another group. Nodes
    /// stand in the order of their first GPU, a node's groups in the order of theirs.
    ///
    /// # Errors
    /// [`PlaceError`] if a time is not positive or a thousandfold off the median, a name is there twice, or a group's GPUs name no node
    /// or differ in their label.
    pub fn of_gpus(gpus: &[GpuSpeed], tp: usize, label: &str) -> Result<Workers, PlaceError> {
        if tp == 0 {
            let rule = "positive";
            return Err(PlaceError::Setting { what: "GPUs of a group", rule, got: "0".into() });
        }
        let mut seen = BTreeSet::new();
        let mut times = Vec::with_capacity(gpus.len());
        for gpu in gpus {
            if !seen.insert(gpu.id.as_str()) {
                return Err(PlaceError::Twice { worker: gpu.id.clone() });
            }
            if let Some(&time) = gpu.times.iter().find(|t| !(t.is_finite() && **t > 0.0)) {
                return Err(PlaceError::Time { worker: gpu.id.clone(), time });
            }
            times.push(median(&gpu.times)?);
        }
        let (mut list, left_over) = if tp == 1 {
            (gpus.iter().zip(&times).map(|(g, &t)| single(g, t)).collect(), Vec::new())
        } else {
            groups(gpus, &times, tp, label)?
        };
        let all: Vec<f64> = list.iter().map(|w: &Worker| w.factor).collect();
        if !all.is_empty() {
            let typical = median(&all)?;
            for worker in &mut list {
                worker.factor /= typical;
                if !FACTORS.contains(&worker.factor) {
                    let (worker, factor) = (worker.name.clone(), worker.factor);
                    return Err(PlaceError::Factor { worker, factor });
                }
            }
        }
        Ok(Workers { list, left_over })
    }

    /// Factors in order.
    pub fn factors(&self) -> Vec<f64> {
        self.list.iter().map(|w| w.factor).collect()
    }

    /// The type of each worker: workers of one type (factor and label) can stand in for each other.
    /// Types are numbered by rising factor.
    pub(super) fn types(&self) -> Vec<u32> {
        let key = |w: &Worker| (w.factor.to_bits(), w.label.clone());
        let kinds: BTreeSet<_> = self.list.iter().map(key).collect();
        let number: BTreeMap<_, u32> =
            kinds.into_iter().enumerate().map(|(i, k)| (k, i as u32)).collect();
        self.list.iter().map(|w| number[&key(w)]).collect()
    }

    /// The label of each worker as a number; `None` where nothing is asked of labels.
    ///
    /// # Errors
    /// [`PlaceError::NoLabel`], [`PlaceError::GivenOrder`].
    pub(super) fn labels(
        &self,
        label: Option<&str>,
        stages: usize,
        cells: usize,
    ) -> Result<Option<Vec<u32>>, PlaceError> {
        let Some(label) = label else { return Ok(None) };
        let mut values = Vec::with_capacity(self.list.len());
        for worker in &self.list {
            let Some(value) = &worker.label else {
                let worker = worker.name.clone();
                return Err(PlaceError::NoLabel { worker, label: label.to_owned() });
            };
            values.push(value);
        }
        for (replica, own) in values[..cells].chunks(stages).enumerate() {
            if let Some(s) = own.iter().position(|v| *v != own[0]) {
                let at = replica * stages;
                return Err(PlaceError::GivenOrder {
                    replica,
                    label: label.to_owned(),
                    values: Box::new([own[0].clone(), own[s].clone()]),
                    workers: Box::new([at, at + s].map(|i| self.list[i].name.clone())),
                });
            }
        }
        let distinct: BTreeSet<&String> = values.iter().copied().collect();
        let number: BTreeMap<&String, u32> =
            distinct.into_iter().enumerate().map(|(i, v)| (v, i as u32)).collect();
        Ok(Some(values.iter().map(|v| number[*v]).collect()))
    }
}

fn single(gpu: &GpuSpeed, time: f64) -> Worker {
    Worker {
        name: gpu.id.clone(),
        gpus: Vec::new(),
        node: gpu.node.clone(),
        label: gpu.label.clone(),
        factor: time,
    }
}

/// Groups of `tp` GPUs inside nodes, and what is left over.
fn groups(
    gpus: &[GpuSpeed],
    times: &[f64],
    tp: usize,
    label: &str,
) -> Result<(Vec<Worker>, Vec<String>), PlaceError> {
    let mut order: Vec<&str> = Vec::new();
    let mut nodes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, gpu) in gpus.iter().enumerate() {
        let Some(node) = gpu.node.as_deref() else {
            return Err(PlaceError::NoNode { gpu: gpu.id.clone(), tp });
        };
        let members = nodes.entry(node).or_default();
        if members.is_empty() {
            order.push(node);
        }
        members.push(i);
    }
    let (mut list, mut left_over) = (Vec::new(), Vec::new());
    for node in order {
        let mut by_speed = nodes.remove(node).unwrap_or_default();
        by_speed.sort_by(|&a, &b| times[a].total_cmp(&times[b]).then(a.cmp(&b)));
        let whole = by_speed.len() / tp * tp;
        left_over.extend(by_speed[whole..].iter().map(|&i| gpus[i].id.clone()));
        let mut own: Vec<Vec<usize>> =
            by_speed[..whole].chunks(tp).map(<[usize]>::to_vec).collect();
        for group in &mut own {
            group.sort_unstable();
        }
        own.sort();
        for (n, group) in own.iter().enumerate() {
            if group.iter().any(|&i| gpus[i].label != gpus[group[0]].label) {
                let (node, label) = (node.to_owned(), label.to_owned());
                return Err(PlaceError::LabelInGroup { node, label });
            }
            list.push(Worker {
                name: format!("{node}/{n}"),
                gpus: group.iter().map(|&i| gpus[i].id.clone()).collect(),
                node: Some(node.to_owned()),
                label: gpus[group[0]].label.clone(),
                factor: group.iter().map(|&i| times[i]).fold(0.0, f64::max),
            });
        }
    }
    Ok((list, left_over))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(id: &str, node: &str, label: &str, time: f64) -> GpuSpeed {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        GpuSpeed { id: id.into(), node: some(node), label: some(label), times: vec![time] }
    }

    #[test]
    fn slow_gpus_of_a_node_share_a_group_that_is_as_slow_as_its_slowest() {
        let times = [3.0, 1.0, 2.0, 1.1, 1.0, 1.0, 1.0, 9.0, 1.2];
        let gpus: Vec<GpuSpeed> = times
            .iter()
            .enumerate()
            .map(|(i, &t)| gpu(&format!("g{i}"), if i < 4 { "a" } else { "b" }, "", t))
            .collect();
        let workers = Workers::of_gpus(&gpus, 2, "").unwrap();
        let named: Vec<(&str, &[String])> =
            workers.list.iter().map(|w| (w.name.as_str(), w.gpus.as_slice())).collect();
        assert_eq!(named[0], ("a/0", &["g0".to_owned(), "g2".to_owned()][..]));
        assert_eq!(named[1], ("a/1", &["g1".to_owned(), "g3".to_owned()][..]));
        assert_eq!(named.len(), 4);
        assert_eq!(workers.left_over, ["g7"], "the slowest of a node that has too few");
        // Times 3, 1.1, 1, 1.2 over their median of 1.15.
        let expected = [3.0, 1.1, 1.0, 1.2].map(|t| t / 1.15);
        assert_eq!(workers.factors(), expected);
    }

    #[test]
    fn repeats_count_by_their_median() {
        let mut gpus = vec![gpu("a", "", "", 1.0), gpu("b", "", "", 1.0), gpu("c", "", "", 1.0)];
        gpus[1].times = vec![2.0, 90.0, 1.0];
        assert_eq!(Workers::of_gpus(&gpus, 1, "").unwrap().factors(), [1.0, 2.0, 1.0]);
    }

    #[test]
    fn what_cannot_be_grouped_is_refused() {
        let two = |a: GpuSpeed, b: GpuSpeed| Workers::of_gpus(&[a, b], 2, "rail").unwrap_err();
        let (a, b) = (|| gpu("a", "n", "x", 1.0), || gpu("b", "n", "x", 1.0));
        assert!(matches!(two(a(), gpu("b", "", "x", 1.0)), PlaceError::NoNode { .. }));
        assert!(matches!(two(a(), gpu("b", "n", "y", 1.0)), PlaceError::LabelInGroup { .. }));
        assert!(matches!(two(a(), a()), PlaceError::Twice { .. }));
        for time in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(two(b(), gpu("a", "n", "x", time)), PlaceError::Time { .. }));
        }
    }

    #[test]
    fn the_given_order_must_keep_replicas_together() {
        let gpus: Vec<GpuSpeed> = ["x", "x", "y", "x", "y"]
            .iter()
            .enumerate()
            .map(|(i, l)| gpu(&i.to_string(), "", l, 1.0))
            .collect();
        let workers = Workers::of_gpus(&gpus, 1, "rail").unwrap();
        let error = workers.labels(Some("rail"), 2, 4).unwrap_err().to_string();
        assert!(error.contains("replica 1") && error.contains("`2`"), "{error}");
        assert_eq!(workers.labels(None, 2, 4).unwrap(), None);
        let labels = workers.labels(Some("rail"), 2, 2).unwrap();
        assert_eq!(labels, Some(vec![0, 0, 1, 0, 1]));
    }
}
