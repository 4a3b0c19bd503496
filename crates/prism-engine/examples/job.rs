//! Predicts a job file: `cargo run --release --example job -- FILE`.
use std::time::Instant;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let read = prism_job::parse_job(&text, &prism_job::ReadOptions::default()).unwrap_or_else(|e| panic!("{e:?}"));
    let t = Instant::now();
    let p = prism_engine::planned::predict_job(&read.job, &Default::default()).unwrap();
    println!("{:.3} s; gpus {}", t.elapsed().as_secs_f64(), read.job.gpus());
    println!("noise-free {:.4}", p.noise_free_s);
    for d in [&p.steps, &p.over_clusters] {
        println!("{}: mean {:.4} sd {:.4} ({})  n={} +{:.2}%", d.over, d.mean_s, d.sd_s, d.method, d.samples, 100.0 * (d.mean_s / p.noise_free_s - 1.0));
        for q in &d.quantiles { println!("  p{} {:?} [{:?}, {:?}] {} {:?}", q.p * 100.0, q.value_s, q.lower_s, q.upper_s, q.extrapolated, q.refused); }
    }
    println!("{:?}\n{:?}", p.clusters, p.warnings);
}
