use prism_job::cost::*;
use prism_job::*;
use prism_stats::least_squares::*;

/// passes per stage: (chunk_local, m, fwd)
fn order(p: usize, v: usize, m: usize, s: usize) -> Vec<(usize, usize, bool)> {
    let total = m * v;
    let pass = |k: usize, f: bool| {
        if v == 1 { return (0, k, f); }
        let (round, within) = (k / (p * v), k % (p * v));
        let c = within / p;
        (if f { c } else { v - 1 - c }, round * p + within % p, f)
    };
    let after = p - 1 - s;
    let warm = if v > 1 { 2 * after + (v - 1) * p } else { after }.min(total);
    let mut o: Vec<_> = (0..warm).map(|k| pass(k, true)).collect();
    for k in warm..total { o.push(pass(k, true)); o.push(pass(k - warm, false)); }
    o.extend((total - warm..total).map(|k| pass(k, false)));
    o
}

pub fn simulate(job: &Job, c: &StepCosts) -> f64 {
    let p = job.plan.pipeline_parallel as usize;
    let v = job.plan.virtual_chunks as usize;
    let m = job.microbatches() as usize;
    let n = p * v;
    let f: Vec<f64> = c.chunks.iter().map(|x| x.forward.seconds()).collect();
    let b: Vec<f64> = c.chunks.iter().map(|x| x.backward_s()).collect();
    let orders: Vec<_> = (0..p).map(|s| order(p, v, m, s)).collect();
    let mut fe = vec![f64::NAN; n * m];
    let mut be = vec![f64::NAN; n * m];
    let mut t = vec![0.0; p];
    let blocking = !job.plan.overlap.p2p;
    // gathers
    let mut gready = vec![0.0; n];
    for s in 0..p {
        let mut at = 0.0;
        for k in 0..v { at += c.gather_s[k * p + s]; gready[k * p + s] = at; }
        if !job.plan.overlap.param_gather { t[s] = at; }
    }
    let mut ptr = vec![0usize; p];
    let mut lastb = vec![0.0f64; n];
    loop {
        let mut progress = false;
        for s in 0..p {
            while ptr[s] < orders[s].len() {
                let (ch, mb, fw) = orders[s][ptr[s]];
                let g = ch * p + s;
                let dep = if fw {
                    if g == 0 { 0.0 } else { fe[(g - 1) * m + mb] + if (g-1)%p != s { c.hop_s[(g - 1) % p] } else {0.0} }
                } else if g == n - 1 { fe[g * m + mb] } else { be[(g + 1) * m + mb] + if (g+1)%p != s { c.hop_s[s] } else {0.0} };
                if dep.is_nan() { break; }
                let mut start = t[s].max(dep);
                if fw && mb == 0 { start = start.max(gready[g]); }
                let end = start + if fw { f[g] } else { b[g] };
                if fw { fe[g * m + mb] = end } else { be[g * m + mb] = end; lastb[g] = lastb[g].max(end); }
                let sends = if fw { g < n - 1 && p > 1 } else { g > 0 && p > 1 };
                t[s] = end + if blocking && sends { if fw { c.hop_s[s] } else { c.hop_s[(s + p - 1) % p] } } else { 0.0 };
                ptr[s] += 1;
                progress = true;
            }
        }
        if !progress { break; }
    }
    let mut end: f64 = 0.0;
    for s in 0..p {
        assert!(ptr[s] == orders[s].len(), "deadlock");
        let mut lane: f64 = 0.0;
        for k in (0..v).rev() {
            let g = k * p + s;
            let ready = if job.plan.overlap.grad_reduce { lastb[g] } else { t[s] };
            lane = lane.max(ready) + c.reduce_s[g];
        }
        let mut x = t[s].max(lane) + c.layernorm_s[s];
        if s == 0 || s == p - 1 { x += c.embedding_s; }
        x += c.optimizer_s[s] + c.grad_norm_s;
        end = end.max(x);
    }
    end + c.step_s
}

fn a100(mem: f64, bw: f64) -> Gpu {
    Gpu { name: "A100".into(), memory_bytes: mem, memory_bandwidth: bw, bf16_flops: 312e12, fp8_flops: None, sms: 108, source: String::new() }
}
fn h100() -> Gpu {
    Gpu { name: "H100".into(), memory_bytes: 80e9, memory_bandwidth: 3.35e12, bf16_flops: 989.4e12, fp8_flops: Some(1978.9e12), sms: 132, source: String::new() }
}
const E0: Efficiency = Efficiency { gemm: 0.8, gemm_fp8: 0.6, gemm_half_k: 100.0, attention: 0.5, memory: 0.8, kernel_s: 3e-6, launch_s: 20e-6, microbatch_host_s: 100e-6, nvlink: 0.8, network: 0.8, collective_s: 20e-6, step_s: 0.01 };
fn cluster(gpu: Gpu, e: Efficiency) -> Cluster {
    let h = gpu.name.starts_with('H');
    Cluster { name: String::new(), gpus: None, gpu, gpus_per_node: 8, nvlink_domain: 8,
        nvlink: Network { bandwidth: if h { 450e9 } else { 300e9 }, latency_s: 1.5e-6, in_network_reduction: h },
        network: Network { bandwidth: if h { 50e9 } else { 25e9 }, latency_s: 5e-6, in_network_reduction: false }, tiers: vec![], efficiency: e }
}
fn quiet() -> Variability {
    Variability { preset: "none".into(), gpu_compute_sd: 0., gpu_memory_sd: 0., laggards: Laggards { share: 0., factor: 1. }, step_sd: 0., step_worker_sd: 0., microbatch: MicrobatchSpread { sd: 0., skew: 0. }, residual_sd: 0., transfer_sd: 0., congestion_sd: 0., burst_probability: 0., burst_factor: 1., expert_imbalance_sd: 0., diurnal_amplitude: 0., hang: Hang { probability: 0., factor: 1. } }
}
fn gpt(h: u32, l: u32, a: u32, vocab: u32) -> Model {
    Model { name: String::new(), hidden_size: h, layers: l, attention: Attention { heads: a, kv_heads: a, head_dim: h / a, kind: AttentionKind::Standard }, mlp: Mlp { intermediate_size: 4 * h, gated: false }, moe: None, vocab_size: vocab, vocab_multiple: 128, tied_embeddings: true, positions: Positions::Learned, bias: true, dropout: true }
}
#[allow(clippy::too_many_arguments)]
fn job(model: Model, seq: u32, gbs: u32, mbs: u32, t: u32, p: u32, v: u32, d: u32, c: Cluster) -> Job {
    Job { name: String::new(), model, training: Training { seq_len: seq, global_batch_size: gbs, micro_batch_size: mbs, sequences: None },
        plan: Plan { data_parallel_shard: d, data_parallel_replicate: 1, tensor_parallel: t, sequence_parallel: false, context_parallel: 1, expert_parallel: 1, pipeline_parallel: p, virtual_chunks: v,
            schedule: if v > 1 { ScheduleName::InterleavedOneFOneB } else { ScheduleName::OneFOneB }, chunk_layers: vec![], zero: ZeroStage::None, fsdp: Fsdp { prefetch: 1, reshard_after_forward: true }, recompute: Recompute::None, precision: Precision::Bf16, grad_reduce_fp32: false, attention_kernel: AttentionKernel::Unfused,
            overlap: Overlap { grad_reduce: false, param_gather: false, p2p: false, tensor_parallel: false } },
        cluster: c, variability: quiet() }
}
fn korthikanti(e: Efficiency) -> Vec<(String, Job, f64)> {
    let mut out = vec![];
    for (name, gbs, mbs, p, v, h, l, a, full, sel) in [("22B", 4, 4, 1, 1, 6144, 48, 64, 1.42, 1.10), ("175B", 64, 1, 8, 3, 12288, 96, 96, 18.13, 13.75), ("530B", 280, 1, 35, 3, 20480, 105, 128, 49.05, 37.83), ("1T", 512, 1, 64, 1, 25600, 128, 160, 94.42, 71.49)] {
        for (mode, t) in [("full", full), ("sel", sel)] {
            let mut j = job(gpt(h, l, a, 51200), 2048, gbs, mbs, 8, p, v, 1, cluster(a100(80e9, 2.039e12), e));
            j.plan.recompute = if mode == "full" { Recompute::Full } else { Recompute::Selective };
            j.plan.sequence_parallel = mode == "sel";
            out.push((format!("{name}-{mode}"), j, t));
        }
    }
    out
}
fn vtrain(e: Efficiency, rec: Recompute) -> Vec<(String, Job, f64)> {
    let text = std::fs::read_to_string("/work/shared/data/vtrain/ground_truth_single.csv").unwrap();
    text.lines().skip(1).map(|line| {
        let f: Vec<f64> = line.split(',').map(|x| x.trim().parse().unwrap()).collect();
        let u = |i: usize| f[i] as u32;
        let mut j = job(gpt(u(3), u(5), u(4), 50257), u(6), u(1), u(2), u(7), u(9), 1, u(8), cluster(a100(40e9, 1.555e12), e));
        j.plan.recompute = rec;
        if j.plan.tensor_parallel == 1 { j.model.vocab_multiple = 1; }
        (line.to_owned(), j, f[10] / 1e3)
    }).collect()
}
const NAMES: [&str; 11] = ["gemm", "gemm_half_k", "attention", "memory", "kernel_s", "launch_s", "microbatch_host_s", "nvlink", "network", "collective_s", "step_s"];
fn eff(p: &[f64]) -> Efficiency {
    Efficiency { gemm: p[0], gemm_fp8: 0.6, gemm_half_k: p[1], attention: p[2], memory: p[3], kernel_s: p[4], launch_s: p[5], microbatch_host_s: p[6], nvlink: p[7], network: p[8], collective_s: p[9], step_s: p[10] }
}
fn sel(e: Efficiency) -> Efficiency { Efficiency { step_s: 0.02, ..e } }
fn mlperf(e: Efficiency) -> Vec<(String, Job, f64)> {
    [("n64", 128, 16, 11.0530), ("n96", 128, 24, 11.0762), ("n512", 16, 128, 1.6090), ("n768", 16, 192, 1.6159), ("n1024", 16, 256, 1.6200), ("n1280", 8, 320, 0.9258)].into_iter().map(|(n, m, d, t)| {
        let mut j = job(gpt(12288, 96, 96, 51200), 2048, m * d, 1, 4, 8, 12, d, cluster(h100(), e));
        let p = &mut j.plan;
        p.sequence_parallel = true; p.zero = ZeroStage::Optimizer; p.precision = Precision::Fp8; p.attention_kernel = AttentionKernel::Flash;
        p.overlap = Overlap { grad_reduce: true, param_gather: true, p2p: true, tensor_parallel: true };
        (n.to_owned(), j, t)
    }).collect()
}
fn llama(e: Efficiency) -> Vec<(String, Job, f64, f64)> {
    let m = Model { name: String::new(), hidden_size: 16384, layers: 126, attention: Attention { heads: 128, kv_heads: 8, head_dim: 128, kind: AttentionKind::Standard }, mlp: Mlp { intermediate_size: 53248, gated: true }, moe: None, vocab_size: 128256, vocab_multiple: 128, tied_embeddings: false, positions: Positions::Rotary, bias: false, dropout: false };
    let v: u32 = std::env::var("VP").map_or(8, |x| x.parse().unwrap());
    [("8192", 8192, 2048, 64, 1, 430.0), ("16384", 8192, 2048, 128, 1, 400.0), ("cp16", 131072, 128, 8, 16, 380.0)].into_iter().map(|(n, s, gbs, d, cp, tf)| {
        let mut j = job(m.clone(), s, gbs, 1, 8, 16, v, d, cluster(h100(), e));
        let n_chunks = 16 * v; 
        let per = 128 / n_chunks;
        let mut cl = vec![per; n_chunks as usize]; cl[0] -= 1; let l = cl.len(); cl[l - 1] -= 1;
        let p = &mut j.plan;
        p.chunk_layers = cl; p.context_parallel = cp; p.schedule = ScheduleName::InterleavedOneFOneB;
        p.sequence_parallel = true; p.zero = ZeroStage::Gradients; p.attention_kernel = AttentionKernel::Flash; p.grad_reduce_fp32 = true;
        p.overlap = Overlap { grad_reduce: true, param_gather: true, p2p: true, tensor_parallel: false };
        let c = costs(&j);
        let g = j.gpus() as f64;
        (n.to_owned(), j, c.model_flops / g / (tf * 1e12), tf)
    }).collect()
}
fn h100_prior() -> Efficiency {
    let g = |k: &str, d: f64| std::env::var(k).map_or(d, |x| x.parse().unwrap());
    Efficiency { gemm: g("GEMM", 0.75), gemm_fp8: g("FP8", 0.6), gemm_half_k: 100.0, attention: g("ATT", 0.5), memory: 0.8, kernel_s: 3e-6, launch_s: g("LAUNCH", 20e-6), microbatch_host_s: 0.0, nvlink: 0.75, network: g("NET", 0.8), collective_s: 30e-6, step_s: g("STEP", 0.05) }
}
fn main() {
    if std::env::args().nth(1).as_deref() == Some("h100") {
        let rows = mlperf(h100_prior());
        for which in [vec![0], vec![0, 2]] {
            let mut pars = vec![Parameter { name: "gemm_fp8".into(), start: 0.5, low: 0.1, high: 1.0 }];
            if which.len() > 1 { pars.push(Parameter { name: "step_s".into(), start: 0.05, low: 1e-4, high: 1.0 }); }
            let with = |j: &Job, p: &[f64]| { let mut j = j.clone(); j.cluster.efficiency.gemm_fp8 = p[0]; if p.len() > 1 { j.cluster.efficiency.step_s = p[1]; } let c = costs(&j); (simulate(&j, &c), c) };
            let fit = least_squares(&pars, |p| which.iter().map(|&i| (with(&rows[i].1, p).0 / rows[i].2).ln()).collect()).unwrap();
            let p: Vec<f64> = fit.parameters.iter().map(|x| x.value).collect();
            println!("{p:?}");
            for (n, j, t) in &rows {
                let (x, c) = with(j, &p);
                let ch = &c.chunks[5];
                println!("{n:6} {t:.4} {x:.4} {:+.2}% | chunk F {:.3} B {:.3} ms (fwd comp {:.3} mem {:.3} tp {:.3} host {:.3}; bwd {:.3} {:.3} {:.3} w {:.3} host {:.3}) last F {:.3} B {:.3} | gather {:.2} reduce {:.2} hop {:.3} opt {:.2} norm {:.3} emb {:.2} ln {:.2} ms", 100.0 * (x / t - 1.0), 1e3*ch.forward.seconds(), 1e3*ch.backward_s(), 1e3*ch.forward.compute_s, 1e3*ch.forward.memory_s, 1e3*ch.forward.tensor_parallel_s, 1e3*ch.forward.host_s, 1e3*ch.backward.compute_s, 1e3*ch.backward.memory_s, 1e3*ch.backward.tensor_parallel_s, 1e3*ch.weight.compute_s, 1e3*ch.backward.host_s, 1e3*c.chunks.last().unwrap().forward.seconds(), 1e3*c.chunks.last().unwrap().backward_s(), 1e3*c.gather_s[5], 1e3*c.reduce_s[5], 1e3*c.hop_s[0], 1e3*c.optimizer_s[1], 1e3*c.grad_norm_s, 1e3*c.embedding_s, 1e3*c.layernorm_s[0]);
            }
        }
        let rows = llama(h100_prior());
        let with = |j: &Job, g: f64| { let mut j = j.clone(); j.cluster.efficiency.gemm = g; let c = costs(&j); (simulate(&j, &c), c) };
        let fit = least_squares(&[Parameter { name: "gemm".into(), start: 0.6, low: 0.1, high: 1.0 }], |p| vec![(with(&rows[0].1, p[0]).0 / rows[0].2).ln()]).unwrap();
        let g = fit.parameters[0].value;
        println!("gemm {g}");
        for (n, j, t, tf) in &rows { let (x, c) = with(j, g); let ch = &c.chunks[5]; println!("{n} {t:.3} {x:.3} tflops {tf} {:.1} MFU {:.1} full-attention {:.1} | F {:.2} B {:.2} att+gemm {:.2} mem {:.2} tp {:.2} cp {:.2} bwd {:.2} {:.2} {:.2} cp {:.2} w {:.2} gather {:.2} reduce {:.2} hop {:.2} m {}", tf * t / x, tf * t / x / 9.894, c.model_flops_full_attention / j.gpus() as f64 / x / 1e12, 1e3*ch.forward.seconds(), 1e3*ch.backward_s(), 1e3*ch.forward.compute_s, 1e3*ch.forward.memory_s, 1e3*ch.forward.tensor_parallel_s, 1e3*ch.forward.context_parallel_s, 1e3*ch.backward.compute_s, 1e3*ch.backward.memory_s, 1e3*ch.backward.tensor_parallel_s, 1e3*ch.backward.context_parallel_s, 1e3*ch.weight.compute_s, 1e3*c.gather_s[5], 1e3*c.reduce_s[5], 1e3*c.hop_s[0], j.microbatches()); }
        return;
    }
    let rec = match std::env::args().nth(1).as_deref() { Some("full") => Recompute::Full, Some("sel") => Recompute::Selective, _ => Recompute::None };
    let vt = vtrain(E0, rec);
    let ko = korthikanti(E0);
    // every 5th row by a hash
    let pick: Vec<bool> = (0..vt.len()).map(|i| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & 0xffff < 0xffff / 5 - 300).collect();
    println!("fitted rows {}", pick.iter().filter(|x| **x).count());
    let weight = (pick.iter().filter(|x| **x).count() as f64 / 8.0).sqrt();
    let lut: Vec<(f64, f64)> = std::fs::read_to_string("/work/shared/data/vtrain/AR_GPU8_1M_1024M_LUT").unwrap().lines().skip(1).map(|l| { let f: Vec<&str> = l.split(',').collect(); (f[0].parse().unwrap(), f[3].parse::<f64>().unwrap() * 1e-9) }).collect();
    let mut size = 1e6; let lut: Vec<(f64, f64)> = lut.into_iter().filter(|x| if x.0 >= size { size = x.0 * 1.5; true } else { false }).collect();
    let lw: f64 = std::env::args().nth(2).map_or(2.0, |x| x.parse().unwrap());
    println!("lut points {}", lut.len());
    let g = |k: &str, d: f64| std::env::var(k).map_or(d, |x| x.parse().unwrap());
    let bounds = [(0.4, 1.0), (1.0, 2000.0), (0.2, 0.9), (0.3, 0.88), (g("KS", 4e-6)*0.999, g("KS", 4e-6)*1.001), (1e-6, 4e-4), (1e-6, 5e-3), (0.3, 1.0), (0.79, 0.81), (1e-6, 3e-4), (0.000099, 0.000101)];
    let g = |k: &str, d: f64| std::env::var(k).map_or(d, |x| x.parse().unwrap());
    let start = [0.8, g("HK", 30.0), 0.5, g("MEM", 0.7), g("KS", 4e-6), 90e-6, 1e-4, 0.75, 0.8, 2e-5, 0.0001];
    let pars: Vec<_> = (0..11).map(|i| Parameter { name: NAMES[i].into(), start: start[i], low: bounds[i].0, high: bounds[i].1 }).collect();
    let with = |j: &Job, e: Efficiency| { let mut j = j.clone(); j.cluster.efficiency = e; let c = costs(&j); simulate(&j, &c) };
    let fit = least_squares(&pars, |p| {
        let e = eff(p);
        let mut r: Vec<f64> = vt.iter().zip(&pick).filter(|x| *x.1).map(|((_, j, t), _)| (with(j, e) / t).ln()).map(|x| x.clamp(-0.3, 0.3)).collect();
        let c = cluster(a100(40e9, 1.555e12), e);
        for &(b, t) in &lut { let x = collective(CollectiveKind::AllReduce, b, Group { ranks: 8, stride: 1 }, &c).seconds; r.push(lw * (x / t).ln()); }
        for (_, j, t) in ko.iter().filter(|k| k.0.starts_with("175B")) { r.push(weight * (with(j, sel(e)) / t).ln()); }
        r
    }).unwrap();
    for p in &fit.parameters { println!("{:20} {:.6} ± {:.6} {}", p.name, p.value, p.standard_error, if p.at_bound { "BOUND" } else { "" }); }
    println!("rms {:.4} iterations {} {}", fit.rms, fit.iterations, fit.converged);
    let v: Vec<f64> = fit.parameters.iter().map(|p| p.value).collect();
    let e = eff(&v);
    for (n, j, t) in &ko { let x = with(j, sel(e)); println!("{n:10} {t:.3} {x:.3} {:+.2}%", 100.0 * (x / t - 1.0)); }
    let mut err: Vec<(f64, f64, f64, &str)> = vt.iter().zip(&pick).filter(|x| !*x.1).map(|((l, j, t), _)| { let x = with(j, e); (x / t - 1.0, x, *t, l.as_str()) }).collect();
    let mape = err.iter().map(|x| x.0.abs()).sum::<f64>() / err.len() as f64;
    let mut a: Vec<f64> = err.iter().map(|x| x.0.abs()).collect(); a.sort_by(f64::total_cmp);
    println!("vtrain held-out MAPE {:.2}% median {:.2}% p90 {:.1}% max {:.1}% n={}", 100.0 * mape, 100.0 * a[a.len() / 2], 100.0 * a[a.len() * 9 / 10], 100.0 * a[a.len() - 1], a.len());
    { let c = cluster(a100(40e9, 1.555e12), e); for &(b, t) in &lut { let x = collective(CollectiveKind::AllReduce, b, Group { ranks: 8, stride: 1 }, &c).seconds; print!("{:.0}M {:+.0}% ", b/1e6, 100.0*(x/t-1.0)); } println!(); }
    { // layer times of the 22B model, published: fwd 7.7 bwd 11.9; SP 7.2 11.8; full 7.7 19.5; selective 7.7 13.2; both 7.2 13.1
        for (n, r, sp) in [("none", Recompute::None, false), ("sp", Recompute::None, true), ("full", Recompute::Full, false), ("sel", Recompute::Selective, false), ("both", Recompute::Selective, true)] {
            let mut j = ko[0].1.clone(); j.cluster.efficiency = e; j.plan.recompute = r; j.plan.sequence_parallel = sp; j.plan.chunk_layers = vec![]; j.plan.virtual_chunks = 4; j.plan.pipeline_parallel = 1; j.model.layers = 48;
            let c = costs(&j); let k = &c.chunks[1];
            let l = f64::from(k.layers);
            println!("{n}: fwd {:.2} bwd {:.2} | fwd comp {:.2} mem {:.2} tp {:.2} | bwd comp {:.2} mem {:.2} tp {:.2} w {:.2} host {:.2}", 1e3*k.forward.seconds()/l, 1e3*k.backward_s()/l, 1e3*k.forward.compute_s/l, 1e3*k.forward.memory_s/l, 1e3*k.forward.tensor_parallel_s/l, 1e3*k.backward.compute_s/l, 1e3*k.backward.memory_s/l, 1e3*k.backward.tensor_parallel_s/l, 1e3*k.weight.compute_s/l, 1e3*(k.forward.host_s+k.backward.host_s)/l);
        }
    }
    { let mut x: Vec<(f64, f64)> = err.iter().map(|e| (e.1, e.2)).collect(); let n = x.len();
      x.sort_by(|a,b| a.1.total_cmp(&b.1)); let mut idx: Vec<usize> = (0..n).collect(); idx.sort_by(|&a,&b| x[a].0.total_cmp(&x[b].0));
      let mut rank = vec![0usize; n]; for (r,&i) in idx.iter().enumerate() { rank[i]=r; }
      let d2: f64 = rank.iter().enumerate().map(|(i,&r)| (i as f64 - r as f64).powi(2)).sum();
      println!("rank corr {:.4}", 1.0 - 6.0*d2/(n as f64*((n*n) as f64-1.0))); }
    // by group
    for (what, col) in [("gpus", 0), ("gbs", 1), ("mbs", 2), ("h", 3), ("L", 5), ("tp", 7), ("dp", 8), ("pp", 9)] {
        let mut g: std::collections::BTreeMap<u32, Vec<f64>> = Default::default();
        for x in &err { let k = x.3.split(',').nth(col).unwrap().trim().parse().unwrap(); g.entry(k).or_default().push(x.0); }
        print!("{what}: ");
        for (k, v) in g { print!("{k}: {:+.1}%/{:.1}% ", 100.0 * v.iter().sum::<f64>() / v.len() as f64, 100.0 * v.iter().map(|x| x.abs()).sum::<f64>() / v.len() as f64); }
        println!();
    }
    { let mut g: std::collections::BTreeMap<String, Vec<f64>> = Default::default();
      for x in &err { let f: Vec<&str> = x.3.split(',').collect(); g.entry(format!("h{} t{} mbs{}", f[3], f[7], f[2])).or_default().push(x.0); }
      for (k, v) in g { print!("{k}: {:+.1}%  ", 100.0 * v.iter().sum::<f64>() / v.len() as f64); if k.ends_with('8') { println!(); } } }
    err.sort_by(|a, b| a.0.total_cmp(&b.0));
    for x in err.iter().take(8).chain(err.iter().rev().take(8)) { println!("{:+.1}% pred {:.3} {:.3} {}", 100.0 * x.0, x.1, x.2, x.3); }
}
