use prism_engine::{replay::*, validate::*};
fn main() {
    for (t, ex) in [("AR", vec![]), ("ST", vec![]), ("ST", vec![23, 25])] {
        let p = format!("/work/shared/data/straggler/trace-{t}.parquet");
        let l = prism_io::read_op_table(p.as_ref(), &prism_io::ReadOptions::default()).unwrap();
        let c = choose_builder(&l.table).unwrap();
        let t0 = std::time::Instant::now();
        let v = validate(&c.chosen, &ValidateOptions { exclude: ex.clone(), ..Default::default() })
            .unwrap();
        println!("==== {t} {ex:?} {:?} mean {} sd {}", t0.elapsed(), v.mean_step_s, v.sd_step_s);
        for s in &v.splits {
            println!("-- {} x{} held out {}", s.split, s.repetitions, s.held_out);
            for p in &s.predictors {
                println!(
                    "  {:9} mean {:+.3}/{:.3} p50 {:+.3}/{:.3} p95 {:+.3}/{:.3} law95 {:+.3}/{:.3} sdr {:?} ks {:.3} floor {:.3}",
                    p.predictor,
                    p.mean.bias.sds,
                    p.mean.mean_absolute.sds,
                    p.p50.bias.sds,
                    p.p50.mean_absolute.sds,
                    p.p95.bias.sds,
                    p.p95.mean_absolute.sds,
                    p.p95_of_law.bias.sds,
                    p.p95_of_law.mean_absolute.sds,
                    p.sd_ratio,
                    p.ks,
                    p.ks_floor
                );
            }
        }
        for p in &v.parts {
            println!(
                "  {:45} held {:.4} pred {:.4} err {:.3}% sds {:.3} ratio {:.3}",
                p.part,
                p.held_out_mean_s,
                p.predicted_mean_s,
                p.error_percent_of_step,
                p.error_sds,
                p.sd_ratio
            );
        }
        for r in &v.leave_one_replica_out {
            println!("  {r:?}");
        }
    }
}
