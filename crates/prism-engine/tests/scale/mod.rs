//! A 1F1B pipeline of many variants, for composed laws and the brute force beside them.

use prism_engine::compose::{HangSites, Tilt};
use prism_engine::sample::{Key, Program, QuantileTable, RunOptions, Scope, Value};
use prism_stats::quantile_table::Jumps;
use prism_stats::{Distribution, Law};

/// Persistent or redrawn speed of a stage.
pub(crate) enum Speed<'a> {
    /// All alike.
    Even,
    /// A lognormal factor per stage, redrawn per replica and sample.
    Redrawn(f64),
    /// The same, tilted; outputs `speed@stage`.
    Tilted(f64, &'a Tilt),
    /// Known, `[stage][replica]`.
    Known(&'a [Vec<f32>]),
}

/// What is drawn for each operation: forward 1, backward 2, transfer 0.05.
pub(crate) struct Pipeline<'a> {
    pub(crate) stages: usize,
    pub(crate) microbatches: usize,
    pub(crate) replicas: u32,
    pub(crate) speed: Speed<'a>,
    /// Probability that a compute operation takes twice as long.
    pub(crate) doubled: f64,
    /// Events that make a compute operation take eleven times as long, at random places.
    pub(crate) hangs: u32,
}

impl Pipeline<'_> {
    /// Sixteen stages, 64 microbatches, one replica, even speed.
    pub(crate) fn new() -> Self {
        Self {
            stages: 16,
            microbatches: 64,
            replicas: 1,
            speed: Speed::Even,
            doubled: 0.0,
            hangs: 0,
        }
    }
}

pub(crate) fn lognormal(sigma: f64) -> Law {
    Law::log_normal(-0.5 * sigma * sigma, sigma).unwrap()
}

pub(crate) fn table(law: &Law) -> QuantileTable {
    QuantileTable::from_quantiles(|p| law.quantile(p), |q| law.quantile_upper(q)).unwrap()
}

/// A law, or twice its draw with a probability.
fn doubled_table(law: &Law, probability: f64) -> QuantileTable {
    if probability == 0.0 {
        return table(law);
    }
    let above = |x: f64| (1.0 - probability) * law.sf(x) + probability * law.sf(0.5 * x);
    let upper = |q: f64| {
        let (mut low, mut high) = (law.quantile(1e-12), 2.0 * law.quantile_upper(1e-13));
        for _ in 0..80 {
            let middle = 0.5 * (low + high);
            if above(middle) > q { low = middle } else { high = middle }
        }
        high
    };
    let jumps = Jumps { lower: None, upper: Some(probability) };
    QuantileTable::with_jumps(|p| upper(1.0 - p), upper, jumps).unwrap()
}

/// Order of a stage's work: (backward, microbatch).
fn order(stage: usize, stages: usize, microbatches: usize) -> Vec<(bool, usize)> {
    let warm = (stages - 1 - stage).min(microbatches);
    let mut out: Vec<_> = (0..warm).map(|m| (false, m)).collect();
    out.extend((warm..microbatches).flat_map(|m| [(false, m), (true, m - warm)]));
    out.extend((microbatches - warm..microbatches).map(|m| (true, m)));
    out
}

struct Builder {
    p: Program,
    scope: Scope,
    compute: prism_engine::sample::TableId,
    transfer: prism_engine::sample::TableId,
    speeds: Vec<Option<Value>>,
    sites: Option<HangSites>,
    microbatches: usize,
    stages: usize,
    slow: Value,
    one: Value,
    means: [Value; 3],
}

impl Builder {
    fn compute(&mut self, s: usize, m: usize, backward: bool, ready: Option<Value>) -> Value {
        let way = usize::from(backward);
        let key = Key::new("compute").with(s as u64).with(m as u64).with(way as u64);
        let noise = self.p.draw(self.compute, key, self.scope);
        let mut scale = self.means[way];
        if let Some(speed) = self.speeds[s] {
            scale = self.p.mul(scale, speed);
        }
        if let Some(sites) = &self.sites {
            let site = ((way * self.stages + s) * self.microbatches + m) as u32;
            if let Some(hits) = sites.hits(&mut self.p, site).unwrap() {
                let longer = self.p.mul_add(hits, self.slow, self.one);
                scale = self.p.mul(scale, longer);
            }
        }
        let duration = self.p.mul(noise, scale);
        ready.map_or(duration, |r| self.p.add(r, duration))
    }

    fn transfer(&mut self, s: usize, m: usize, backward: bool, end: Value) -> Value {
        let way = u64::from(backward);
        let key = Key::new("transfer").with(s as u64).with(m as u64).with(way);
        let noise = self.p.draw(self.transfer, key, self.scope);
        let duration = self.p.mul(noise, self.means[2]);
        self.p.add(end, duration)
    }
}

impl Pipeline<'_> {
    /// The program: `replica`, the time of each replica, and `step`, the largest.
    pub(crate) fn program(&self) -> Program {
        let (stages, microbatches) = (self.stages, self.microbatches);
        let mut p = Program::new(self.replicas);
        let scope = if self.replicas == 1 { Scope::Shared } else { Scope::PerReplica };
        let compute = p.table(doubled_table(&lognormal(0.05), self.doubled));
        let transfer = p.table(table(&lognormal(0.3)));
        let speeds: Vec<Option<Value>> = match &self.speed {
            Speed::Even => vec![None; stages],
            Speed::Redrawn(sd) => {
                let spatial = p.table(table(&lognormal(*sd)));
                let key = |s: usize| Key::new("speed").with(s as u64);
                (0..stages).map(|s| Some(p.draw(spatial, key(s), scope))).collect()
            }
            Speed::Tilted(sd, tilt) => {
                let values = tilt.append(&mut p, "speed", &vec![*sd; stages]).unwrap();
                values.into_iter().map(Some).collect()
            }
            Speed::Known(rows) => {
                rows.iter().map(|row| Some(p.replica_constant(row.clone()))).collect()
            }
        };
        let sites = 2 * (stages * microbatches) as u32;
        let sites =
            (self.hangs > 0).then(|| HangSites::new(&mut p, sites, self.hangs, scope).unwrap());
        let (slow, one) = (p.constant(10.0), p.constant(1.0));
        let means = [p.constant(1.0), p.constant(2.0), p.constant(0.05)];
        let mut b = Builder {
            p,
            scope,
            compute,
            transfer,
            speeds,
            sites,
            microbatches,
            stages,
            slow,
            one,
            means,
        };
        let mut todo: Vec<_> = (0..stages).map(|s| order(s, stages, microbatches)).collect();
        for t in &mut todo {
            t.reverse();
        }
        let mut last: Vec<Option<Value>> = vec![None; stages];
        let mut arrived = vec![vec![[None; 2]; microbatches]; stages];
        // One operation per stage and round keeps the order close to time.
        while todo.iter().any(|t| !t.is_empty()) {
            for s in 0..stages {
                let Some(&(backward, m)) = todo[s].last() else { continue };
                let way = usize::from(backward);
                let source = s == if backward { stages - 1 } else { 0 };
                if !source && arrived[s][m][way].is_none() {
                    continue;
                }
                todo[s].pop();
                let ready = match (last[s], arrived[s][m][way]) {
                    (Some(x), Some(y)) => Some(b.p.max(x, y)),
                    (x, y) => x.or(y),
                };
                let end = b.compute(s, m, backward, ready);
                last[s] = Some(end);
                let next = if backward { s.checked_sub(1) } else { Some(s + 1) };
                if let Some(next) = next.filter(|&n| n < stages) {
                    arrived[next][m][way] = Some(b.transfer(s, m, backward, end));
                }
            }
        }
        let ends: Vec<Value> = last.into_iter().flatten().collect();
        let replica = b.p.max_of(&ends).unwrap();
        b.p.output("replica", replica);
        let step = b.p.max_over_replicas(replica);
        b.p.output("step", step);
        b.p
    }

    /// Samples of an output, ascending.
    pub(crate) fn sorted(&self, output: &str, seed: u64, samples: usize) -> Vec<f64> {
        let mut out = self.times(output, seed, samples);
        out.sort_unstable_by(f64::total_cmp);
        out
    }

    /// Samples of an output, in order.
    pub(crate) fn times(&self, output: &str, seed: u64, samples: usize) -> Vec<f64> {
        let options = RunOptions { seed, samples, ..RunOptions::default() };
        let run = self.program().compile().unwrap().run(&options).unwrap();
        run.get(output).unwrap().row(0).iter().map(|&x| f64::from(x)).collect()
    }
}
