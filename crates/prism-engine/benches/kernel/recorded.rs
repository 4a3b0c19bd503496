//! A recorded job, calibrated: what users run.

use std::path::PathBuf;

use prism_engine::calibrate::{CalibrateOptions, Selection, calibrate};
use prism_engine::iid;
use prism_engine::predict::{Draws, LowerOptions, lower};
use prism_engine::replay::choose_builder;
use prism_engine::sample::Program;
use prism_io::{ReadOptions, read_op_table};

/// The straggler trace AR: 4 replicas of 4 stages and 32 microbatches, 2,664 operations a step.
/// `None`, with a word on standard error, where it is not at hand.
pub(crate) fn programs() -> Option<Vec<(&'static str, Program)>> {
    let data = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = data.join("straggler/trace-AR.parquet");
    if !path.exists() {
        eprintln!("{} is missing: no figures of a recorded job; set PRISM_DATA", path.display());
        return None;
    }
    let table = read_op_table(&path, &ReadOptions::default()).expect("a valid trace").table;
    let replayed = choose_builder(&table).expect("a graph").chosen;
    let all = Selection::all(&replayed);
    let job = calibrate(&replayed, &all, &CalibrateOptions::default()).expect("a model");
    let lowered = |draws| {
        let options = LowerOptions { draws, ..LowerOptions::default() };
        lower(&job.graph, &job.model, &options).expect("a program")
    };
    let baseline = iid::calibrate(&replayed, &all, &iid::IidOptions::default()).expect("a model");
    Some(vec![
        ("AR parametric", lowered(Draws::Parametric)),
        ("AR empirical", lowered(Draws::Empirical)),
        ("AR baseline", baseline.lower(&replayed.graph).expect("a program")),
    ])
}
