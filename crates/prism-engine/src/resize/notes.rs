//! What was taken beyond what was recorded, in words.

use prism_model::DurationModel;

use super::replicas::Axis;
use super::workers::WorkerLaw;
use super::{Extrapolation, Resizer, Severity, shape};

impl Resizer<'_> {
    /// What is extrapolated from a model of the recorded job.
    pub fn notes(&self, model: &DurationModel) -> Vec<Extrapolation> {
        let mut out = self.beyond.clone();
        let law = WorkerLaw::new(model);
        let stages_change = self.map.stages.0 != self.map.stages.1;
        if self.replicas.0 != self.replicas.1 || self.options.fresh_cluster || stages_change {
            self.replica_notes(model, &law, &mut out);
        }
        if self.replicas.0 != self.replicas.1 {
            self.collective_notes(&mut out);
        }
        if stages_change {
            self.stage_notes(&mut out);
        }
        if self.map.microbatches.0 != self.map.microbatches.1 {
            self.microbatch_notes(&mut out);
        }
        if let Some(shape) = &self.shape {
            let (_, lost) = shape::implied(self.graph, shape, &model.implied);
            if lost > 0 {
                out.push(extrapolation(
                    "implied dependencies",
                    (model.implied.len(), self.implied),
                    format!(
                        "{lost} dependencies found in the data have no counterpart and are left out"
                    ),
                    Severity::Assumption,
                ));
            }
        }
        out
    }

    fn replica_notes(&self, model: &DurationModel, law: &WorkerLaw, out: &mut Vec<Extrapolation>) {
        let (from, to) = self.replicas;
        let stages_change = self.map.stages.0 != self.map.stages.1;
        let kept = if self.options.fresh_cluster || stages_change { 0 } else { from.min(to) };
        let new = to - kept;
        let (basis, severity) = if new == 0 {
            (format!("the first {to} replicas stay, the others are left out"), Severity::Assumption)
        } else if law.present {
            let severity = if u64::from(new) > 4 * law.workers() as u64 {
                Severity::Warning
            } else {
                Severity::Assumption
            };
            let basis = format!(
                "{kept} replicas keep their workers, {new} draw theirs from {} observed workers: \
                 {} outliers (a new one with probability {:.1} %), the others with an s.d. of {:.2} %",
                law.workers(),
                law.outliers(),
                100.0 * law.outlier_share(),
                100.0 * law.usual_sd_log,
            );
            (basis, severity)
        } else if from == 1 {
            ("one replica tells nothing of how replicas differ".to_owned(), Severity::Warning)
        } else {
            ("replicas do not differ (worker effect dropped)".to_owned(), Severity::Note)
        };
        out.push(extrapolation("workers", (from, to), basis, severity));
        if new > 0 && !model.launch_delay.is_empty() {
            out.push(extrapolation(
                "launch delays, optimizer",
                (from, to),
                "new replicas take those of an observed replica in the same step".to_owned(),
                Severity::Assumption,
            ));
        }
    }

    fn collective_notes(&self, out: &mut Vec<Extrapolation>) {
        let has = self.graph.ops().iter().any(|op| Axis::over_replicas(op.kind));
        let (from, to) = self.ranks();
        if !has || from < 2 || from == to {
            return;
        }
        let (from, to) = (f64::from(from), f64::from(to));
        let latency = (to - 1.0) / (from - 1.0);
        out.push(extrapolation(
            "collectives over replicas",
            (format!("{from} ranks"), format!("{to} ranks")),
            format!(
                "transfers x{:.3}, the bandwidth part (n-1)/n of a ring; one size does not tell the \
                 latency part, which grows x{latency:.1}: transfers lie between the two",
                self.collective_factor(),
            ),
            Severity::Assumption,
        ));
        let sharded =
            self.graph.ops().iter().any(|op| op.kind == prism_model::OpKind::ParamsAllGather);
        if sharded {
            out.push(extrapolation(
                "optimizer",
                (format!("{from} ranks"), format!("{to} ranks")),
                format!("kept as recorded; a sharded optimizer would take x{:.2} of it", from / to),
                Severity::Assumption,
            ));
        }
    }

    fn stage_notes(&self, out: &mut Vec<Extrapolation>) {
        let stages = self.map.stages;
        out.push(extrapolation(
            "layers",
            (format!("{} stages", stages.0), format!("{} stages", stages.1)),
            "stages between the ends are alike and their work is divided evenly; what the ends do more \
             (embedding, loss) stays with them"
                .to_owned(),
            Severity::Assumption,
        ));
        out.push(extrapolation(
            "noise of a stage",
            (stages.0, stages.1),
            "relative to its duration as recorded, though a stage has other layers".to_owned(),
            Severity::Assumption,
        ));
        if stages.1 > 1 {
            out.push(extrapolation(
                "sends and receives",
                (stages.0 - 1, stages.1 - 1),
                "new hops take the transfers of recorded ones".to_owned(),
                Severity::Assumption,
            ));
        }
    }

    fn microbatch_notes(&self, out: &mut Vec<Extrapolation>) {
        let (from, to) = self.map.microbatches;
        let basis = if to > from {
            "warm-up and cool-down keep their position effects, the middle is repeated"
        } else {
            "warm-up and cool-down keep their position effects, the middle is cut short"
        };
        let severity =
            if to < u32::from(self.map.stages.1) { Severity::Warning } else { Severity::Note };
        out.push(extrapolation("microbatches", (from, to), basis.to_owned(), severity));
    }
}

fn extrapolation<T: std::fmt::Display>(
    what: &str,
    (from, to): (T, T),
    basis: String,
    severity: Severity,
) -> Extrapolation {
    Extrapolation {
        what: what.to_owned(),
        from: from.to_string(),
        to: to.to_string(),
        basis,
        severity,
    }
}
