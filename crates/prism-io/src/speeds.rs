//! Tables of measured speeds: one row a measurement of a GPU.

use std::collections::BTreeMap;
use std::path::Path;

use csv::ByteRecord;

use crate::error::IoError;
use crate::op_table::Source;
use crate::options::Limits;
use crate::source::{self, Content};

/// Columns that name the GPU, in order of preference.
const IDS: [&str; 5] = ["gpu", "uuid", "worker", "id", "name"];
/// Columns that hold a time, in order of preference.
const TIMES: [&str; 8] =
    ["time", "time_s", "time_ms", "time_us", "duration", "duration_s", "duration_ms", "perf"];
/// Problems that a message shows.
const SHOWN: usize = 5;

/// How a table of speeds is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeedOptions {
    /// Column with the time; without it, the only known one (`time_ms`, `perf`, ...).
    pub time_column: Option<String>,
    /// Whether nodes matter; if not, none is read, and rows of a GPU may differ in theirs.
    pub nodes: bool,
    /// Column with the node; without it, `node` if there is one.
    pub node_column: Option<String>,
    /// Column with a label.
    pub label_column: Option<String>,
    /// Upper limits on what is read.
    pub limits: Limits,
}

/// Measurements of one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredGpu {
    /// Its name.
    pub id: String,
    /// The node it is in.
    pub node: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// Times in the file's unit, in the order of the rows.
    pub times: Vec<f64>,
}

/// A table of speeds.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedTable {
    /// The file.
    pub source: Source,
    /// Column of the times.
    pub time_column: String,
    /// Rows read.
    pub rows: usize,
    /// GPUs in the order of their first row.
    pub gpus: Vec<MeasuredGpu>,
}

/// Reads a table of speeds from CSV, also gzipped; `-` is standard input.
///
/// # Errors
/// [`IoError::Speeds`] with the rows that break a rule, or why the file cannot be read.
pub fn read_speeds(path: &Path, options: &SpeedOptions) -> Result<SpeedTable, IoError> {
    let bytes = source::slurp(path, options.limits)?;
    read_speeds_bytes(&source::name(path), bytes, options)
}

/// Reads a table of speeds from memory; `file` stands for it in messages.
///
/// # Errors
/// As [`read_speeds`].
pub fn read_speeds_bytes(
    file: &str,
    bytes: Vec<u8>,
    options: &SpeedOptions,
) -> Result<SpeedTable, IoError> {
    let from = source::source(file, &bytes);
    let (content, bytes) = source::unwrap(file, bytes, options.limits)?;
    if content == Content::Parquet {
        return Err(problems(file, vec!["it is Parquet, a table of speeds is CSV".to_owned()]));
    }
    let damaged = |source| IoError::Csv { file: file.to_owned(), source };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes.as_slice());
    let header: Vec<String> = reader
        .byte_headers()
        .map_err(damaged)?
        .iter()
        .map(|n| String::from_utf8_lossy(n).trim().to_owned())
        .collect();
    let columns = Columns::new(file, &header, options)?;
    let mut table = Rows { columns, width: header.len(), index: BTreeMap::new(), gpus: Vec::new() };
    let (mut wrong, mut rows, mut record) = (Vec::new(), 0, ByteRecord::new());
    while reader.read_byte_record(&mut record).map_err(damaged)? {
        rows += 1;
        let line = record.position().map_or(0, csv::Position::line);
        if let Err(rule) = table.push(&record) {
            wrong.push(format!("line {line}: {rule}"));
        }
    }
    if rows == 0 {
        return Err(IoError::Empty { file: file.to_owned(), what: "a header and no rows" });
    }
    if !wrong.is_empty() {
        return Err(problems(file, wrong));
    }
    let time_column = header[table.columns.time].clone();
    Ok(SpeedTable { source: from, time_column, rows, gpus: table.gpus })
}

fn problems(file: &str, mut problems: Vec<String>) -> IoError {
    let more = problems.len().saturating_sub(SHOWN);
    problems.truncate(SHOWN);
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    IoError::Speeds { file: file.to_owned(), problems }
}

/// Where the columns are.
struct Columns {
    id: usize,
    time: usize,
    node: Option<usize>,
    label: Option<usize>,
}

impl Columns {
    fn new(file: &str, header: &[String], options: &SpeedOptions) -> Result<Columns, IoError> {
        let at = |name: &str| header.iter().position(|h| h.eq_ignore_ascii_case(name));
        let all = || format!("columns: {}", header.join(", "));
        let asked = |name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => match at(name) {
                Some(i) => Ok(Some(i)),
                None => Err(problems(file, vec![format!("no column `{name}`; {}", all())])),
            },
        };
        let Some(id) = IDS.iter().find_map(|n| at(n)) else {
            let names = IDS.map(|n| format!("`{n}`")).join(", ");
            return Err(problems(file, vec![format!("no column {names}; {}", all())]));
        };
        let time = if let Some(time) = asked(&options.time_column)? {
            time
        } else {
            known_time(header).map_err(|what| problems(file, vec![what]))?
        };
        let node = asked(&options.node_column)?.or_else(|| at("node")).filter(|_| options.nodes);
        Ok(Columns { id, time, node, label: asked(&options.label_column)? })
    }
}

/// The only column with a known name of a time, or what is wrong.
fn known_time(header: &[String]) -> Result<usize, String> {
    let at = |name: &&str| header.iter().position(|h| h.eq_ignore_ascii_case(name));
    let known: Vec<usize> = TIMES.iter().filter_map(at).collect();
    match known.as_slice() {
        [one] => Ok(*one),
        [] => Err(format!(
            "no column with a known name of a time; name it by `--time-column`; columns: {}",
            header.join(", ")
        )),
        many => {
            let names: Vec<&str> = many.iter().map(|&i| header[i].as_str()).collect();
            let names = names.join(", ");
            Err(format!("several columns hold a time ({names}); name one by `--time-column`"))
        }
    }
}

/// Rows being collected by GPU.
struct Rows {
    columns: Columns,
    width: usize,
    index: BTreeMap<String, usize>,
    gpus: Vec<MeasuredGpu>,
}

impl Rows {
    /// Adds a row, or says which rule it breaks.
    fn push(&mut self, record: &ByteRecord) -> Result<(), String> {
        if record.len() != self.width {
            return Err(format!("{} fields, the header has {}", record.len(), self.width));
        }
        let text = |at: usize| {
            let cell = record.get(at).unwrap_or_default();
            std::str::from_utf8(cell)
                .map(|t| t.trim().to_owned())
                .map_err(|_| "not UTF-8".to_owned())
        };
        let optional = |at: Option<usize>| match at {
            None => Ok(None),
            Some(at) => text(at).map(|t| (!t.is_empty()).then_some(t)),
        };
        let id = text(self.columns.id)?;
        if id.is_empty() {
            return Err("the GPU has no name".to_owned());
        }
        let cell = text(self.columns.time)?;
        let time = cell.parse::<f64>().ok().filter(|t| t.is_finite() && *t > 0.0);
        let Some(time) = time else {
            return Err(format!("a time is a positive number, not `{cell}`"));
        };
        let (node, label) = (optional(self.columns.node)?, optional(self.columns.label)?);
        match self.index.get(&id) {
            None => {
                self.index.insert(id.clone(), self.gpus.len());
                self.gpus.push(MeasuredGpu { id, node, label, times: vec![time] });
            }
            Some(&at) => {
                let gpu = &mut self.gpus[at];
                for (what, before, now) in
                    [("node", &gpu.node, &node), ("label", &gpu.label, &label)]
                {
                    if before != now {
                        let show = |v: &Option<String>| v.clone().unwrap_or_else(|| "none".into());
                        let (before, now) = (show(before), show(now));
                        return Err(format!("GPU `{id}` has {what} {now}, before it was {before}"));
                    }
                }
                gpu.times.push(time);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, options: &SpeedOptions) -> Result<SpeedTable, String> {
        read_speeds_bytes("speeds.csv", text.as_bytes().to_vec(), options)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn repeats_are_collected_in_the_order_of_first_rows() {
        let text = "uuid,node,rail,perf\nb,n1,x,2\na,n1,x,1.5\nb,n1,x,4\n";
        let options =
            SpeedOptions { label_column: Some("rail".into()), nodes: true, ..Default::default() };
        let table = read(text, &options).unwrap();
        assert_eq!((table.rows, table.time_column.as_str()), (3, "perf"));
        let seen: Vec<(&str, &[f64])> =
            table.gpus.iter().map(|g| (g.id.as_str(), g.times.as_slice())).collect();
        assert_eq!(seen, [("b", &[2.0, 4.0][..]), ("a", &[1.5][..])]);
        assert_eq!(table.gpus[0].node.as_deref(), Some("n1"));
        assert_eq!(table.gpus[0].label.as_deref(), Some("x"));
    }

    #[test]
    fn what_is_wrong_is_named_by_line_and_rule() {
        let none = SpeedOptions::default();
        let error = read("gpu,time_ms\na,1\nb,-2\nc,fast\n,3\nd,1,2\n", &none).unwrap_err();
        for part in ["speeds.csv", "line 3", "not `-2`", "line 4", "`fast`", "line 5", "line 6"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = read("gpu,time_s,perf\na,1,2\n", &none).unwrap_err();
        assert!(error.contains("time_s, perf") && error.contains("--time-column"), "{error}");
        assert!(read("gpu,speed\na,1\n", &none).unwrap_err().contains("--time-column"));
        assert!(read("card,time\na,1\n", &none).unwrap_err().contains("`gpu`"));
        assert!(read("gpu,time\n", &none).unwrap_err().contains("no rows"));
        let moved = "gpu,node,time\na,n1,1\na,n2,1\n";
        assert_eq!(read(moved, &none).unwrap().gpus[0].times, [1.0, 1.0]);
        let nodes = SpeedOptions { nodes: true, ..SpeedOptions::default() };
        assert!(read(moved, &nodes).unwrap_err().contains("line 3"));
        let wanted = SpeedOptions { time_column: Some("t".into()), ..none };
        assert!(read("gpu,time\na,1\n", &wanted).unwrap_err().contains("no column `t`"));
    }
}
