//! Which plans there are.

use prism_job::{Job, Plan, Recompute, ScheduleName, ZeroStage};

use super::SearchError;

/// Tokens of a sequence from which context parallelism is tried unasked.
const LONG: u32 = 16_384;
/// Most context-parallel ranks that are tried unasked.
const MOST_CONTEXT: u32 = 16;
/// Most chunks a stage that are tried unasked.
const MOST_CHUNKS: u32 = 12;

/// Values that each part of a plan may take. The data-parallel degree is what is left of the GPUs;
/// sequence parallelism is on wherever there are tensor-parallel ranks; overlap, precision, kernels,
/// prefetching and replicated groups are the job's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchSpace {
    /// Tensor-parallel degrees.
    pub tensor_parallel: Vec<u32>,
    /// Pipeline stages.
    pub pipeline_parallel: Vec<u32>,
    /// Context-parallel degrees.
    pub context_parallel: Vec<u32>,
    /// Expert-parallel degrees.
    pub expert_parallel: Vec<u32>,
    /// Sequences of a microbatch.
    pub micro_batch: Vec<u32>,
    /// Chunks a stage under interleaving, beyond 1.
    pub virtual_chunks: Vec<u32>,
    /// Schedules; one stage always runs 1F1B.
    pub schedules: Vec<ScheduleName>,
    /// Recomputation.
    pub recompute: Vec<Recompute>,
    /// What is sharded; parameters only without a pipeline.
    pub zero: Vec<ZeroStage>,
    /// Whether layers may be split unevenly where they do not divide into the chunks.
    pub uneven: bool,
}

impl SearchSpace {
    /// The usual range for a job.
    ///
    /// | part | values |
    /// |---|---|
    /// | tensor parallel | powers of two inside the `NVLink` domain |
    /// | pipeline stages | divisors of the layers |
    /// | context parallel | 1; powers of two up to 16 from 16,384 tokens a sequence on |
    /// | expert parallel | divisors of the experts |
    /// | micro batch | 1, 2, 4, 8 |
    /// | chunks a stage | 2 to 12, those that divide a stage's layers |
    /// | schedules | 1F1B, interleaved 1F1B, and the job's own |
    /// | recomputation | none, selective, full |
    /// | `ZeRO` | 0, 1, and 3 where there is one stage |
    pub fn of(job: &Job) -> SearchSpace {
        let powers = |most: u32| (0..31).map(|k| 1_u32 << k).take_while(|&n| n <= most).collect();
        let long = job.training.seq_len >= LONG;
        let mut schedules = vec![ScheduleName::OneFOneB, ScheduleName::InterleavedOneFOneB];
        if !schedules.contains(&job.plan.schedule) {
            schedules.push(job.plan.schedule);
        }
        SearchSpace {
            tensor_parallel: powers(job.cluster.nvlink_domain.max(1)),
            pipeline_parallel: divisors(job.model.layers),
            context_parallel: powers(if long { MOST_CONTEXT } else { 1 }),
            expert_parallel: job.model.moe.map_or_else(|| vec![1], |m| divisors(m.experts)),
            micro_batch: vec![1, 2, 4, 8],
            virtual_chunks: (2..=MOST_CHUNKS).collect(),
            schedules,
            recompute: vec![Recompute::None, Recompute::Selective, Recompute::Full],
            zero: vec![ZeroStage::None, ZeroStage::Optimizer, ZeroStage::Parameters],
            uneven: false,
        }
    }

    /// All plans that use exactly `gpus` GPUs, possible or not, in a fixed order.
    pub(super) fn plans(&self, job: &Job, gpus: u64) -> Vec<Candidate> {
        let mut out = Vec::new();
        for &tp in &self.tensor_parallel {
            for &pp in &self.pipeline_parallel {
                for &cp in &self.context_parallel {
                    let replicate = job.plan.data_parallel_replicate.max(1);
                    let rest = [tp, pp, cp, replicate]
                        .into_iter()
                        .fold(1_u64, |all, n| all.saturating_mul(u64::from(n)));
                    if rest == 0 || !gpus.is_multiple_of(rest) {
                        continue;
                    }
                    let Ok(shard) = u32::try_from(gpus / rest) else { continue };
                    self.of_shape(job, gpus, [tp, pp, cp, shard], &mut out);
                }
            }
        }
        out
    }

    fn of_shape(
        &self,
        job: &Job,
        gpus: u64,
        [tp, pp, cp, shard]: [u32; 4],
        out: &mut Vec<Candidate>,
    ) {
        let ranks = u64::from(shard) * u64::from(cp);
        for (schedule, chunks) in self.orders(job, pp) {
            for &ep in &self.expert_parallel {
                for &zero in &self.zero {
                    // Sharding over one rank is no sharding.
                    let alone = ranks == 1 && zero != ZeroStage::None;
                    if alone || (zero == ZeroStage::Parameters && pp > 1) {
                        continue;
                    }
                    for &recompute in &self.recompute {
                        for &micro_batch in &self.micro_batch {
                            let plan = Plan {
                                data_parallel_shard: shard,
                                tensor_parallel: tp,
                                sequence_parallel: tp > 1,
                                context_parallel: cp,
                                expert_parallel: ep,
                                pipeline_parallel: pp,
                                virtual_chunks: chunks,
                                schedule,
                                chunk_layers: self.layers(job, pp, chunks),
                                zero,
                                recompute,
                                ..job.plan.clone()
                            };
                            out.push(Candidate { plan, micro_batch, gpus });
                        }
                    }
                }
            }
        }
    }

    /// Schedules and chunks a stage that make sense for a number of stages.
    fn orders(&self, job: &Job, pp: u32) -> Vec<(ScheduleName, u32)> {
        if pp <= 1 {
            return vec![(ScheduleName::OneFOneB, 1)];
        }
        let mut out = Vec::new();
        for &schedule in &self.schedules {
            match schedule {
                ScheduleName::InterleavedOneFOneB => {
                    let fits = |v: u32| {
                        let chunks = u64::from(pp) * u64::from(v);
                        let layers = u64::from(job.model.layers);
                        v > 1 && chunks <= layers && (self.uneven || layers % chunks == 0)
                    };
                    let chunks = self.virtual_chunks.iter().filter(|&&v| fits(v));
                    out.extend(chunks.map(|&v| (schedule, v)));
                }
                ScheduleName::ZbV | ScheduleName::DualPipe => out.push((schedule, 2)),
                _ => out.push((schedule, 1)),
            }
        }
        out
    }

    /// Layers of the chunks: the job's own list where it has as many; even; or, if asked, as even as
    /// can be, the ends of the model lighter, since they hold embedding and output layer.
    fn layers(&self, job: &Job, pp: u32, chunks: u32) -> Vec<u32> {
        let n = u64::from(pp) * u64::from(chunks);
        let layers = job.model.layers;
        let own = &job.plan;
        if own.chunk_layers.len() as u64 == n && own.pipeline_parallel == pp {
            return own.chunk_layers.clone();
        }
        let n = n as u32;
        if !self.uneven || n == 0 || n > layers || layers.is_multiple_of(n) {
            return Vec::new();
        }
        let (each, more) = (layers / n, layers % n);
        let from = (n - more) / 2;
        (0..n).map(|c| each + u32::from((from..from + more).contains(&c))).collect()
    }

    pub(super) fn check(&self) -> Result<(), SearchError> {
        let lists = [
            ("tensor-parallel degrees", &self.tensor_parallel),
            ("pipeline stages", &self.pipeline_parallel),
            ("context-parallel degrees", &self.context_parallel),
            ("expert-parallel degrees", &self.expert_parallel),
            ("micro batches", &self.micro_batch),
        ];
        for (what, list) in lists {
            if list.is_empty() || list.contains(&0) {
                let rule = "one or more positive numbers";
                return Err(SearchError::Setting { what, rule, got: format!("{list:?}") });
            }
        }
        let empty = [
            ("schedules", self.schedules.is_empty()),
            ("recomputation modes", self.recompute.is_empty()),
            ("ZeRO stages", self.zero.is_empty()),
        ];
        match empty.into_iter().find(|e| e.1) {
            None => Ok(()),
            Some((what, _)) => {
                let got = "none".to_owned();
                Err(SearchError::Setting { what, rule: "at least one", got })
            }
        }
    }
}

fn divisors(n: u32) -> Vec<u32> {
    (1..=n).filter(|&d| n.is_multiple_of(d)).collect()
}

/// A plan with its micro batch and GPUs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub plan: Plan,
    pub micro_batch: u32,
    pub gpus: u64,
}

impl Candidate {
    /// The job under this plan.
    pub(super) fn job(&self, base: &Job) -> Job {
        let mut job = base.clone();
        job.plan = self.plan.clone();
        job.training.micro_batch_size = self.micro_batch;
        job.cluster.gpus = Some(self.gpus);
        job
    }
}

/// A plan in one line: degrees, schedule, sharding, recomputation, micro batch.
pub(super) fn plan_line(plan: &Plan, micro_batch: u32) -> String {
    let recompute = match plan.recompute {
        Recompute::None => "none",
        Recompute::Selective => "selective",
        Recompute::Full => "full",
    };
    format!("{plan}, ZeRO {}, recompute {recompute}, micro batch {micro_batch}", plan.zero as u8)
}
