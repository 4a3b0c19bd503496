//! Writes a corpus to start from: `seeds FOLDER` makes FOLDER/TARGET/NAME.

use std::fs;
use std::io::Write;
use std::path::Path;

// Brings the runtime that instrumented code calls.
use libfuzzer_sys as _;
use prism_fuzz::{META_YAML, csv, small};
use prism_io::{OpTable, write_op_table, write_op_table_straggler};

type Done = Result<(), Box<dyn std::error::Error>>;

fn main() -> Done {
    let folder = std::env::args().nth(1).ok_or("usage: seeds FOLDER")?;
    let folder = Path::new(&folder);
    for target in ["straggler_parquet", "straggler_csv", "meta_yaml", "native_parquet"] {
        fs::create_dir_all(folder.join(target))?;
    }
    let single = small();
    let mut double = small();
    double.start_s.iter_mut().for_each(|v| *v += 1e-9 * *v);
    for i in 0..double.len() {
        double.end_s[i] = double.start_s[i] + double.duration_s[i];
    }
    for (name, table) in [("single", &single), ("double", &double)] {
        parquet(folder, name, table)?;
        let text = csv(table);
        let csvs = folder.join("straggler_csv");
        fs::write(csvs.join(name), &text)?;
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gz.write_all(&text)?;
        fs::write(csvs.join(format!("{name}.gz")), gz.finish()?)?;
    }
    let meta = folder.join("meta_yaml");
    fs::write(meta.join("plain"), META_YAML)?;
    fs::write(
        meta.join("rich"),
        b"# a comment\n{trial_name: 'x', run_id: -1, dp_size: 2, pp_size: 0x2, tp_size: 1,\n\
          world_size: 4, other: [1, &a {b: 2.5e3}, *a, null, ~, 2001-01-01]}\n",
    )?;
    Ok(())
}

fn parquet(folder: &Path, name: &str, table: &OpTable) -> Done {
    write_op_table(&folder.join("native_parquet").join(name), table)?;
    let path = folder.join("straggler_parquet").join(name);
    if let Some(meta) = write_op_table_straggler(&path, table)? {
        fs::remove_file(meta)?;
    }
    Ok(())
}
