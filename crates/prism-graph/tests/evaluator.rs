//! The evaluator against an event-driven simulation that knows no topological order and keeps a
//! copy of the graph for every replica.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use prism_graph::{
    ArrayDurations, GraphError, Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder, StepTimes,
    Timeline, evaluate, step_times,
};
use prism_model::OpKind;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn op(seq: u32) -> Op {
    Op { kind: OpKind::ForwardCompute, stage: 0, chunk: 0, microbatch: 0, seq }
}

/// A random graph: groups are consecutive in a hidden order, dependencies go forward in it.
fn random_graph(rng: &mut ChaCha8Rng) -> StepGraph {
    let replicas = [1, 2, 3, 4, 6][rng.random_range(0..5)];
    let n = rng.random_range(1..40_u32);
    let mut b = StepGraphBuilder::new(1, replicas);
    let mut ids: Vec<OpId> = (0..n).map(|i| b.op(op(i))).collect();
    ids.shuffle(rng);
    let density = rng.random_range(0.0..0.4);
    let mut at = 0;
    while at < ids.len() {
        let size = rng.random_range(1..5).min(ids.len() - at);
        let unit = &ids[at..at + size];
        if rng.random_bool(0.6) {
            let sync = match rng.random_range(0..3) {
                0 => ReplicaSync::None,
                1 => ReplicaSync::All,
                _ => ReplicaSync::Blocks(if replicas % 2 == 0 { 2 } else { 1 }),
            };
            b.group(unit.to_vec(), sync);
        }
        for &after in unit {
            for &before in &ids[..at] {
                if rng.random_bool(density) {
                    b.dep(before, after);
                }
            }
        }
        at += size;
    }
    if rng.random_bool(0.3) {
        for &id in &ids {
            b.hint(id, rng.random_range(0.0..1.0));
        }
    }
    b.build().unwrap()
}

/// Ready times and ends by (operation, replica) of one step.
struct Naive {
    start: Vec<Vec<f64>>,
    end: Vec<Vec<f64>>,
}

#[derive(Clone, Copy)]
enum Happening {
    Ready(usize, usize),
    End(usize, usize),
}

/// What happens when.
#[derive(Default)]
struct Clock {
    happenings: Vec<Happening>,
    /// (bits of the time, index); non-negative floats order as their bits do.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Clock {
    fn at(&mut self, time: f64, what: Happening) {
        self.happenings.push(what);
        self.queue.push(Reverse((time.to_bits(), self.happenings.len() - 1)));
    }

    fn next(&mut self) -> Option<(f64, Happening)> {
        let Reverse((bits, index)) = self.queue.pop()?;
        Some((f64::from_bits(bits), self.happenings[index]))
    }
}

/// Runs one step by a clock. `work` and `delay` are by (operation, replica).
fn simulate(graph: &StepGraph, work: &[Vec<f64>], delay: &[Vec<f64>]) -> Naive {
    let (n, replicas) = (graph.ops().len(), graph.replicas() as usize);
    let mut start = vec![vec![f64::NAN; replicas]; n];
    let mut end = vec![vec![f64::NAN; replicas]; n];
    let mut clock = Clock::default();
    for v in (0..n).filter(|&v| graph.deps(OpId(v as u32)).is_empty()) {
        (0..replicas).for_each(|r| clock.at(delay[v][r], Happening::Ready(v, r)));
    }
    while let Some((now, happening)) = clock.next() {
        match happening {
            Happening::Ready(v, r) => {
                start[v][r] = now;
                let together = waiting_together(graph, v, r);
                if together.iter().all(|&(m, k)| !start[m][k].is_nan()) {
                    for (m, k) in together {
                        clock.at(now + work[m][k], Happening::End(m, k));
                    }
                }
            }
            Happening::End(v, r) => {
                end[v][r] = now;
                for (w, delay) in delay.iter().enumerate() {
                    let deps = graph.deps(OpId(w as u32));
                    let free = deps.iter().all(|d| !end[d.0 as usize][r].is_nan());
                    if deps.contains(&OpId(v as u32)) && free {
                        clock.at(now + delay[r], Happening::Ready(w, r));
                    }
                }
            }
        }
    }
    Naive { start, end }
}

/// Everything that starts together with operation `v` of replica `r`.
fn waiting_together(graph: &StepGraph, v: usize, r: usize) -> Vec<(usize, usize)> {
    let Some(group) = graph.group_of(OpId(v as u32)) else { return vec![(v, r)] };
    let group = &graph.groups()[group.0 as usize];
    let replicas = graph.replicas() as usize;
    let together = match group.sync {
        ReplicaSync::None => r..r + 1,
        ReplicaSync::All => 0..replicas,
        ReplicaSync::Blocks(k) => {
            let first = r / k as usize * k as usize;
            first..first + k as usize
        }
    };
    together.flat_map(|k| group.members.iter().map(move |m| (m.0 as usize, k))).collect()
}

fn lanes(flat: &[f64], steps: usize, step: usize, replicas: usize) -> Vec<Vec<f64>> {
    flat.chunks(steps * replicas).map(|op| op[step * replicas..][..replicas].to_vec()).collect()
}

#[test]
fn random_graphs_evaluate_as_the_clock_says() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut grouped = 0;
    for _ in 0..400 {
        let graph = random_graph(&mut rng);
        let (replicas, steps) = (graph.replicas() as usize, rng.random_range(1..4));
        let size = graph.ops().len() * steps * replicas;
        let work: Vec<f64> = (0..size).map(|_| rng.random_range(0.0..2.0)).collect();
        let delay: Vec<f64> = (0..size).map(|_| rng.random_range(0.0..0.5)).collect();
        let timeline = evaluate(&graph, steps, &work, Some(&delay)).unwrap();
        let times = timeline.step_times(&graph);
        for (step, &time) in times.iter().enumerate() {
            let w = lanes(&work, steps, step, replicas);
            let d = lanes(&delay, steps, step, replicas);
            let naive = simulate(&graph, &w, &d);
            compare(&graph, &timeline, &naive, step);
            let last = graph
                .sinks()
                .iter()
                .flat_map(|s| naive.end[s.0 as usize].iter().copied())
                .fold(0.0, f64::max);
            assert_eq!(time, last);
        }
        grouped += graph.groups().iter().filter(|g| g.members.len() > 1).count();
    }
    assert!(grouped > 500, "only {grouped} groups were tried");
}

/// Both use the same sums and maxima, so the numbers are equal to the last bit.
fn compare(graph: &StepGraph, timeline: &Timeline, naive: &Naive, step: usize) {
    let replicas = graph.replicas() as usize;
    for (id, op) in graph.iter() {
        for r in 0..replicas {
            let at = step * replicas + r;
            assert_eq!(timeline.start(id)[at], naive.start[id.0 as usize][r], "start of {op}");
            assert_eq!(timeline.end(id)[at], naive.end[id.0 as usize][r], "end of {op}");
        }
    }
}

#[test]
fn step_times_alone_have_the_bits_of_the_timeline() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for _ in 0..200 {
        let graph = random_graph(&mut rng);
        let (replicas, steps) = (graph.replicas() as usize, rng.random_range(1..70));
        let size = graph.ops().len() * steps * replicas;
        // Clock errors make recorded work and delays negative.
        let work: Vec<f64> = (0..size).map(|_| rng.random_range(-0.1..2.0)).collect();
        let delay: Vec<f64> = (0..size).map(|_| rng.random_range(-0.1..0.5)).collect();
        for delay in [None, Some(delay.as_slice())] {
            let expected = evaluate(&graph, steps, &work, delay).unwrap().step_times(&graph);
            let durations = ArrayDurations::new(&graph, steps, &work, delay).unwrap();
            assert_eq!(step_times(&graph, steps, &durations), expected);
            let mut evaluator = StepTimes::new(&graph);
            let mut pieces = Vec::new();
            let cut = rng.random_range(0..=steps);
            evaluator.append(0..cut, &durations, &mut pieces);
            evaluator.append(cut..steps, &durations, &mut pieces);
            assert_eq!(pieces, expected);
        }
    }
}

#[test]
fn arrays_of_the_wrong_length_are_refused() {
    let graph = random_graph(&mut ChaCha8Rng::seed_from_u64(1));
    let right = graph.ops().len() * 2 * graph.replicas() as usize;
    let error = evaluate(&graph, 2, &vec![0.0; right - 1], None).unwrap_err();
    assert_eq!(error, GraphError::Shape { what: "work", got: right - 1, expected: right });
    let error = evaluate(&graph, 2, &vec![0.0; right], Some(&[])).unwrap_err();
    assert_eq!(error, GraphError::Shape { what: "launch_delay", got: 0, expected: right });
    let work = vec![0.0; right + 1];
    let error = ArrayDurations::new(&graph, 2, &work, None).unwrap_err();
    assert_eq!(error, GraphError::Shape { what: "work", got: right + 1, expected: right });
}
