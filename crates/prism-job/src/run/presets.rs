//! Failures and slow-downs by name, each figure with its source.

use super::{
    Domain, FailureClass, FailureRate, Failures, Onset, Rates, Severity, Slow, SlowClass, SlowKind,
};
use crate::presets::{Listed, same_name};

/// The failure presets there are, in a fixed order.
pub fn failure_presets() -> impl Iterator<Item = Listed> {
    FAILURES.iter().map(|&(name, describe, _)| Listed { name, describe })
}

/// Failures of a name; case and `_` for `-` do not matter.
pub fn failure_preset(name: &str) -> Option<Failures> {
    let (name, _, make) = FAILURES.iter().find(|p| same_name(p.0, name))?;
    Some(Failures { preset: Some((*name).to_owned()), rates: Rates::Fixed, classes: make() })
}

type FailurePreset = (&'static str, &'static str, fn() -> Vec<FailureClass>);

const FAILURES: &[FailurePreset] = &[
    ("none", "nothing fails", Vec::new),
    (
        "llama3-405b",
        "419 unplanned interruptions of 16,384 GPUs in 54 days, by cause (arXiv 2407.21783, table 5)",
        llama3,
    ),
    ("rsc-1", "6.50 failures in 1,000 node-days (arXiv 2410.21680)", || per_node(6.5)),
    ("rsc-2", "2.34 failures in 1,000 node-days (arXiv 2410.21680)", || per_node(2.34)),
    (
        "o100k",
        "a failure every 18 minutes on 100,000 GPUs: 6.4 in 1,000 node-days (arXiv 2602.00277)",
        || per_node(6.4),
    ),
];

/// Causes, counts, what fails as one, and whether the node needs another in its place.
///
/// Counts are the paper's. Domain and replacement are ours: faulty hardware takes its node out, the
/// firmware, a time-out or heat does not; software, dependencies and wrong results from it belong to
/// the job. A switch or cable is one of the two nodes' below a rack's switch.
const LLAMA3: &[(&str, u64, Domain, bool)] = &[
    ("GPU", 148, Domain::Gpu, true),
    ("HBM3 memory", 72, Domain::Gpu, true),
    ("software", 54, Domain::Job, false),
    ("network switch or cable", 35, Domain::Switch, true),
    ("host maintenance", 32, Domain::Node, true),
    ("GPU SRAM", 19, Domain::Gpu, true),
    ("GPU system processor", 17, Domain::Gpu, false),
    ("NIC", 7, Domain::Node, true),
    ("NCCL time-out", 7, Domain::Node, false),
    ("silent data corruption", 6, Domain::Gpu, true),
    ("thermal interface", 6, Domain::Gpu, false),
    ("SSD", 3, Domain::Node, true),
    ("power supply", 3, Domain::Node, true),
    ("server chassis", 2, Domain::Node, true),
    ("IO expansion board", 2, Domain::Node, true),
    ("dependency", 2, Domain::Job, false),
    ("CPU", 2, Domain::Node, true),
    ("system memory", 2, Domain::Node, true),
];

/// GPUs and time over which the failures of Llama 3 405B were counted.
const LLAMA3_EXPOSURE: (u64, f64) = (16_384, 54.0 * 86_400.0);

fn llama3() -> Vec<FailureClass> {
    let (gpus, duration_s) = LLAMA3_EXPOSURE;
    let class = |&(name, count, domain, replaces): &(&str, u64, Domain, bool)| FailureClass {
        name: name.to_owned(),
        domain,
        rate: FailureRate::Counted { count, gpus, duration_s },
        detection_s: None,
        restart_s: None,
        replaces,
        repair_s: None,
    };
    LLAMA3.iter().map(class).collect()
}

fn per_node(rate: f64) -> Vec<FailureClass> {
    vec![FailureClass {
        name: "node".to_owned(),
        domain: Domain::Node,
        rate: FailureRate::PerThousandNodeDays(rate),
        detection_s: None,
        restart_s: None,
        replaces: true,
        repair_s: None,
    }]
}

/// The fail-slow presets there are, in a fixed order.
pub fn slow_presets() -> impl Iterator<Item = Listed> {
    SLOW.iter().map(|&(name, describe)| Listed { name, describe })
}

const SLOW: &[(&str, &str)] = &[
    ("none", "nothing slows down"),
    ("shared-roce", "fail-slow on a network shared with other jobs (Greyhound, arXiv 2410.12588)"),
    ("lemon", "0.5 % of the nodes a tenth slower throughout (MegaScale, arXiv 2402.15627)"),
];

/// Slow-downs of a name for a job on so many nodes; case and `_` for `-` do not matter.
pub fn slow_preset(name: &str, nodes: u64) -> Option<Slow> {
    let (name, _) = SLOW.iter().find(|p| same_name(p.0, name))?;
    let classes = match *name {
        "shared-roce" => vec![shared_roce(nodes)],
        "lemon" => vec![lemon()],
        _ => Vec::new(),
    };
    Some(Slow { preset: Some((*name).to_owned()), classes, slowest: true })
}

/// What Greyhound reports of jobs of one size, and the severity that meets it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GreyhoundRow {
    /// Nodes of a job, at least.
    pub nodes: u64,
    /// Jobs that met an episode, and jobs watched.
    pub jobs: (u32, u32),
    /// Mean length of an episode, minutes.
    pub mean_min: f64,
    /// Mean longer time of those that met one, a share; at 512 GPUs and more Greyhound's mean of
    /// +34.6 % is over all jobs.
    pub slower: f64,
    /// Median factor of an episode that makes it so; calibrated.
    pub median: f64,
}

/// Greyhound's three sizes of jobs.
///
/// *Taken over*: share of jobs hit, mean length of an episode. *Assumed*: a job that is hit meets two
/// episodes an hour (at scale they overlap); its severity stays with it, as its place in the network
/// does, with a spread of 1 in the log of the excess; lengths are log-normal with a spread of 1, which
/// from a mean of 72 minutes reaches the 10 hours of the longest seen. *Calibrated*: the median factor, on
/// the mean slow-down. At 512 GPUs and more 24 % of the jobs then take over 1.5 times as long, where Greyhound
/// saw a fifth of 27: no independent check, because the two spreads and the rate of episodes were chosen with
/// that fifth in view.
pub fn greyhound_rows() -> [GreyhoundRow; 3] {
    [
        GreyhoundRow { nodes: 1, jobs: (6, 392), mean_min: 10.0, slower: 0.118, median: 1.50 },
        GreyhoundRow { nodes: 2, jobs: (42, 107), mean_min: 24.0, slower: 0.155, median: 1.23 },
        GreyhoundRow {
            nodes: 64,
            jobs: (16, 27),
            mean_min: 72.0,
            slower: 0.346 * 27.0 / 16.0,
            median: 1.45,
        },
    ]
}

/// Jobs on one node have slow processors, larger ones congested links; each size keeps to the nearest
/// row at or below it.
fn shared_roce(nodes: u64) -> SlowClass {
    let [first, ..] = greyhound_rows();
    let row = greyhound_rows().into_iter().rev().find(|r| nodes >= r.nodes).unwrap_or(first);
    let (name, kind) = if row.nodes > 1 {
        ("congested links", SlowKind::Link)
    } else {
        ("slow GPUs or hosts", SlowKind::Compute)
    };
    SlowClass {
        name: name.to_owned(),
        kind,
        domain: Domain::Job,
        onset: Onset::PerJobHour(2.0),
        exposed: f64::from(row.jobs.0) / f64::from(row.jobs.1),
        mean_s: row.mean_min * 60.0,
        sigma: 1.0,
        severity: Severity::LogNormal { median: row.median, sigma: 1.0 },
        severity_per_run: true,
    }
}

fn lemon() -> SlowClass {
    SlowClass {
        name: "slow node".to_owned(),
        kind: SlowKind::Compute,
        domain: Domain::Node,
        onset: Onset::Share(0.005),
        exposed: 1.0,
        mean_s: 0.0,
        sigma: 0.0,
        severity: Severity::Values(vec![1.1]),
        severity_per_run: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Machines;

    fn machines(gpus: u64) -> Machines {
        Machines { gpus, gpus_per_node: 8, nodes_per_rack: 2, nodes_per_switch: 2 }
    }

    #[test]
    fn published_times_between_failures() {
        let hours = |name: &str, gpus: u64| {
            1.0 / failure_preset(name).unwrap().job_rate(&machines(gpus)) / 3_600.0
        };
        let counts: u64 = LLAMA3.iter().map(|c| c.1).sum();
        assert_eq!(counts, 419);
        assert!((hours("llama3-405b", 16_384) - 3.09).abs() < 0.005);
        assert!((hours("rsc-1", 16_384) - 1.80).abs() < 0.005);
        assert!((hours("rsc-1", 131_072) - 0.225).abs() < 0.0005);
        assert!((hours("rsc-1", 1_024) * 6.5 / 2.34 / hours("rsc-2", 1_024) - 1.0).abs() < 1e-12);
        assert!((hours("O100K", 100_000) * 60.0 - 18.0).abs() < 1e-9);
        assert!(failure_preset("llama").is_none());
    }

    #[test]
    fn failures_of_software_do_not_grow_with_the_job() {
        let failures = failure_preset("llama3-405b").unwrap();
        let rate = |name: &str, gpus: u64| {
            let class = failures.classes.iter().find(|c| c.name == name).unwrap();
            class.job_rate(&machines(gpus))
        };
        assert_eq!(rate("software", 16_384), rate("software", 131_072));
        assert!((rate("GPU", 131_072) / rate("GPU", 16_384) - 8.0).abs() < 1e-12);
    }

    #[test]
    fn slow_downs_keep_to_the_size_of_the_job() {
        let mean = |nodes: u64| slow_preset("shared_roce", nodes).unwrap().classes[0].mean_s / 60.0;
        assert_eq!([mean(1), mean(4), mean(63), mean(64), mean(2_048)], [10., 24., 24., 72., 72.]);
    }
}
