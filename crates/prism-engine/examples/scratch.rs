use prism_engine::{calibrate::*, predict::*, replay::*};
fn main() {
    for t in ["AR", "ST"] {
        let p = format!("/work/shared/data/straggler/trace-{t}.parquet");
        let t0 = std::time::Instant::now();
        let l = prism_io::read_op_table(p.as_ref(), &prism_io::ReadOptions::default()).unwrap();
        let t1 = std::time::Instant::now();
        let c = choose_builder(&l.table).unwrap();
        let t2 = std::time::Instant::now();
        let k0 = calibrate(
            &c.chosen,
            &Selection::all(&c.chosen),
            &CalibrateOptions { laws: false, ..Default::default() },
        )
        .unwrap();
        let t3 = std::time::Instant::now();
        let k =
            calibrate(&c.chosen, &Selection::all(&c.chosen), &CalibrateOptions::default()).unwrap();
        println!(
            "{t} read {:?} replay {:?} calibrate {:?} laws {:?}",
            t1 - t0,
            t2 - t1,
            t3 - t2,
            t3.elapsed()
        );
        drop(k0);
        let t4 = std::time::Instant::now();
        let o = PredictOptions { repetitions: 0, ..Default::default() };
        let p = predict(&k.graph, &k.model, &o).unwrap();
        let t5 = std::time::Instant::now();
        let o2 = PredictOptions { ..Default::default() };
        let p2 = predict(&k.graph, &k.model, &o2).unwrap();
        let t6 = std::time::Instant::now();
        let o3 = PredictOptions { draws: Draws::Parametric, repetitions: 0, ..Default::default() };
        let p3 = predict(&k.graph, &k.model, &o3).unwrap();
        println!(
            "predict {:?}, with bootstrap {:?} parametric {:?}",
            t5 - t4,
            t6 - t5,
            t6.elapsed()
        );
        for (n, p) in [("emp", &p), ("boot", &p2), ("par", &p3)] {
            println!(
                "{n} mean {:?} sd {:?} nf {}",
                p.report.mean, p.report.sd, p.report.noise_free_s
            );
            for q in &p.report.quantiles {
                println!("  {} {:?}", q.p, q.estimate);
            }
        }
        println!("{:?} {:?} {:?}", p2.report.resampled, p2.report.units, p2.report.warnings);
        println!(
            "mb law {:?}",
            k.model.compute.microbatch_law.as_ref().map(|l| (l.law.clone(), l.ks, l.losers.len()))
        );
        println!(
            "step law {:?}",
            k.model.compute.step_law.as_ref().map(|l| (l.law.family(), l.ks, l.losers.len()))
        );
    }
}
