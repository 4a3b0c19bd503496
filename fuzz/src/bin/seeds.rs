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
    let targets =
        [
            "straggler_parquet", "straggler_csv", "meta_yaml", "native_parquet", "step_log", "speeds",
            "job_file",
        ];
    for target in targets {
        fs::create_dir_all(folder.join(target))?;
    }
    fs::write(folder.join("step_log/seconds"), "step,step_s,note\n1,8.25,x\n2,8.5e0,\n7,9,\n")?;
    fs::write(folder.join("step_log/ms"), "iteration,elapsed_ms\n0,250\n1,251.5\n")?;
    fs::write(
        folder.join("speeds/nodes"),
        "gpu,node,rail,time_ms\na,n0,r0,10.5\nb,n0,r0,11\na,n0,r0,10.25\nc,n1,r1,9e0\n",
    )?;
    fs::write(folder.join("job_file/large"), include_str!("../../../examples/gpt-131072.toml"))?;
    fs::write(
        folder.join("job_file/small"),
        "[model]\npreset = \"llama-3.1-8b\"\n[training]\nseq_len = 4096\nglobal_batch_size = 8\n\
         micro_batch_size = 1\n[parallelism]\ntensor_parallel_degree = 2\nzero_stage = 3\n\
         fsdp = { prefetch = 1 }\n[cluster]\npreset = \"a100-dgx\"\ngpus = 8\n\
         [variability]\nstep_sd = 0.01\nmicrobatch = { sd = 0.1, skew = 1.0 }\n",
    )?;
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
