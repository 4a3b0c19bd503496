//! A cluster's efficiencies from measured step and collective times.

use prism_graph::PlannedStep;
use prism_job::cost::{CollectiveKind, Group, collective, costs};
use prism_job::{Cluster, Efficiency, Job};
use prism_stats::least_squares::{Parameter, least_squares};

use super::PlannedError;

/// A measured step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPoint {
    /// What ran.
    pub job: Job,
    /// Measured step time, seconds.
    pub seconds: f64,
    /// How much its relative error counts; 1 as a rule.
    pub weight: f64,
}

/// A measured collective.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectivePoint {
    /// Where.
    pub cluster: Cluster,
    /// What it does.
    pub kind: CollectiveKind,
    /// The whole buffer of a rank, bytes.
    pub bytes: f64,
    /// Over whom.
    pub group: Group,
    /// Measured time, seconds.
    pub seconds: f64,
    /// How much its relative error counts.
    pub weight: f64,
}

/// A field of [`Efficiency`] that can be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field(usize);

type Get = fn(&mut Efficiency) -> &mut f64;

/// Name, physical bounds, whether it belongs to the GPU (else to the cluster), and where it is.
const FIELDS: [(&str, f64, f64, bool, Get); 12] = [
    ("gemm", 0.1, 1.0, true, |e| &mut e.gemm),
    ("gemm_fp8", 0.1, 1.0, true, |e| &mut e.gemm_fp8),
    ("gemm_half_k", 1.0, 4096.0, true, |e| &mut e.gemm_half_k),
    ("attention", 0.05, 0.95, true, |e| &mut e.attention),
    ("memory", 0.2, 0.95, true, |e| &mut e.memory),
    ("kernel_s", 5e-7, 3e-5, true, |e| &mut e.kernel_s),
    ("launch_s", 5e-7, 1e-3, true, |e| &mut e.launch_s),
    ("microbatch_host_s", 1e-6, 2e-2, true, |e| &mut e.microbatch_host_s),
    ("nvlink", 0.1, 1.0, true, |e| &mut e.nvlink),
    ("collective_s", 1e-6, 1e-3, true, |e| &mut e.collective_s),
    ("network", 0.1, 1.0, false, |e| &mut e.network),
    ("step_s", 1e-5, 10.0, false, |e| &mut e.step_s),
];

impl Field {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Field> {
        (0..FIELDS.len()).map(Field)
    }

    /// The field of a name.
    pub fn named(name: &str) -> Option<Field> {
        FIELDS.iter().position(|f| f.0 == name).map(Field)
    }

    /// Its name in the job file.
    pub fn name(self) -> &'static str {
        FIELDS[self.0].0
    }

    /// Whether it is the GPU's; otherwise it is the cluster's.
    pub fn is_gpu(self) -> bool {
        FIELDS[self.0].3
    }

    /// Its value.
    pub fn get(self, mut efficiency: Efficiency) -> f64 {
        *FIELDS[self.0].4(&mut efficiency)
    }

    fn set(self, efficiency: &mut Efficiency, value: f64) {
        *FIELDS[self.0].4(efficiency) = value;
    }
}

/// How well a parameter is known.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Identified {
    /// Its standard error is below half of it, or as many points as parameters leave none.
    Yes,
    /// Its standard error is larger than that.
    Weakly,
    /// The points do not depend on it, or it ended on a bound: it stays where it was, or there.
    No,
}

/// A fitted parameter.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct FittedParameter {
    /// GPU type or cluster that it belongs to.
    pub of: String,
    /// Field of `[cluster.efficiency]`.
    pub name: String,
    /// Value.
    pub value: f64,
    /// Standard error; none where the points do not determine the value, or determine it exactly.
    pub standard_error: Option<f64>,
    /// Least physical value.
    pub low: f64,
    /// Greatest physical value.
    pub high: f64,
    /// Whether the value lies on one of its bounds.
    pub at_bound: bool,
    /// How well it is known.
    pub identified: Identified,
}

/// A fit.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterFit {
    /// Parameters.
    pub parameters: Vec<FittedParameter>,
    /// Predicted over measured, less 1: steps, then collectives.
    pub errors: Vec<f64>,
    /// Root mean square of the errors, large ones bounded.
    pub rms: f64,
    /// Whether the search converged.
    pub converged: bool,
    keys: Vec<(String, Field)>,
}

impl ClusterFit {
    /// A cluster's efficiency with what was fitted for its GPU and for itself.
    pub fn apply(&self, cluster: &mut Cluster) {
        for (parameter, (of, field)) in self.parameters.iter().zip(&self.keys) {
            if *of == owner(*field, cluster) {
                field.set(&mut cluster.efficiency, parameter.value);
            }
        }
    }
}

/// Errors beyond this count no further: a few odd points must not rule.
const BOUNDED: f64 = 0.3;

/// Fits efficiencies to measured times: relative errors by least squares, each parameter inside its
/// physical bounds. GPU parameters are shared by all points on one chip, network and fixed overhead by
/// all points on one cluster (by name).
///
/// Parameters that the points do not depend on keep their starting value and are marked; `fields` names
/// those that may move at all.
///
/// # Errors
/// [`PlannedError::Fit`] with fewer points than parameters, [`PlannedError::Graph`] for an impossible
/// plan, [`PlannedError::Setting`] for a time that is not positive.
pub fn fit_cluster(
    steps: &[StepPoint],
    collectives: &[CollectivePoint],
    fields: &[Field],
) -> Result<ClusterFit, PlannedError> {
    for seconds in steps.iter().map(|p| p.seconds).chain(collectives.iter().map(|p| p.seconds)) {
        if !(seconds.is_finite() && seconds > 0.0) {
            let (what, rule) = ("a measured time", "positive");
            return Err(PlannedError::Setting { what, rule, got: seconds.to_string() });
        }
    }
    let mut graphs = steps
        .iter()
        .map(|p| PlannedStep::new(&p.job, &costs(&p.job), 1))
        .collect::<Result<Vec<_>, _>>()?;
    let keys = keys(steps, collectives, fields);
    plausible(steps, collectives, &keys, &mut graphs)?;
    let influence = felt(steps, collectives, &keys, &mut graphs)?;
    let free: Vec<usize> = (0..keys.len()).filter(|&k| influence[k]).collect();
    let start: Vec<f64> = keys.iter().map(|k| starting(k, steps, collectives)).collect();
    let parameters: Vec<Parameter> = free
        .iter()
        .map(|&k| {
            let (name, low, high, _, _) = FIELDS[keys[k].1.0];
            Parameter { name: name.to_owned(), start: start[k].clamp(low, high), low, high }
        })
        .collect();
    let mut failed = None;
    let fit = least_squares(&parameters, |values| {
        let mut all = start.clone();
        free.iter().zip(values).for_each(|(&k, v)| all[k] = *v);
        match ratios(steps, collectives, &keys, &all, &mut graphs) {
            Ok(ratios) => ratios
                .iter()
                .zip(weights(steps, collectives))
                .map(|(r, w)| w * BOUNDED * (r.ln() / BOUNDED).tanh())
                .collect(),
            Err(error) => {
                failed = Some(error);
                vec![f64::NAN; steps.len() + collectives.len()]
            }
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let fit = fit?;
    let mut values = start;
    free.iter().zip(&fit.parameters).for_each(|(&k, p)| values[k] = p.value);
    let fitted = keys
        .iter()
        .enumerate()
        .map(|(k, (of, field))| {
            let (name, low, high, _, _) = FIELDS[field.0];
            let own = free.iter().position(|&f| f == k).map(|i| &fit.parameters[i]);
            let error = own.map_or(f64::INFINITY, |p| p.standard_error);
            let at_bound = own.is_some_and(|p| p.at_bound);
            let identified = if error.is_infinite() {
                Identified::No
            } else if error > 0.5 * values[k] {
                Identified::Weakly
            } else {
                Identified::Yes
            };
            let error = Some(error).filter(|e| e.is_finite());
            FittedParameter {
                of: of.clone(),
                name: name.to_owned(),
                value: values[k],
                standard_error: error,
                low,
                high,
                at_bound,
                identified,
            }
        })
        .collect();
    let ratios = ratios(steps, collectives, &keys, &values, &mut graphs)?;
    Ok(ClusterFit {
        parameters: fitted,
        errors: ratios.iter().map(|r| r - 1.0).collect(),
        rms: fit.rms,
        converged: fit.converged,
        keys,
    })
}

/// Measured times further than this factor from the costs at the start are of another unit or job.
const PLAUSIBLE: f64 = 50.0;

fn plausible(
    steps: &[StepPoint],
    collectives: &[CollectivePoint],
    keys: &[(String, Field)],
    graphs: &mut [PlannedStep],
) -> Result<(), PlannedError> {
    let start: Vec<f64> = keys.iter().map(|k| starting(k, steps, collectives)).collect();
    let measured = steps.iter().map(|p| p.seconds).chain(collectives.iter().map(|p| p.seconds));
    for (ratio, seconds) in ratios(steps, collectives, keys, &start, graphs)?.iter().zip(measured) {
        if !(1.0 / PLAUSIBLE..=PLAUSIBLE).contains(ratio) {
            return Err(PlannedError::Implausible {
                measured_s: seconds,
                expected_s: ratio * seconds,
            });
        }
    }
    Ok(())
}

/// What a field belongs to: the chip, or the cluster.
fn owner(field: Field, cluster: &Cluster) -> String {
    if field.is_gpu() { chip(&cluster.gpu.name).to_owned() } else { cluster.name.clone() }
}

/// A GPU's name without its memory: boards of one chip share their efficiencies.
fn chip(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((chip, memory)) if memory.ends_with("GB") => chip,
        _ => name,
    }
}

fn clusters<'a>(
    steps: &'a [StepPoint],
    collectives: &'a [CollectivePoint],
) -> impl Iterator<Item = &'a Cluster> {
    steps.iter().map(|p| &p.job.cluster).chain(collectives.iter().map(|p| &p.cluster))
}

fn keys(
    steps: &[StepPoint],
    collectives: &[CollectivePoint],
    fields: &[Field],
) -> Vec<(String, Field)> {
    let mut keys: Vec<(String, Field)> = Vec::new();
    for cluster in clusters(steps, collectives) {
        for &field in fields {
            let key = (owner(field, cluster), field);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    keys
}

fn starting(
    (of, field): &(String, Field),
    steps: &[StepPoint],
    collectives: &[CollectivePoint],
) -> f64 {
    clusters(steps, collectives)
        .find(|c| owner(*field, c) == *of)
        .map_or(f64::NAN, |c| field.get(c.efficiency))
}

fn with(cluster: &Cluster, keys: &[(String, Field)], values: &[f64]) -> Efficiency {
    let mut efficiency = cluster.efficiency;
    for ((of, field), value) in keys.iter().zip(values) {
        if *of == owner(*field, cluster) {
            field.set(&mut efficiency, *value);
        }
    }
    efficiency
}

fn weights<'a>(
    steps: &'a [StepPoint],
    collectives: &'a [CollectivePoint],
) -> impl Iterator<Item = f64> + 'a {
    steps.iter().map(|p| p.weight).chain(collectives.iter().map(|p| p.weight))
}

/// Predicted over measured.
fn ratios(
    steps: &[StepPoint],
    collectives: &[CollectivePoint],
    keys: &[(String, Field)],
    values: &[f64],
    graphs: &mut [PlannedStep],
) -> Result<Vec<f64>, PlannedError> {
    let mut out = Vec::with_capacity(steps.len() + collectives.len());
    for (point, graph) in steps.iter().zip(graphs) {
        let mut job = point.job.clone();
        job.cluster.efficiency = with(&point.job.cluster, keys, values);
        graph.set_costs(&costs(&job))?;
        out.push(graph.seconds()? / point.seconds);
    }
    for point in collectives {
        let mut cluster = point.cluster.clone();
        cluster.efficiency = with(&point.cluster, keys, values);
        let transfer = collective(point.kind, point.bytes, point.group, &cluster);
        out.push(transfer.seconds / point.seconds);
    }
    Ok(out)
}

/// Which parameters move any point at all.
fn felt(
    steps: &[StepPoint],
    collectives: &[CollectivePoint],
    keys: &[(String, Field)],
    graphs: &mut [PlannedStep],
) -> Result<Vec<bool>, PlannedError> {
    let start: Vec<f64> = keys.iter().map(|k| starting(k, steps, collectives)).collect();
    let before = ratios(steps, collectives, keys, &start, graphs)?;
    (0..keys.len())
        .map(|k| {
            let (_, low, high, _, _) = FIELDS[keys[k].1.0];
            let mut felt = false;
            for to in [low, high] {
                let mut moved = start.clone();
                moved[k] = to;
                let after = ratios(steps, collectives, keys, &moved, graphs)?;
                felt |= before.iter().zip(&after).any(|(a, b)| (a / b - 1.0).abs() > 1e-6);
            }
            Ok(felt)
        })
        .collect()
}
