//! One flat table as CSV.

use crate::ReportError;

/// Header and rows as CSV with quoting where needed; lines end in `\n`.
///
/// ```
/// let rows = [["p95".to_owned(), "8.1".to_owned()]];
/// assert_eq!(prism_report::csv_text(&["statistic", "value_s"], &rows)?, "statistic,value_s\np95,8.1\n");
/// # Ok::<(), prism_report::ReportError>(())
/// ```
///
/// # Errors
/// [`ReportError::Csv`] if a row has another number of cells than the header.
pub fn csv_text<R>(header: &[&str], rows: &[R]) -> Result<String, ReportError>
where
    R: AsRef<[String]>,
{
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(header)?;
    for row in rows {
        writer.write_record(row.as_ref())?;
    }
    let bytes = writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A number with as many digits as it takes to read the same bits back; empty for none.
pub(crate) fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| format!("{v:?}"))
}
