//! Schedules stated a second time, each as its source states it.

use prism_graph::{PassKind, PlannedPass, PlannedShape};
use prism_job::ScheduleName;

use crate::simulator::Entry;

/// Ways of the microbatches: (stage, chunk), first piece to last.
pub(crate) fn paths(shape: &PlannedShape) -> Vec<Vec<(u16, u16)>> {
    let p = shape.stages;
    let down = |chunk| (0..p).map(move |stage| (stage, chunk));
    let up = |chunk| (0..p).rev().map(move |stage| (stage, chunk));
    match shape.schedule {
        ScheduleName::ZbV => vec![down(0).chain(up(1)).collect()],
        ScheduleName::DualPipe => vec![down(0).collect(), up(1).collect()],
        _ => vec![(0..shape.chunks).flat_map(down).collect()],
    }
}

/// The order that the shape publishes.
pub(crate) fn published(shape: &PlannedShape, stage: u16) -> Vec<Entry> {
    let mut blocks = 0;
    let entry = |pass: PlannedPass| {
        blocks += u32::from(pass.paired);
        let what = match pass.kind {
            PassKind::Forward => 'F',
            PassKind::Backward => 'B',
            PassKind::BackwardInput => 'I',
            PassKind::BackwardWeight => 'W',
        };
        (what, pass.chunk, pass.microbatch, pass.paired && blocks % 2 == 1)
    };
    shape.passes(stage).unwrap().into_iter().map(entry).collect()
}

/// The orders of all stages, stated independently.
pub(crate) fn orders(shape: &PlannedShape) -> Vec<Vec<Entry>> {
    match shape.schedule {
        ScheduleName::GPipe => (0..shape.stages).map(|_| gpipe(shape.microbatches)).collect(),
        ScheduleName::OneFOneB | ScheduleName::InterleavedOneFOneB => {
            (0..shape.stages).map(|stage| megatron(shape, stage)).collect()
        }
        ScheduleName::ZbH1 => zb_h1(u32::from(shape.stages), shape.microbatches),
        // Its paper gives a picture and a search: the order is checked by what it must achieve.
        ScheduleName::ZbV => (0..shape.stages).map(|stage| published(shape, stage)).collect(),
        _ => (0..shape.stages).map(|rank| dual_pipe(shape, rank)).collect(),
    }
}

fn gpipe(m: u32) -> Vec<Entry> {
    let all = |what| (0..m).map(move |k| (what, 0, k, false));
    all('F').chain(all('B')).collect()
}

/// Megatron-LM's `get_pp_rank_microbatches` and `get_schedule_table`: the k-th forward and the k-th
/// backward run without regard to each other, and the counts of the three phases.
fn megatron(shape: &PlannedShape, rank: u16) -> Vec<Entry> {
    let (p, v, m) = (u32::from(shape.stages), u32::from(shape.chunks), shape.microbatches);
    // `microbatch_group_size_per_vp_stage`: the smallest that Megatron allows.
    let legal = |size: u32| m.is_multiple_of(size) || m % size >= p;
    let size = if v == 1 { m } else { (p..=m).find(|&size| legal(size)).unwrap() };
    let mut table = Vec::new();
    let mut start = 0;
    while start < m {
        let count = size.min(m - start);
        for k in 0..v * count {
            table.push((k / count, start + k % count));
        }
        start += count;
    }
    let total = m * v;
    let warm_up = if v == 1 {
        p - u32::from(rank) - 1
    } else {
        (p - u32::from(rank) - 1) * 2 + (v - 1) * size
    };
    let warm_up = warm_up.min(total);
    let f = |k: u32| {
        let (chunk, mb) = table[k as usize];
        ('F', chunk as u16, mb, false)
    };
    let b = |k: u32| {
        let (chunk, mb) = table[k as usize];
        ('B', (v - 1 - chunk) as u16, mb, false)
    };
    let mut order: Vec<Entry> = (0..warm_up).map(f).collect();
    order.extend((0..total - warm_up).flat_map(|k| [f(k + warm_up), b(k)]));
    order.extend((total - warm_up..total).map(b));
    order
}

/// ZB-H1 found rather than stated: with passes of equal time every stage takes, whenever it is free,
/// a forward before a backward's input part before a weights' part, and never stores more than p
/// microbatches nor runs more forwards ahead of its input parts than 1F1B does.
fn zb_h1(p: u32, m: u32) -> Vec<Vec<Entry>> {
    let n = p as usize;
    let mut orders: Vec<Vec<Entry>> = vec![Vec::new(); n];
    // Passes done by the end of the last tick: forwards, input parts, weights' parts.
    let mut done = vec![[0_u32; 3]; n];
    while done.iter().any(|d| d[2] < m) {
        let before = done.clone();
        for s in 0..n {
            let [f, i, w] = before[s];
            let forward_in = if s == 0 { m } else { before[s - 1][0] };
            let gradient_in = if s + 1 == n { f } else { before[s + 1][1].min(f) };
            let ahead = p - s as u32;
            if f < forward_in && f < m && f - w < p && f - i < ahead {
                orders[s].push(('F', 0, f, false));
                done[s][0] += 1;
            } else if i < gradient_in {
                orders[s].push(('I', 0, i, false));
                done[s][1] += 1;
            } else if w < i {
                orders[s].push(('W', 0, w, false));
                done[s][2] += 1;
            }
        }
    }
    orders
}

/// The eight steps of the `DualPipe` code, in its own terms: phases that mean opposite directions in
/// the two halves, and a queue of weights' parts.
fn dual_pipe(shape: &PlannedShape, rank: u16) -> Vec<Entry> {
    let ranks = u32::from(shape.stages);
    let rank = u32::from(rank);
    let second_half = u32::from(rank >= ranks / 2);
    let half_ranks = ranks / 2;
    let half_rank = rank.min(ranks - 1 - rank);
    let half_chunks = shape.microbatches / 2;
    let middle = rank == ranks / 2 - 1 || rank == ranks / 2;
    let (mut out, mut queue) = (Vec::<Entry>::new(), Vec::new());
    let (mut f_id, mut b_id) = ([0_u32; 2], [0_u32; 2]);
    let mut run = |script: &str, queue: &mut Vec<(u16, u32)>| {
        let mut paired = false;
        let mut letters = script.chars();
        while let Some(what) = letters.next() {
            if what == '&' {
                paired = true;
                continue;
            }
            if what == 'W' {
                let (chunk, mb) = queue.remove(0);
                out.push(('W', chunk, mb, false));
                continue;
            }
            let phase = letters.next().unwrap().to_digit(10).unwrap() ^ second_half;
            let ids = if what == 'F' { &mut f_id } else { &mut b_id };
            let id = &mut ids[phase as usize];
            let mb = 2 * *id + phase;
            *id += 1;
            out.push((what, phase as u16, mb, paired));
            paired = false;
            if what == 'I' {
                queue.push((phase as u16, mb));
            }
        }
    };
    let mut repeat = |n: u32, script: &str| (0..n).for_each(|_| run(script, &mut queue));
    repeat((half_ranks - half_rank - 1) * 2, "F0");
    repeat(half_rank + 1, "F0F1");
    repeat(half_ranks - half_rank - 1, "I1WF1");
    for i in 0..=half_chunks - ranks + half_rank {
        repeat(1, if i == 0 && middle { "F0B1&F1B0" } else { "&F0B1&F1B0" });
    }
    repeat(half_ranks - half_rank - 1, "B1&F1B0");
    let step_6 = half_rank + 1;
    let mut zero_bubble = false;
    for i in 0..step_6 {
        zero_bubble |= i == step_6 / 2 && half_rank % 2 == 1;
        repeat(1, if zero_bubble { "I1" } else { "B1" });
        zero_bubble |= i == step_6 / 2 && half_rank.is_multiple_of(2);
        repeat(1, if zero_bubble { "I0" } else { "B0" });
    }
    repeat(half_ranks - half_rank - 1, "WI0");
    repeat(half_rank + 1, "W");
    out
}
