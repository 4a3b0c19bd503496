use prism_engine::{calibrate::*, predict::*, replay::*};
fn main() {
    let l = prism_io::read_op_table(
        "/work/shared/data/straggler/trace-AR.parquet".as_ref(),
        &prism_io::ReadOptions::default(),
    )
    .unwrap();
    let c = choose_builder(&l.table).unwrap();
    let n: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let t = std::time::Instant::now();
    let mut k = None;
    for _ in 0..n {
        k = Some(
            calibrate(
                &c.chosen,
                &Selection::all(&c.chosen),
                &CalibrateOptions { laws: false, ..Default::default() },
            )
            .unwrap(),
        );
    }
    println!("calibrate {:?}", t.elapsed() / n as u32);
    let k = k.unwrap();
    let rows: Vec<usize> = (0..44).collect();
    let t = std::time::Instant::now();
    for _ in 0..n {
        let _ = resampled(&k.model, &rows, &k.model.windows);
    }
    println!("resampled {:?}", t.elapsed() / n as u32);
    let t = std::time::Instant::now();
    for _ in 0..n {
        let _ = lower(&k.graph, &k.model, &LowerOptions::default()).unwrap();
    }
    println!("lower {:?}", t.elapsed() / n as u32);
    let p = lower(&k.graph, &k.model, &LowerOptions::default()).unwrap();
    let t = std::time::Instant::now();
    for _ in 0..n {
        let _ = p.compile().unwrap();
    }
    println!("compile {:?} nodes {}", t.elapsed() / n as u32, p.len());
    let tape = p.compile().unwrap();
    let t = std::time::Instant::now();
    for _ in 0..n {
        let _ = tape
            .run(&prism_engine::sample::RunOptions {
                samples: 1024,
                threads: 1,
                ..Default::default()
            })
            .unwrap();
    }
    println!("run 1024 1 thread {:?} work {}", t.elapsed() / n as u32, tape.work());
}
