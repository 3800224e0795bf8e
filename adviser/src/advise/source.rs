//! A file, or standard input, that can be read more than once.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;

use cli::output::bar_style;
use cli::records::{Lines, RecordsError, unpacked};

pub(super) struct Source {
    pub(super) path: PathBuf,
    file: File,
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
        match opened {
            Ok(file) => Ok(Self { path, file }),
            Err(cause) => Err(RecordsError::File { path, cause }),
        }
    }

    /// Returns the lines from the start of the file, with a progress bar that names the activity.
    /// Read one set of lines at a time: they share the file's position.
    pub(super) fn lines(&self, activity: &str) -> Result<(Lines, ProgressBar), RecordsError> {
        let style = bar_style("{msg} {wide_bar} {bytes}/{total_bytes} {eta}");
        let bar = ProgressBar::new(0).with_style(style).with_message(activity.to_owned());
        let again = self.file.try_clone().and_then(|mut file| file.rewind().map(|()| file));
        match again.and_then(|file| unpacked(file, Some(&bar))) {
            Ok(reader) => Ok((Lines::new(&self.path, reader), bar)),
            Err(cause) => Err(RecordsError::File { path: self.path.clone(), cause }),
        }
    }
}

fn copy(mut from: impl io::Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut from, &mut file)?;
    Ok(file)
}
