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
    let logs = [
        (
            "megatron",
            " iteration        1/     100 | consumed samples:  4 | elapsed time per iteration (ms): 250.5 | lm loss: 1.0E+01 |\n \
             validation loss at iteration 1 | lm loss value: 2.0 |\n [2025-01-02 03:04:05] iteration        2/     100 | \
             elapsed time per iteration (ms): 251.0 |\n",
        ),
        (
            "mllog",
            ":::MLLOG {\"time_ms\": 1000, \"key\": \"tracked_stats\", \"value\": {\"train_step_time\": 1.5}, \"metadata\": \
             {\"step\": 8}}\n:::MLLOG {\"time_ms\": 2600, \"key\": \"eval_start\", \"value\": null, \"metadata\": {}}\n",
        ),
        (
            "nemo",
            "Training epoch 0, iteration 9/99 | lr: 1e-5 | global_step: 9 | train_step_timing in s: 44.07 | \
             consumed_samples: 80\nEpoch 0: :   1%|  | 10/1000 [00:10<1:00, global_step=9.000, train_step_timing in s=11.2]\r",
        ),
        (
            "torchtitan",
            "[titan] 2025-01-02 03:04:05,678 - root - INFO - step: 10  loss: 8.0  memory: 1.00GiB(1.0%)  tps: 1,234  mfu: \
             12.3%\n[titan] 2025-01-02 03:04:15,678 - root - INFO - step: 20  loss: 7.0  tps: 1,300\n",
        ),
    ];
    for (name, text) in logs {
        fs::write(folder.join("step_log").join(name), text)?;
    }
    fs::write(folder.join("job_file/run"), include_str!("../../../examples/run.toml"))?;
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
