//! Runs the command in a folder of its own.
#![allow(dead_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A file of the shared straggler data, or a visible skip.
pub(crate) fn data(name: &str) -> Option<PathBuf> {
    let data = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = data.join("straggler").join(name);
    if !path.exists() {
        eprintln!("skipped: {} is missing (set PRISM_DATA)", path.display());
        return None;
    }
    Some(path)
}

/// A folder with a small synthetic trace `job.csv` (and its metadata) in it.
pub(crate) struct Folder(TempDir);

/// The plan of `job.csv`, whose worker, step and microbatch effects are easily found.
const JOB: &[&str] = &[
    "synth",
    "--plan",
    "dp=2,pp=2,microbatches=4",
    "--steps",
    "60",
    "--effect",
    "worker=3%",
    "--effect",
    "step=1%",
    "--effect",
    "microbatch=10%",
    "--effect",
    "residual=1%",
    "--effect",
    "transfer=5%",
    "-qq",
];

impl Folder {
    pub(crate) fn empty() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn with_job() -> Folder {
        let folder = Folder::empty();
        folder.add_job("job.csv", &[]);
        folder
    }

    /// Records the job again under another name, with further flags.
    pub(crate) fn add_job(&self, name: &str, more: &[&str]) {
        self.done(&[JOB, more, &["-o", name]].concat());
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path().join(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// The command, free of settings from outside.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prism"));
        command.args(args).current_dir(self.path());
        for name in ["NO_COLOR", "CLICOLOR_FORCE", "PRISM_SEED", "PRISM_THREADS"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Output {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        child.wait_with_output().unwrap()
    }

    /// The result of a command that must be done.
    pub(crate) fn done(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.done(args)).unwrap()
    }

    /// Everything that is seen of a command.
    pub(crate) fn transcript(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let typed: Vec<String> = args
            .iter()
            .map(|a| if a.contains(['<', ' ']) { format!("'{a}'") } else { (*a).to_owned() })
            .collect();
        let errors = match text(&output.stderr) {
            none if none.is_empty() => none,
            some => format!("--- standard error\n{}", without_paths(&some)),
        };
        let (typed, stdout) = (typed.join(" "), rounded(&text(&output.stdout)));
        let code = output.status.code().unwrap_or(-1);
        format!("$ prism {typed}\n{stdout}{errors}--- exit code {code}\n")
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Text without the names of temporary files, which differ from run to run.
fn without_paths(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" at path \"") {
        out.push_str(before);
        rest = after.split_once('"').map_or("", |(_, after)| after);
    }
    out + rest
}

/// Text whose CSV fields of many digits are shortened to eight, since the last few differ between
/// mathematics libraries.
fn rounded(text: &str) -> String {
    let short = |field: &str| match field.parse::<f64>() {
        Ok(value) if field.len() > 10 => format!("{value:.7e}"),
        _ => field.to_owned(),
    };
    let line = |line: &str| line.split(',').map(short).collect::<Vec<_>>().join(",");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}
