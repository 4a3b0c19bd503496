//! A file is written whole or not at all.

use std::fs;
use std::io;

use prism_io::{write_atomic, write_samples};

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn failure_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    for before in [None, Some("old")] {
        if let Some(text) = before {
            fs::write(&path, text).unwrap();
        }
        let error = write_atomic(&path, |out| {
            out.write_all(&vec![7; 100_000])?;
            Err(io::Error::other("the computation failed"))
        })
        .unwrap_err();
        assert_eq!(error.to_string(), format!("cannot write `{}`", path.display()));
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), before);
        assert_eq!(
            names(folder.path()),
            before.map(|_| "out.json").into_iter().collect::<Vec<_>>()
        );
    }
}

#[test]
fn panic_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let result = std::panic::catch_unwind(|| {
        write_atomic(&path, |out| {
            out.write_all(b"half")?;
            panic!("in the middle");
        })
    });
    assert!(result.is_err());
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn replaces_the_whole_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    fs::write(&path, "a much longer old content").unwrap();
    write_atomic(&path, |out| write!(out, "new")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn missing_folder_and_folder_itself_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    assert!(write_atomic(&folder.path().join("no/out"), |_| Ok(())).is_err());
    assert!(write_atomic(folder.path(), |_| Ok(())).is_err());
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[cfg(unix)]
#[test]
fn keeps_permissions_and_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let mode = |p: &std::path::Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;

    // A new file is like any other new file, not private as temporary ones are.
    let ordinary = folder.path().join("ordinary");
    fs::write(&ordinary, "").unwrap();
    let new = folder.path().join("new");
    write_atomic(&new, |out| write!(out, "x")).unwrap();
    assert_eq!(mode(&new), mode(&ordinary));

    let real = folder.path().join("real");
    fs::write(&real, "old").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.path().join("link");
    symlink(&real, &link).unwrap();
    write_atomic(&link, |out| write!(out, "new")).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), "new");
    assert_eq!(mode(&real), 0o640);

    // What is not a file is written to, not replaced.
    write_atomic(std::path::Path::new("/dev/null"), |out| write!(out, "gone")).unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn samples_as_csv_and_parquet() {
    let folder = tempfile::tempdir().unwrap();
    let a = [1.5, 0.1 + 0.2, f64::MAX, 1e-300];
    let b = [-0.0, 2.0, 3.0, f64::MIN_POSITIVE];
    let columns: [(&str, &[f64]); 2] = [("step_s", &a), ("b, quoted", &b)];

    let csv = folder.path().join("s.csv");
    write_samples(&csv, &columns).unwrap();
    assert_eq!(
        fs::read_to_string(&csv).unwrap(),
        "step_s,\"b, quoted\"\n1.5,-0.0\n0.30000000000000004,2.0\n\
         1.7976931348623157e308,3.0\n1e-300,2.2250738585072014e-308\n"
    );

    let gz = folder.path().join("s.CSV.gz");
    write_samples(&gz, &columns).unwrap();
    let mut text = String::new();
    let file = fs::File::open(&gz).unwrap();
    io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
    assert_eq!(text, fs::read_to_string(&csv).unwrap());

    let parquet = folder.path().join("s.parquet");
    write_samples(&parquet, &columns).unwrap();
    let read = read_doubles(&parquet);
    assert_eq!(read.len(), 2);
    for ((name, cells), (expected, values)) in read.iter().zip(columns) {
        assert_eq!(name, expected);
        let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(cells), bits(values));
    }
}

#[test]
fn samples_of_unequal_length_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.parquet");
    let error = write_samples(&path, &[("a", &[1.0]), ("b", &[])]).unwrap_err();
    let message = error.to_string().replace(&path.display().to_string(), "s.parquet");
    assert_eq!(message, "cannot write `s.parquet`: column `b` has 0 values, the first 1");
    assert!(!path.exists());
}

/// Reads a file of doubles with the Parquet crate itself.
fn read_doubles(path: &std::path::Path) -> Vec<(String, Vec<f64>)> {
    use parquet::column::reader::ColumnReader;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let group = reader.get_row_group(0).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    (0..schema.num_columns())
        .map(|i| {
            let ColumnReader::DoubleColumnReader(mut column) = group.get_column_reader(i).unwrap()
            else {
                panic!("not doubles");
            };
            let mut cells = Vec::new();
            column.read_records(1000, None, None, &mut cells).unwrap();
            (schema.column(i).name().to_owned(), cells)
        })
        .collect()
}
