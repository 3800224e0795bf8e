//! A file, or standard input, that can be read more than once.

use std::fs::File;
use std::io::{self, BufRead, Seek};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;

use super::rows::{FileFormat, Rows};
use cli::output::bar_style;
use cli::records::{self, RecordsError};

pub(super) struct Source {
    pub(super) path: PathBuf,
    file: File,
    pub(super) format: FileFormat,
}

impl Source {
    /// Opens the file. Standard input (`-`), and any other source that cannot be read twice, is
    /// copied to an unnamed temporary file.
    pub(super) fn open(path: &Path) -> Result<Self, RecordsError> {
        let (path, opened) = if path == Path::new("-") {
            (PathBuf::from("standard input"), copy(io::stdin().lock()))
        } else {
            let opened = File::open(path)
                .and_then(|file| if file.metadata()?.is_file() { Ok(file) } else { copy(file) });
            (path.to_owned(), opened)
        };
        let file = opened.map_err(|cause| RecordsError::File { path: path.clone(), cause })?;
        let mut source = Self { path, file, format: FileFormat::JsonLines };
        let mut reader = source.reader(None)?;
        let start = reader.fill_buf().map_err(|cause| source.failed(cause))?;
        source.format = FileFormat::of(start);
        Ok(source)
    }

    /// Returns the rows from the start of the file, with a progress bar that names the activity.
    pub(super) fn rows(
        &self,
        activity: &str,
        wanted: &[String],
    ) -> Result<(Rows, ProgressBar), RecordsError> {
        let style = bar_style("{msg} {wide_bar} {bytes}/{total_bytes} {eta}");
        let bar = ProgressBar::new(0).with_style(style).with_message(activity.to_owned());
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
