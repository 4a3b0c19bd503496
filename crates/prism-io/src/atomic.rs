//! Writing a file whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::IoError;
use crate::source;

/// Writes a file so that readers see the old content or the whole new one, never a part.
///
/// The content goes to a temporary file in the same directory, which is synchronised to disk and
/// renamed over `path`; on an error it is removed and `path` is as before. An existing file keeps
/// its permissions, and a symbolic link keeps pointing where it did. `-` is standard output, and
/// what is not a regular file, such as a pipe or `/dev/null`, is written to directly.
///
/// # Errors
/// [`IoError::Write`] with what the system or `write` said.
///
/// ```
/// # fn main() -> Result<(), prism_io::IoError> {
/// let path = std::env::temp_dir().join(format!("prism-doc-{}", std::process::id()));
/// prism_io::write_atomic(&path, |out| writeln!(out, "p95 8.1"))?;
/// assert_eq!(std::fs::read_to_string(&path).unwrap(), "p95 8.1\n");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn write_atomic(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), IoError> {
    let failed = |source| IoError::Write { file: source::name(path), source };
    if source::is_stdio(path) {
        let mut out = io::stdout().lock();
        return write(&mut out).and_then(|()| out.flush()).map_err(failed);
    }
    // Follows links: the file they point to is replaced, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    match fs::metadata(&target) {
        Ok(meta) if meta.is_dir() => Err(failed(io::ErrorKind::IsADirectory.into())),
        Ok(meta) if meta.is_file() => {
            replace(&target, Some(meta.permissions()), write).map_err(failed)
        }
        Ok(_) => direct(&target, write).map_err(failed),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            replace(&target, None, write).map_err(failed)
        }
        Err(e) => Err(failed(e)),
    }
}

/// [`write_atomic`], compressed with gzip if the name ends in `.gz`. The same content gives the same
/// bytes: no time or name is stored.
///
/// # Errors
/// As [`write_atomic`].
pub fn write_atomic_gz(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), IoError> {
    if !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz")) {
        return write_atomic(path, write);
    }
    write_atomic(path, |out| {
        let mut gz = BufWriter::new(GzEncoder::new(out, Compression::default()));
        write(&mut gz)?;
        gz.into_inner().map_err(io::IntoInnerError::into_error)?.finish().map(|_| ())
    })
}

fn direct(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(File::options().write(true).open(path)?);
    write(&mut out)?;
    out.flush()
}

fn replace(
    path: &Path,
    permissions: Option<fs::Permissions>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".prism-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As an ordinary new file: the process's mask applies.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let temporary = builder.tempfile_in(&folder)?;
    let mut out = BufWriter::new(temporary);
    write(&mut out)?;
    let temporary = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    if let Some(permissions) = permissions {
        temporary.as_file().set_permissions(permissions)?;
    }
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|e| e.error)?;
    // Makes the new name durable too; not every file system lets a directory be synchronised.
    #[cfg(unix)]
    let _ = File::open(&folder).and_then(|d| d.sync_all());
    Ok(())
}
