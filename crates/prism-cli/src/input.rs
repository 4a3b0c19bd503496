//! Traces, profiles and job files, told apart by content.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use prism_engine::profile::{Profile, SourceFile};
use prism_engine::replay::{Choice, choose_builder};
use prism_io::{
    Limits, Loaded, ReadOptions, looks_like_step_log, meta_candidates, read_op_table,
    read_op_table_bytes, sha256_hex,
};
use prism_job::{JobFileError, ReadJob, ReadOptions as JobOptions, Violation, parse_job};

use crate::args::{SetArgs, TraceArgs};
use crate::context::Context;
use crate::error::{CliError, usage};

/// Bytes of a file that show what it is.
const HEAD: u64 = 1 << 16;
/// Larger files are no logs of step times.
const LOG_LIMIT: u64 = 1 << 30;

/// What a file turned out to be.
pub(crate) enum Input {
    Trace(Box<Loaded>),
    Profile(Box<Profile>, SourceFile),
    Job(JobInput),
}

/// A job file's text.
pub(crate) struct JobInput {
    pub(crate) text: String,
    pub(crate) source: SourceFile,
    pub(crate) path: PathBuf,
}

impl JobInput {
    /// The file's name in messages about places in it.
    fn place(&self) -> String {
        if self.path.as_os_str() == "-" { "<stdin>".to_owned() } else { name(&self.path) }
    }

    /// A warning with its place.
    pub(crate) fn in_words(&self, warning: &Violation) -> String {
        warning.render(&self.place(), &self.text)
    }

    /// Shows warnings at their place in the text.
    pub(crate) fn warn(&self, warnings: &[Violation], context: &Context) {
        context.printer.job_warnings(&self.place(), &self.text, warnings);
    }

    /// Reads the job with keys replaced.
    pub(crate) fn job(&self, set: &SetArgs) -> Result<ReadJob, CliError> {
        let options = JobOptions {
            name: self.place(),
            folder: self.path.parent().map(Path::to_owned).unwrap_or_default(),
            set: set.set.clone(),
        };
        Ok(parse_job(&self.text, &options)?)
    }
}

/// A file's name in messages.
pub(crate) fn name(path: &Path) -> String {
    path.display().to_string()
}

/// Reads a trace.
pub(crate) fn trace(path: &Path, args: &TraceArgs, context: &Context) -> Result<Loaded, CliError> {
    let loaded = context.phase("read", || read_op_table(path, &options(args)))?;
    reader_warnings(&loaded, context);
    Ok(loaded)
}

/// Builds both graphs of a trace and takes the one that replays it best.
pub(crate) fn replayed(
    path: &Path,
    loaded: &Loaded,
    context: &Context,
) -> Result<Choice, CliError> {
    context
        .phase("replay", || choose_builder(&loaded.table))
        .map_err(|source| CliError::Graph { file: name(path), source })
}

/// Whether a file is a log of step times, as opposed to a trace or a profile. Standard input is not
/// looked at.
pub(crate) fn is_step_log(path: &Path) -> bool {
    let head = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(LOG_LIMIT).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    path.is_file() && head().is_ok_and(|bytes| looks_like_step_log(&bytes, Limits::default()))
}

/// Reads a job file.
pub(crate) fn job_file(path: &Path) -> Result<JobInput, CliError> {
    let bytes =
        slurp(path).map_err(|source| JobFileError::Read { path: path.to_owned(), source })?;
    job_input(path, bytes)
}

fn job_input(path: &Path, bytes: Vec<u8>) -> Result<JobInput, CliError> {
    let source =
        SourceFile { name: name(path), sha256: sha256_hex(&bytes), bytes: bytes.len() as u64 };
    let text = String::from_utf8(bytes).map_err(|e| {
        let source = io::Error::new(io::ErrorKind::InvalidData, e);
        JobFileError::Read { path: path.to_owned(), source }
    })?;
    Ok(JobInput { text, source, path: path.to_owned() })
}

/// Refuses to write a job over the file it was read from.
pub(crate) fn not_itself(output: Option<&Path>, job: &Path, flag: &str) -> Result<(), CliError> {
    let Some(output) = output else { return Ok(()) };
    let same = match (output.canonicalize(), job.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    };
    if !same {
        return Ok(());
    }
    Err(usage(
        format!("`{flag} {}` is the job file itself", name(output)),
        "name another file; yours may have comments that would be lost",
    ))
}

/// Refuses to write a result over one of the files it is made of.
pub(crate) fn not_an_input(output: Option<&Path>, inputs: &[&Path]) -> Result<(), CliError> {
    let Some(output) = output else { return Ok(()) };
    let Ok(target) = output.canonicalize() else { return Ok(()) };
    if inputs.iter().all(|i| i.canonicalize().ok().as_ref() != Some(&target)) {
        return Ok(());
    }
    Err(usage(
        format!("`-o {}` is one of the files that are read", name(output)),
        "name another file; that one would be lost",
    ))
}

/// Whether a file is a job file: by its name, or by its first lines.
fn is_job(path: &Path, head: &[u8]) -> bool {
    const SECTIONS: [&str; 5] = ["model", "training", "parallelism", "cluster", "variability"];
    let of_job = |line: &str| match line.trim().strip_prefix('[') {
        Some(rest) => SECTIONS.iter().any(|s| {
            rest.trim_start_matches('[')
                .trim_start()
                .strip_prefix(s)
                .is_some_and(|end| end.trim_start().starts_with([']', '.']))
        }),
        None => line.trim().starts_with("schema") && line.contains("\"prism.job/"),
    };
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"))
        || String::from_utf8_lossy(head).lines().any(of_job)
}

/// Whether a file is a job file, by its name or its first lines. Standard input is not looked at.
pub(crate) fn is_job_file(path: &Path) -> bool {
    let head = || -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        File::open(path)?.take(HEAD).read_to_end(&mut head)?;
        Ok(head)
    };
    is_job(path, &[]) || (path.is_file() && head().is_ok_and(|head| is_job(path, &head)))
}

/// Reads a trace, a profile or a job file.
pub(crate) fn any(path: &Path, args: &TraceArgs, context: &Context) -> Result<Input, CliError> {
    let failed = |source| CliError::Input { file: name(path), source };
    // A job file that is not there is missed as one.
    if is_job(path, &[]) {
        return Ok(Input::Job(job_file(path)?));
    }
    let is_file = path.as_os_str() != "-" && path.is_file();
    if is_file {
        let mut head = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(HEAD).read_to_end(&mut head).map_err(failed)?;
        if is_job(path, &head) {
            return Ok(Input::Job(job_file(path)?));
        }
    }
    if is_file && !starts_as_json(&mut File::open(path).map_err(failed)?).map_err(failed)? {
        return Ok(Input::Trace(Box::new(trace(path, args, context)?)));
    }
    let bytes = slurp(path).map_err(failed)?;
    if starts_as_json(&mut bytes.as_slice()).map_err(failed)? {
        return given_profile(path, &bytes, args, context);
    }
    let head = &bytes[..bytes.len().min(HEAD as usize)];
    if is_job(path, head) {
        return Ok(Input::Job(job_input(path, bytes)?));
    }
    let loaded = context.phase("read", || from_memory(path, &bytes, args))?;
    reader_warnings(&loaded, context);
    Ok(Input::Trace(Box::new(loaded)))
}

fn options(args: &TraceArgs) -> ReadOptions {
    let options = ReadOptions::default().with_allow_incomplete(args.allow_incomplete);
    match &args.meta {
        Some(path) => options.with_meta(path),
        None => options,
    }
}

fn reader_warnings(loaded: &Loaded, context: &Context) {
    for warning in &loaded.warnings {
        context.printer.warning(warning);
    }
}

/// Whether the first character that is not a space opens a JSON object.
fn starts_as_json(reader: &mut dyn Read) -> io::Result<bool> {
    let mut first = [0_u8; 1];
    loop {
        match reader.read(&mut first) {
            Ok(0) => return Ok(false),
            Ok(_) if first[0].is_ascii_whitespace() => {}
            Ok(_) => return Ok(first[0] == b'{'),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn slurp(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Whether a file is a profile, as opposed to a trace. Standard input, which cannot be read twice, is
/// taken for a trace.
pub(crate) fn is_profile(path: &Path) -> bool {
    let file = (path.as_os_str() != "-" && path.is_file()).then(|| File::open(path).ok());
    file.flatten().is_some_and(|mut f| starts_as_json(&mut f).unwrap_or(false))
}

/// A text file; `-` for standard input.
pub(crate) fn text(path: &Path) -> Result<String, CliError> {
    let failed = |source| CliError::Input { file: name(path), source };
    String::from_utf8(slurp(path).map_err(failed)?)
        .map_err(|e| failed(io::Error::new(io::ErrorKind::InvalidData, e)))
}

/// A trace from a stream that cannot be read twice.
fn from_memory(path: &Path, bytes: &[u8], args: &TraceArgs) -> Result<Loaded, CliError> {
    let beside = match &args.meta {
        Some(given) => Some(given.clone()),
        None => meta_candidates(path).into_iter().find(|c| c.is_file()),
    };
    let meta = match &beside {
        Some(path) => {
            let read = std::fs::read(path)
                .map_err(|source| CliError::Input { file: name(path), source })?;
            Some((name(path), read))
        }
        None => None,
    };
    let meta = meta.as_ref().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    Ok(read_op_table_bytes(&name(path), bytes, meta, &options(args))?)
}

/// Reads a profile.
pub(crate) fn profile(path: &Path, context: &Context) -> Result<(Profile, SourceFile), CliError> {
    let bytes = slurp(path).map_err(|source| CliError::Input { file: name(path), source })?;
    parsed(path, &bytes, context)
}

/// A profile in place of a trace, to which reading flags mean nothing.
fn given_profile(
    path: &Path,
    bytes: &[u8],
    args: &TraceArgs,
    context: &Context,
) -> Result<Input, CliError> {
    for (flag, given) in
        [("--meta", args.meta.is_some()), ("--allow-incomplete", args.allow_incomplete)]
    {
        if given {
            return Err(usage(
                format!("`{flag}` is about reading a trace, but `{}` is a profile", name(path)),
                format!("leave out `{flag}`"),
            ));
        }
    }
    let (profile, source) = parsed(path, bytes, context)?;
    Ok(Input::Profile(Box::new(profile), source))
}

fn parsed(path: &Path, bytes: &[u8], context: &Context) -> Result<(Profile, SourceFile), CliError> {
    let file = name(path);
    let text = std::str::from_utf8(bytes).map_err(|e| CliError::Input {
        file: file.clone(),
        source: io::Error::new(io::ErrorKind::InvalidData, e),
    })?;
    let profile = context
        .phase("read", || Profile::from_json(text))
        .map_err(|source| CliError::Profile { file: file.clone(), source })?;
    let source = SourceFile { name: file, sha256: sha256_hex(bytes), bytes: bytes.len() as u64 };
    Ok((profile, source))
}
