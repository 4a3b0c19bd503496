//! Who carries the spread of two recorded jobs: shares of the standard deviation and of the penalty.
//!
//! Reads `$PRISM_DATA` (or `../shared/data` beside the repository) and prints a table a trace.

use std::path::PathBuf;

use prism_decide::explain::{ExplainOptions, explain};
use prism_decide::scenario::{Donors, Job, Scenario, apply};
use prism_decide::select::Layout;
use prism_engine::calibrate::CalibrateOptions;
use prism_engine::profile::profile;
use prism_engine::replay::choose_builder;
use prism_io::{ReadOptions, read_op_table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    for (name, heal) in [("AR", true), ("AR", false), ("ST", false)] {
        let file = data.join(format!("straggler/trace-{name}.parquet"));
        let table = read_op_table(&file, &ReadOptions::default())?.table;
        let choice = choose_builder(&table)?;
        let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
        let profile = profile(&table, &choice, &[], &options)?;
        let graph = profile.step_graph()?;
        let layout = Layout {
            gpus_per_worker: table.meta.tp_size * table.meta.dsp_size,
            replicas: graph.replicas(),
            stages: graph.stages(),
            gpus_per_node: 8,
        };
        let mut model = profile.model.clone();
        if heal {
            let job = Job { graph: &graph, model: &model, layout };
            // The worker that was slowed on purpose.
            let scenario: Scenario = "heal dp=0 stage=0".parse()?;
            model = apply(&job, &scenario, &Donors::new())?.model;
        }
        let job = Job { graph: &graph, model: &model, layout };
        let begin = std::time::Instant::now();
        let report = explain(&job, &ExplainOptions::default())?;
        println!(
            "== {name}{}: {:.2} s",
            if heal { ", slow worker healed" } else { "" },
            begin.elapsed().as_secs_f64()
        );
        for e in &model.effects {
            println!("   {} sd {:.4} kept {}", e.kind, e.sd_log, e.kept);
        }
        for b in &report.breakdowns {
            println!("-- by {:?}", b.by);
            for w in &b.statistics {
                println!(
                    "{:?}: without {:.4} with {:.4} whole {:.4} [{:.4} {:.4}], sum alone {:.4}, sum removed {:.4}",
                    w.statistic,
                    w.without_s,
                    w.with_s,
                    w.whole_s.value,
                    w.whole_s.sampling.lower,
                    w.whole_s.sampling.upper,
                    w.sum_alone_s.value,
                    w.sum_removed_s.value
                );
            }
            for p in &b.parts {
                print!("  {:50}", p.name);
                for a in &p.at {
                    print!(
                        " | alone {:.4} removed {:.4} shapley {:.4} ({:.0} %)",
                        a.alone_s.value,
                        a.removed_s.value,
                        a.shapley_s.value,
                        100.0 * a.share.unwrap_or(f64::NAN)
                    );
                }
                println!();
            }
        }
        println!("-- path");
        for k in &report.path.kinds {
            println!(
                "  {} {:?}: {:.4} s p {:.2}",
                k.part.kind, k.part.what, k.time_s.value, k.probability
            );
        }
        for s in &report.path.stages {
            println!("  stage {}: {:.4} s", s.part.stage, s.time_s.value);
        }
        for s in &report.path.slack {
            println!(
                "  slack of dp {} stage {}: {:.4} s",
                s.worker.dp, s.worker.stage, s.slack_s.value
            );
        }
        println!("-- fixes");
        for f in &report.fixes {
            let d = &f.comparison.differences;
            println!(
                "  {:60} mean {:+.4} p95 {:+.4} [{:+.4} {:+.4}]",
                f.what,
                d[0].difference_s.value,
                d[1].difference_s.value,
                d[1].difference_s.sampling.lower,
                d[1].difference_s.sampling.upper
            );
        }
    }
    Ok(())
}
