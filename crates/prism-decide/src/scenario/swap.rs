//! Durations of another profile's signature in place of a job's own.

use prism_graph::StepGraph;
use prism_model::{DurationModel, LawChoice, OpKind, Signature};
use prism_stats::Law;

use super::Donor;

/// Gives the selected signatures the durations of the donor's `from` (their own counterpart if `None`).
///
/// Locations and spreads come from the donor: its base, its observed step and microbatch effects, its
/// transfers. What is drawn together stays together: each observed value is replaced by the donor's
/// value of the same rank, so that a long microbatch is still long on every stage. Persistent worker
/// and position effects stay the job's.
pub(super) fn swap(
    graph: &StepGraph,
    model: &mut DurationModel,
    donor: &Donor<'_>,
    from: Option<Signature>,
    selected: impl Fn(&Signature) -> bool,
) -> Result<(), String> {
    let mut any = compute(model, donor.model, from, &selected)?;
    any |= transfers(model, donor.model, from, &selected)?;
    any |= step_work(graph, model, donor, from, &selected)?;
    if any { Ok(()) } else { Err("it selects no signature with durations of its own".to_owned()) }
}

fn compute(
    model: &mut DurationModel,
    donor: &DurationModel,
    from: Option<Signature>,
    selected: &impl Fn(&Signature) -> bool,
) -> Result<bool, String> {
    let (n, donors) = (model.compute.signatures.len(), donor.compute.signatures.len());
    let lanes = model.replicas as usize * model.steps.len();
    let donor_lanes = donor.replicas as usize * donor.steps.len();
    let mut any = false;
    for c in 0..n {
        let own = model.compute.signatures[c].signature;
        if !selected(&own) {
            continue;
        }
        any = true;
        let wanted = from.unwrap_or(own);
        let found = donor.compute.signatures.iter().position(|s| s.signature == wanted);
        let d = found.ok_or_else(|| missing(wanted, "compute", &donor_signatures(donor)))?;
        let other = &donor.compute.signatures[d];
        let signature = &mut model.compute.signatures[c];
        signature.base_log_s = other.base_log_s;
        signature.microbatch_load = other.microbatch_load;
        signature.step_load = other.step_load;
        signature.microbatch_sd_log = other.microbatch_sd_log;
        signature.residual_sd_log = other.residual_sd_log;
        signature.residual_law.clone_from(&other.residual_law);
        if !model.compute.step_vectors_log.is_empty() {
            let values: Vec<f32> = if donor.compute.step_vectors_log.is_empty() {
                vec![0.0]
            } else {
                donor.compute.step_vectors_log[d * donor_lanes..][..donor_lanes].to_vec()
            };
            let mut own: Vec<f32> = model.compute.step_vectors_log[c * lanes..][..lanes].to_vec();
            by_rank(&mut own, values);
            model.compute.step_vectors_log[c * lanes..][..lanes].copy_from_slice(&own);
        }
        if !model.compute.microbatch_vectors_log.is_empty() {
            let column = |vectors: &[f32], c: usize, n: usize| -> Vec<f32> {
                vectors.iter().skip(c).step_by(n.max(1)).copied().collect()
            };
            let mut values = column(&donor.compute.microbatch_vectors_log, d, donors);
            if values.is_empty() {
                values.push(0.0);
            }
            let mut own = column(&model.compute.microbatch_vectors_log, c, n);
            by_rank(&mut own, values);
            for (to, v) in
                model.compute.microbatch_vectors_log.iter_mut().skip(c).step_by(n).zip(own)
            {
                *to = v;
            }
        }
    }
    Ok(any)
}

fn transfers(
    model: &mut DurationModel,
    donor: &DurationModel,
    from: Option<Signature>,
    selected: &impl Fn(&Signature) -> bool,
) -> Result<bool, String> {
    let mut any = false;
    for transfer in &mut model.transfers {
        let width = transfer.members.len();
        for member in 0..width {
            let own = transfer.members[member];
            if !selected(&own) {
                continue;
            }
            any = true;
            let wanted = from.unwrap_or(own);
            let mut values = Vec::new();
            for other in &donor.transfers {
                for k in (0..other.members.len()).filter(|k| other.members[*k] == wanted) {
                    values.extend(other.rows_s.iter().skip(k).step_by(other.members.len()));
                }
            }
            if values.is_empty() {
                let all = donor.transfers.iter().flat_map(|t| t.members.iter());
                return Err(missing(
                    wanted,
                    "transfer",
                    &all.map(ToString::to_string).collect::<Vec<_>>(),
                ));
            }
            let mut own: Vec<f32> =
                transfer.rows_s.iter().skip(member).step_by(width).copied().collect();
            // Parametric draws take the donor's values themselves.
            if let Some(law) = transfer.laws.get_mut(member) {
                let pool = values.iter().map(|v| f64::from(*v)).collect();
                *law = Law::empirical(pool).ok().map(|law| LawChoice {
                    law,
                    n: values.len(),
                    ks: 0.0,
                    losers: Vec::new(),
                });
            }
            by_rank(&mut own, values);
            for (to, v) in transfer.rows_s.iter_mut().skip(member).step_by(width).zip(own) {
                *to = v;
            }
        }
    }
    Ok(any)
}

fn step_work(
    graph: &StepGraph,
    model: &mut DurationModel,
    donor: &Donor<'_>,
    from: Option<Signature>,
    selected: &impl Fn(&Signature) -> bool,
) -> Result<bool, String> {
    let mut any = false;
    for vector in &mut model.step_work {
        let Some(op) = graph.ops().get(vector.op as usize) else { continue };
        let own = op.signature();
        if !selected(&own) || op.kind == OpKind::Barrier {
            continue;
        }
        any = true;
        let wanted = from.unwrap_or(own);
        let mut values = Vec::new();
        for other in &donor.model.step_work {
            let theirs = donor.graph.ops().get(other.op as usize);
            if theirs.is_some_and(|o| o.signature() == wanted) {
                values.extend_from_slice(&other.values_s);
            }
        }
        if values.is_empty() {
            return Err(missing(wanted, "step-level", &[]));
        }
        by_rank(&mut vector.values_s, values);
    }
    Ok(any)
}

fn donor_signatures(donor: &DurationModel) -> Vec<String> {
    donor.compute.signatures.iter().map(|s| s.signature.to_string()).collect()
}

fn missing(wanted: Signature, what: &str, there: &[String]) -> String {
    let there =
        if there.is_empty() { String::new() } else { format!("; there are {}", there.join(", ")) };
    format!("the other profile has no {what} signature `{wanted}`{there}")
}

/// Replaces each value by the donor's of the same rank: the quantile at (rank + ½)/n.
fn by_rank(own: &mut [f32], mut donor: Vec<f32>) {
    donor.sort_by(f32::total_cmp);
    let mut order: Vec<usize> = (0..own.len()).collect();
    order.sort_by(|a, b| own[*a].total_cmp(&own[*b]).then(a.cmp(b)));
    let (n, m) = (own.len() as f64, donor.len() as f64);
    for (rank, at) in order.into_iter().enumerate() {
        let place = ((rank as f64 + 0.5) / n * m) as usize;
        own[at] = donor[place.min(donor.len() - 1)];
    }
}

#[cfg(test)]
mod tests {
    use super::by_rank;

    #[test]
    fn ranks_are_kept_and_values_replaced() {
        let mut own = vec![3.0, 1.0, 2.0, 4.0];
        by_rank(&mut own, vec![40.0, 10.0, 30.0, 20.0]);
        assert_eq!(own, [30.0, 10.0, 20.0, 40.0]);
        let mut same = vec![0.5, -1.0, 2.0];
        by_rank(&mut same, vec![2.0, 0.5, -1.0]);
        assert_eq!(same, [0.5, -1.0, 2.0]);
        let mut more = vec![1.0, 2.0, 3.0, 4.0];
        by_rank(&mut more, vec![7.0, 5.0]);
        assert_eq!(more, [5.0, 5.0, 7.0, 7.0]);
    }
}
