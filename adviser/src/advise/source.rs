//! A file that is read more than once, standard input included.

use std::fs::File;
use std::io::{self, BufRead, Seek};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;

use super::rows::{FileFormat, Rows};
use cli::output::bar_style;
use cli::records::{self, RecordsError};

/// What can be read again from its start.
pub(super) struct Source {
    path: PathBuf,
    file: File,
    format: FileFormat,
}

impl Source {
    /// Opens the file. Standard input (`-`) and what else cannot be read twice is copied into a temporary file that has no name.
    pub(super) fn open(path: &Path) -> Result<Self, RecordsError> {
        let (path, file) = if path == Path::new("-") {
            let shown = PathBuf::from("standard input");
            let copied = copy(io::stdin().lock());
            (shown.clone(), copied.map_err(|cause| RecordsError::File { path: shown, cause })?)
        } else {
            let opened =
                File::open(path).and_then(|file| if file.metadata()?.is_file() { Ok(file) } else { copy(file) });
            (path.to_owned(), opened.map_err(|cause| RecordsError::File { path: path.to_owned(), cause })?)
        };
        let mut source = Self { path, file, format: FileFormat::JsonLines };
        let mut reader = source.reader(None)?;
        let start = reader.fill_buf().map_err(|cause| source.failed(cause))?;
        source.format = FileFormat::of(&source.path, start);
        Ok(source)
    }

    /// The name for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn format(&self) -> FileFormat {
        self.format
    }

    /// The rows from the start on, with a progress bar of this name.
    pub(super) fn rows(&self, doing: &str, wanted: &[String]) -> Result<(Rows, ProgressBar), RecordsError> {
        let bar = ProgressBar::new(0).with_style(bar_style("{msg} {wide_bar} {bytes}/{total_bytes} {eta}"));
        let bar = bar.with_message(doing.to_owned());
        let reader = self.reader(Some(&bar))?;
        Ok((Rows::new(&self.path, self.format, reader, wanted)?, bar))
    }

    fn reader(&self, bar: Option<&ProgressBar>) -> Result<Box<dyn BufRead + Send>, RecordsError> {
        let again = self.file.try_clone().and_then(|mut file| file.rewind().map(|()| file));
        again.and_then(|file| records::unpacked(file, bar)).map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: io::Error) -> RecordsError {
        RecordsError::File { path: self.path.clone(), cause }
    }
}

fn copy(mut from: impl io::Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut from, &mut file)?;
    Ok(file)
}
