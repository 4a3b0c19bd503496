//! Jobs whose halves are compared, and changes put into one of them.
#![allow(dead_code)]

use std::path::PathBuf;

use prism_engine::calibrate::{CalibrateOptions, Selection, calibrate};
use prism_engine::profile::{JobFile, PROFILE_SCHEMA, Profile, Provenance};
use prism_engine::replay::{Builder, Replayed, choose_builder, recorded_step_times};
use prism_engine::synth::{EffectSpec, LaunchDelay, SynthEffects, SynthSpec};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{GraphFile, Op, to_op_table};
use prism_io::{JobMeta, ReadOptions, read_op_table};
use prism_stats::stream;
use rand::RngExt;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A recorded job on its graph.
pub(crate) struct Job {
    pub(crate) builder: Builder,
    pub(crate) replayed: Replayed,
    pub(crate) meta: JobMeta,
}

/// A plan with every effect at a realistic size.
pub(crate) fn spec(
    replicas: u32,
    stages: u16,
    microbatches: u32,
    steps: u32,
    seed: u64,
) -> SynthSpec {
    let plan = Schedule { replicas, ..Schedule::new(ScheduleKind::OneFOneB, stages, microbatches) };
    let mut spec = SynthSpec::new(plan, steps);
    spec.seed = seed;
    spec.launch_delay = LaunchDelay { mean_s: 0.002, sd_log: 0.5 };
    spec.effects = SynthEffects {
        worker: EffectSpec::normal(0.01),
        position: EffectSpec::normal(0.01),
        step: EffectSpec::normal(0.02),
        step_worker: EffectSpec::normal(0.005),
        microbatch: EffectSpec::normal(0.05),
        residual: EffectSpec::normal(0.02),
        worker_spread: EffectSpec::normal(0.1),
        congestion: EffectSpec::normal(0.1),
        transfer: EffectSpec::normal(0.2),
        ..SynthEffects::default()
    };
    spec
}

impl Job {
    pub(crate) fn synthetic(spec: &SynthSpec) -> Result<Job, Failure> {
        let table = spec.generate()?.table;
        let builder = Builder::Reference;
        Ok(Job { builder, replayed: Replayed::new(builder, &table)?, meta: table.meta })
    }

    /// A trace of the shared data; `None`, and a line that says so, if it is not there.
    pub(crate) fn recorded(name: &str) -> Result<Option<Job>, Failure> {
        let data = std::env::var_os("PRISM_DATA").map_or_else(
            || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
            PathBuf::from,
        );
        let path = data.join("straggler").join(format!("trace-{name}.parquet"));
        if !path.exists() {
            eprintln!("skipped: {} is missing (set PRISM_DATA)", path.display());
            return Ok(None);
        }
        let table = read_op_table(&path, &ReadOptions::default())?.table;
        let choice = choose_builder(&table)?;
        let builder = choice.comparison.chosen;
        Ok(Some(Job { builder, replayed: choice.chosen, meta: table.meta }))
    }

    pub(crate) fn steps(&self) -> usize {
        self.replayed.observed.steps().len()
    }

    /// Two random halves of the steps, each ascending.
    pub(crate) fn halves(&self, seed: u64) -> (Vec<usize>, Vec<usize>) {
        let n = self.steps();
        let mut order: Vec<usize> = (0..n).collect();
        let mut rng = stream(seed, "halves", &[]);
        for i in (1..n).rev() {
            order.swap(i, rng.random_range(0..=i));
        }
        let (a, b) = order.split_at(n / 2);
        let (mut a, mut b) = (a.to_vec(), b.to_vec());
        a.sort_unstable();
        b.sort_unstable();
        (a, b)
    }

    /// The profile of some steps.
    pub(crate) fn profile(&self, steps: &[usize]) -> Result<Profile, Failure> {
        let replayed = &self.replayed;
        let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
        let selection = Selection::steps(replayed, steps.to_vec());
        let calibrated = calibrate(replayed, &selection, &options)?;
        let times = recorded_step_times(&replayed.graph, &replayed.observed);
        Ok(Profile {
            schema: PROFILE_SCHEMA.to_owned(),
            provenance: Provenance {
                created_by: "test".to_owned(),
                sources: Vec::new(),
                job: JobFile::from(&self.meta),
                steps_recorded: steps.len(),
                steps_dropped: Vec::new(),
                builder: self.builder,
                zero_delay_error: replayed.report.zero_delay_error,
                reference_error: replayed.report.zero_delay_error,
                with_delay_error: replayed.report.with_delay_error,
                alpha: options.alpha,
            },
            graph: GraphFile::from(&calibrated.graph),
            recorded_step_s: steps.iter().map(|&t| times[t]).collect(),
            model: calibrated.model,
        })
    }

    /// The same job with other work and launch delays, recorded anew: `change` gets an operation, its
    /// replica, its work and its delay, seconds.
    pub(crate) fn changed(
        &self,
        change: impl Fn(&Op, u32, &mut f64, &mut f64),
    ) -> Result<Job, Failure> {
        let r = &self.replayed;
        let (mut work, mut delay) = (r.split.work.clone(), r.split.launch_delay.clone());
        let (samples, replicas) = (r.split.samples(), r.graph.replicas() as usize);
        for (i, op) in r.graph.ops().iter().enumerate() {
            for s in 0..samples {
                let at = i * samples + s;
                change(op, (s % replicas) as u32, &mut work[at], &mut delay[at]);
            }
        }
        // Clock errors that the record has cannot be recorded again.
        for w in &mut work {
            *w = w.max(0.0);
        }
        let table = to_op_table(&r.graph, r.observed.steps(), &work, Some(&delay), &self.meta)?;
        let replayed = Replayed::new(self.builder, &table)?;
        Ok(Job { builder: self.builder, replayed, meta: self.meta.clone() })
    }
}
