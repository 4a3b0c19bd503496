//! `prism fit-cluster`.

use std::path::Path;

use prism_engine::planned::{CollectivePoint, Field, Identified, StepPoint, fit_cluster};
use prism_engine::profile::SourceFile;
use prism_io::{BenchTable, Limits, read_bench_table, write_atomic};
use prism_job::cost::{CollectiveKind, Group};
use prism_job::{Job, ReadOptions, parse_job, to_toml};
use prism_report::{FIT_CLUSTER_SCHEMA, FitClusterOutput, FittedPoint, json_text};

use crate::args::FitClusterArgs;
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input::{self, JobInput};

/// Fits a cluster's efficiencies.
pub(crate) fn run(args: &FitClusterArgs, context: &Context) -> Result<Outcome, CliError> {
    if args.points.is_none() && args.collectives.is_none() {
        return Err(usage(
            "nothing to fit to",
            "give measured steps with `--points` or collectives with `--collectives`",
        ));
    }
    input::not_itself(args.output.as_deref(), &args.job, "-o")?;
    let fields = fields(&args.fit)?;
    let given = input::job_file(&args.job)?;
    let read = given.job(&args.set)?;
    given.warn(&read.warnings, context);
    let mut sources = vec![given.source.clone()];
    let (mut steps, mut collectives, mut places) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(path) = &args.points {
        let table = read_bench_table(path, Limits::default())?;
        sources.push(SourceFile::from(&table.source));
        for (line, point) in step_points(&given, args, &table)? {
            places.push(format!("{} line {line}", table.source.name));
            steps.push(point);
        }
    }
    if let Some(path) = &args.collectives {
        let table = read_bench_table(path, Limits::default())?;
        sources.push(SourceFile::from(&table.source));
        for (line, point) in collective_points(&read.job, &table)? {
            places.push(format!("{} line {line}", table.source.name));
            collectives.push(point);
        }
    }
    let fit = context
        .phase("fit", || fit_cluster(&steps, &collectives, &fields))
        .map_err(|source| CliError::Planned { file: input::name(&args.job), source })?;
    let measured = steps.iter().map(|p| p.seconds).chain(collectives.iter().map(|p| p.seconds));
    let points = places
        .into_iter()
        .zip(measured)
        .zip(&fit.errors)
        .map(|((place, measured_s), error)| FittedPoint { place, measured_s, error: *error })
        .collect();
    let mut job = read.job.clone();
    fit.apply(&mut job.cluster);
    let file = write_job(args.output.as_deref(), &job)?;
    let mut warnings = Vec::new();
    let unknown: Vec<&str> = fit
        .parameters
        .iter()
        .filter(|p| p.identified == Identified::No)
        .map(|p| p.name.as_str())
        .collect();
    if !unknown.is_empty() {
        warnings.push(format!("not told by these measurements: {}", unknown.join(", ")));
    }
    if !fit.converged {
        warnings.push("the search did not converge".to_owned());
    }
    let output = FitClusterOutput {
        schema: FIT_CLUSTER_SCHEMA.to_owned(),
        sources,
        set: args.set.texts(),
        parameters: fit.parameters,
        points,
        rms: fit.rms,
        converged: fit.converged,
        file,
        warnings,
    };
    let mut document = output.document();
    document.hint = args.output.as_deref().map(|f| format!("prism check {}", input::name(f)));
    context.deliver(None, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    context.asides(&document);
    Ok(Outcome::Yes)
}

/// Writes the fitted job, if a file is named.
pub(super) fn write_job(path: Option<&Path>, job: &Job) -> Result<Option<String>, CliError> {
    let Some(path) = path else { return Ok(None) };
    let text = to_toml(job);
    write_atomic(path, |out| out.write_all(text.as_bytes()))?;
    Ok(Some(input::name(path)))
}

fn fields(names: &[String]) -> Result<Vec<Field>, CliError> {
    if names.is_empty() {
        return Ok(Field::all().collect());
    }
    names
        .iter()
        .map(|name| {
            Field::named(name.trim()).ok_or_else(|| {
                let all: Vec<&str> = Field::all().map(Field::name).collect();
                usage(
                    format!("there is no parameter `{name}`"),
                    format!("they are {}", all.join(", ")),
                )
            })
        })
        .collect()
}

/// A column of times and what its unit is in seconds.
fn time_column(table: &BenchTable, names: &[(&str, f64)]) -> Result<(usize, f64), CliError> {
    let found: Vec<(usize, f64)> =
        names.iter().filter_map(|(name, unit)| Some((table.column(name)?, *unit))).collect();
    if let [one] = found[..] {
        return Ok(one);
    }
    let all: Vec<&str> = names.iter().map(|n| n.0).collect();
    let columns = table.columns.join(", ");
    Err(usage(
        format!("`{}` needs exactly one column of times; it has {columns}", table.source.name),
        format!("name it {}", all.join(" or ")),
    ))
}

fn time(table: &BenchTable, line: u64, text: &str, unit: f64) -> Result<f64, CliError> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value * unit),
        _ => Err(usage(
            format!("{}:{line}: `{text}` is no time", table.source.name),
            "times are positive numbers; their unit is in the column's name",
        )),
    }
}

fn step_points(
    given: &JobInput,
    args: &FitClusterArgs,
    table: &BenchTable,
) -> Result<Vec<(u64, StepPoint)>, CliError> {
    let (at, unit) = time_column(table, &[("step_time_s", 1.0), ("step_time_ms", 1e-3)])?;
    let folder = given.path.parent().unwrap_or(Path::new(".")).to_owned();
    let mut points = Vec::with_capacity(table.rows.len());
    for (line, row) in &table.rows {
        let mut set = args.set.set.clone();
        for (column, value) in table.columns.iter().zip(row) {
            if column != &table.columns[at] && !value.is_empty() {
                set.push((column.clone(), value.clone()));
            }
        }
        let options = ReadOptions {
            name: format!("{} with line {line} of {}", input::name(&args.job), table.source.name),
            folder: folder.clone(),
            set,
        };
        let job = parse_job(&given.text, &options)?.job;
        let seconds = time(table, *line, &row[at], unit)?;
        points.push((*line, StepPoint { job, seconds, weight: 1.0 }));
    }
    Ok(points)
}

fn collective_points(
    job: &Job,
    table: &BenchTable,
) -> Result<Vec<(u64, CollectivePoint)>, CliError> {
    let (at, unit) = time_column(table, &[("time_s", 1.0), ("time_ms", 1e-3), ("time_us", 1e-6)])?;
    let column = |name: &str| {
        table.column(name).ok_or_else(|| {
            usage(
                format!("`{}` has no column `{name}`", table.source.name),
                "columns are kind, bytes, ranks, a time, and optionally stride",
            )
        })
    };
    let (kind, bytes, ranks) = (column("kind")?, column("bytes")?, column("ranks")?);
    let stride = table.column("stride");
    let mut points = Vec::with_capacity(table.rows.len());
    for (line, row) in &table.rows {
        let wrong = |what: &str, text: &str| {
            usage(
                format!("{}:{line}: `{text}` is no {what}", table.source.name),
                "kind is all-reduce, all-gather, reduce-scatter or all-to-all; bytes and ranks are \
                 positive numbers",
            )
        };
        let of_kind = match row[kind].replace('_', "-").as_str() {
            "all-reduce" | "allreduce" => CollectiveKind::AllReduce,
            "all-gather" | "allgather" => CollectiveKind::AllGather,
            "reduce-scatter" => CollectiveKind::ReduceScatter,
            "all-to-all" | "alltoall" => CollectiveKind::AllToAll,
            other => return Err(wrong("kind", other)),
        };
        let size = row[bytes].parse::<f64>().ok().filter(|b| b.is_finite() && *b > 0.0);
        let members = row[ranks].parse::<u64>().ok().filter(|r| *r > 1);
        let every = stride.map_or(Some(1), |s| row[s].parse::<u64>().ok().filter(|s| *s > 0));
        points.push((
            *line,
            CollectivePoint {
                cluster: job.cluster.clone(),
                kind: of_kind,
                bytes: size.ok_or_else(|| wrong("number of bytes", &row[bytes]))?,
                group: Group {
                    ranks: members.ok_or_else(|| wrong("number of ranks above 1", &row[ranks]))?,
                    stride: every.ok_or_else(|| wrong("stride", "stride"))?,
                },
                seconds: time(table, *line, &row[at], unit)?,
                weight: 1.0,
            },
        ));
    }
    Ok(points)
}
