//! Validation on public traces, if they are there.

use std::path::PathBuf;

use prism_engine::replay::{Replayed, choose_builder};
use prism_engine::validate::{PredictorScore, ValidateOptions, ValidateReport, validate};
use prism_io::{ReadOptions, read_op_table};

fn trace(name: &str) -> Option<Replayed> {
    let root = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join("straggler").join(format!("trace-{name}.parquet"));
    if !path.exists() {
        eprintln!("skipped: {} is missing (set PRISM_DATA)", path.display());
        return None;
    }
    let table = read_op_table(&path, &ReadOptions::default()).unwrap().table;
    Some(choose_builder(&table).unwrap().chosen)
}

fn validated(name: &str, exclude: &[i64]) -> Option<ValidateReport> {
    let replayed = trace(name)?;
    let options = ValidateOptions { exclude: exclude.to_vec(), ..ValidateOptions::default() };
    Some(validate(&replayed, &options).unwrap())
}

fn predictor<'a>(report: &'a ValidateReport, name: &str) -> &'a PredictorScore {
    report.splits[0].predictors.iter().find(|p| p.predictor == name).unwrap()
}

/// 30 random half splits of 44 steps; a slow worker rules the step time.
#[test]
fn slow_worker_trace() {
    let Some(report) = validated("AR", &[]) else { return };
    let (ours, ecdf) = (predictor(&report, "prism"), predictor(&report, "ecdf"));
    assert!(ours.p95.mean_absolute.sds <= 0.40, "{ours:?}");
    assert!(ours.p95_of_law.mean_absolute.sds <= 0.40, "{ours:?}");
    assert!(ours.ks <= ecdf.ks + 0.03, "{} {}", ours.ks, ecdf.ks);
    let ratio = ours.sd_ratio.unwrap();
    assert!((0.8..=1.25).contains(&ratio), "{ratio}");
    for replica in report.leave_one_replica_out.iter().filter(|r| r.replica != 0) {
        assert!(!replica.outlier && replica.mean_error_percent.abs() < 1.0, "{replica:?}");
        assert_eq!(replica.inside, Some(true), "{replica:?}");
        assert!((0.7..=1.4).contains(&replica.sd_ratio), "{replica:?}");
    }
    assert!(report.leave_one_replica_out[0].outlier, "the slow replica is no member of the others");
    for part in report.parts.iter().filter(|p| p.part.starts_with("compute@")) {
        assert!(part.error_sds < 0.5 && (0.7..1.4).contains(&part.sd_ratio), "{part:?}");
    }
}

/// The same without and with two steps that a stall made slow.
#[test]
fn long_last_stage_trace() {
    let Some(report) = validated("ST", &[23, 25]) else { return };
    let (ours, ecdf) = (predictor(&report, "prism"), predictor(&report, "ecdf"));
    assert!(ours.p95.mean_absolute.sds <= 0.40, "{ours:?}");
    assert!(ours.p95_of_law.mean_absolute.sds <= 0.40, "{ours:?}");
    assert!(ours.ks <= ecdf.ks + 0.03, "{} {}", ours.ks, ecdf.ks);
    let ratio = ours.sd_ratio.unwrap();
    assert!((0.8..=1.25).contains(&ratio), "{ratio}");
    let Some(report) = validated("ST", &[]) else { return };
    let (ours, ecdf) = (predictor(&report, "prism"), predictor(&report, "ecdf"));
    assert!(ours.p95.mean_absolute.sds <= 1.1 * ecdf.p95.mean_absolute.sds, "{ours:?} {ecdf:?}");
    assert!(ours.ks <= ecdf.ks + 0.03, "{} {}", ours.ks, ecdf.ks);
    let ratio = ours.sd_ratio.unwrap();
    assert!((0.8..=1.25).contains(&ratio), "{ratio}");
}
