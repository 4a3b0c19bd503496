//! Arguments of `prism synth`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args};
use prism_engine::synth::{EffectLaw, EffectSpec, SlowWorker};
use prism_graph::schedule::{Schedule, ScheduleKind};

use super::values::{duration, number, share};
use crate::planned::PlannedArgs;

/// Make a synthetic trace, of a known truth, of a profile or of a job file
///
/// The truth is a plan with effects; what was drawn is reported, so that a calibration of the trace
/// can be held against it. A profile or a job file gives steps of its own job.
#[derive(Clone, Debug, Args)]
#[command(
    group = ArgGroup::new("truth").required(true).args(["plan", "profile", "job"]),
    after_help = "Effects: worker, position, step, step-worker, microbatch, residual, worker-spread, \
                  congestion, transfer. Laws: normal, heavy-tailed, skewed.

Examples:
  prism synth --plan dp=4,pp=4,microbatches=8 --steps 100 --effect microbatch=20% -o t.parquet
  prism synth --plan pp=2,microbatches=8,vpp=2,schedule=interleaved-1f1b --steps 50 -o t.csv
  prism synth --profile profile.json --steps 500 -o t.parquet
  prism synth --job job.toml --set variability.preset=lemon --steps 500 -o t.parquet"
)]
pub(crate) struct SynthArgs {
    /// The plan: dp, pp, vpp, microbatches, schedule (gpipe, 1f1b, interleaved-1f1b)
    #[arg(long, value_name = "KEY=N,..")]
    pub(crate) plan: Option<Plan>,
    /// Draw from this profile
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["effect", "duration", "slow_worker", "window", "gap"]
    )]
    pub(crate) profile: Option<PathBuf>,
    /// Draw from the variability of this job file
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["effect", "duration", "slow_worker", "window", "gap"]
    )]
    pub(crate) job: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) planned: PlannedArgs,
    /// Steps to record
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(crate) steps: u32,
    /// First step id
    #[arg(long, default_value_t = 0, value_name = "ID")]
    pub(crate) first_step: u32,
    /// Consecutive steps in a window; without it, all are consecutive
    #[arg(long, value_name = "N")]
    pub(crate) window: Option<u32>,
    /// From the last step id of a window to the first of the next
    #[arg(long, value_name = "N", requires = "window")]
    pub(crate) gap: Option<u32>,
    /// A random effect and its s.d. in log time, with a law if it is not normal; repeatable
    #[arg(long, value_name = "EFFECT=SD[:LAW]")]
    pub(crate) effect: Vec<EffectArg>,
    /// Mean duration of forward, backward, p2p, collective, optimizer or gc; repeatable
    #[arg(long, value_name = "OPERATION=TIME")]
    pub(crate) duration: Vec<DurationArg>,
    /// One worker that is slower for good
    #[arg(long, value_name = "replica=R,stage=S,factor=F")]
    pub(crate) slow_worker: Option<SlowWorkerArg>,
    /// Where to write it: CSV and metadata if the name ends in `.csv` or `.csv.gz`, else Parquet
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// Splits `a=1,b=2`.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut out: Vec<(&str, &str)> = Vec::new();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("no `=` in `{part}`"))?;
        let (key, value) = (key.trim(), value.trim());
        if out.iter().any(|(k, _)| *k == key) {
            return Err(format!("`{key}` is given twice"));
        }
        out.push((key, value));
    }
    Ok(out)
}

fn integer<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{key}` is `{value}`, which is no number in its range"))
}

/// A plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan(pub(crate) Schedule);

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut kind, mut microbatches) = (None, None);
        let mut plan = Schedule::new(ScheduleKind::OneFOneB, 1, 1);
        for (key, value) in pairs(text)? {
            match key {
                "dp" => plan.replicas = integer(key, value)?,
                "pp" => plan.stages = integer(key, value)?,
                "vpp" => plan.chunks = integer(key, value)?,
                "microbatches" => microbatches = Some(integer(key, value)?),
                "schedule" => {
                    kind = Some(match value {
                        "gpipe" => ScheduleKind::GPipe,
                        "1f1b" => ScheduleKind::OneFOneB,
                        "interleaved-1f1b" => ScheduleKind::InterleavedOneFOneB,
                        other => {
                            return Err(format!(
                                "unknown schedule `{other}`; use `gpipe`, `1f1b` or `interleaved-1f1b`"
                            ));
                        }
                    });
                }
                other => {
                    return Err(format!(
                        "unknown key `{other}`; keys: dp, pp, vpp, microbatches, schedule"
                    ));
                }
            }
        }
        plan.microbatches = microbatches.ok_or("`microbatches` is needed")?;
        plan.kind = kind.unwrap_or(plan.kind);
        plan.validate().map_err(|e| e.to_string())?;
        Ok(Plan(plan))
    }
}

/// A random effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EffectArg {
    pub(crate) name: String,
    pub(crate) spec: EffectSpec,
}

impl FromStr for EffectArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const NAMES: [&str; 9] = [
            "worker",
            "position",
            "step",
            "step-worker",
            "microbatch",
            "residual",
            "worker-spread",
            "congestion",
            "transfer",
        ];
        let (name, value) = text
            .split_once('=')
            .ok_or("an effect is written `microbatch=0.2` or `step=2%:skewed`")?;
        let name = name.trim().replace('_', "-");
        if !NAMES.contains(&name.as_str()) {
            return Err(format!("unknown effect `{name}`; effects: {}", NAMES.join(", ")));
        }
        let (sd, law) = value.split_once(':').unwrap_or((value, "normal"));
        let law = match law.trim() {
            "normal" => EffectLaw::Normal,
            "heavy-tailed" => EffectLaw::HeavyTailed,
            "skewed" => EffectLaw::Skewed,
            other => {
                return Err(format!(
                    "unknown law `{other}`; use `normal`, `heavy-tailed` or `skewed`"
                ));
            }
        };
        Ok(EffectArg { name, spec: EffectSpec { sd_log: share(sd.trim())?, law } })
    }
}

/// A mean duration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DurationArg {
    pub(crate) operation: String,
    pub(crate) mean_s: f64,
}

impl FromStr for DurationArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const NAMES: [&str; 6] = ["forward", "backward", "p2p", "collective", "optimizer", "gc"];
        let (name, value) = text.split_once('=').ok_or("a duration is written `forward=100ms`")?;
        let operation = name.trim().to_owned();
        if !NAMES.contains(&operation.as_str()) {
            return Err(format!("unknown operation `{operation}`; one of {}", NAMES.join(", ")));
        }
        Ok(DurationArg { operation, mean_s: duration(value)? })
    }
}

/// A slow worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlowWorkerArg(pub(crate) SlowWorker);

impl FromStr for SlowWorkerArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut replica, mut stage, mut factor) = (None, None, None);
        for (key, value) in pairs(text)? {
            match key {
                "replica" => replica = Some(integer(key, value)?),
                "stage" => stage = Some(integer(key, value)?),
                "factor" => factor = Some(number(value)?),
                other => {
                    return Err(format!("unknown key `{other}`; keys: replica, stage, factor"));
                }
            }
        }
        match (replica, stage, factor) {
            (Some(replica), Some(stage), Some(factor)) => {
                Ok(SlowWorkerArg(SlowWorker { replica, stage, factor }))
            }
            _ => Err("`replica`, `stage` and `factor` are all needed".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_whole_or_refused() {
        let plan: Plan = "dp=4,pp=2,microbatches=8".parse().unwrap();
        let expected = Schedule { replicas: 4, ..Schedule::new(ScheduleKind::OneFOneB, 2, 8) };
        assert_eq!(plan.0, expected);
        let plan: Plan = "pp=2, vpp=3, microbatches=4, schedule=interleaved-1f1b".parse().unwrap();
        assert_eq!((plan.0.chunks, plan.0.kind), (3, ScheduleKind::InterleavedOneFOneB));
        for wrong in [
            "",
            "dp=4",
            "microbatches=0",
            "microbatches=8,dp=0",
            "microbatches=8,pp=70000",
            "microbatches=8,microbatches=8",
            "microbatches=8,tp=2",
            "microbatches=8,schedule=zigzag",
            "microbatches=8,vpp=2",
            "microbatches=3,pp=2,vpp=2,schedule=interleaved-1f1b",
        ] {
            assert!(wrong.parse::<Plan>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn effects_have_a_size_and_perhaps_a_law() {
        let effect: EffectArg = "step_worker=2%:skewed".parse().unwrap();
        assert_eq!(effect.name, "step-worker");
        assert_eq!(effect.spec, EffectSpec { sd_log: 0.02, law: EffectLaw::Skewed });
        for wrong in ["step", "step=", "step=-1", "pace=0.1", "step=0.1:flat"] {
            assert!(wrong.parse::<EffectArg>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_and_slow_workers_need_all_their_parts() {
        assert_eq!("p2p=2ms".parse::<DurationArg>().unwrap().mean_s, 0.002);
        assert!("p2p=2".parse::<DurationArg>().is_err());
        assert!("sleep=2s".parse::<DurationArg>().is_err());
        let worker = "replica=1,stage=0,factor=1.2".parse::<SlowWorkerArg>().unwrap().0;
        assert_eq!(worker, SlowWorker { replica: 1, stage: 0, factor: 1.2 });
        assert!("replica=1,factor=1.2".parse::<SlowWorkerArg>().is_err());
    }
}
