//! Reads files of records, plain or gzip, line by line, in bounded memory and with a progress bar.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use serde_json::error::Category;
use serde_json::{Map, Value};

/// The most bytes of a record. A longer record would not fit into an item.
const MAX_RECORD_BYTES: u64 = 8 * 1_024 * 1_024;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: &str = "\u{feff}";
const BUFFER_BYTES: usize = 1 << 16;

/// A file's records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The file cannot be opened or read.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// A line is invalid.
    #[error("{path}, line {line}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// The reason.
        why: String,
    },
}

/// Opens a reader of a file's content, and unpacks gzip, which it detects by the content. The bar
/// counts the bytes of the file.
pub fn unpacked(file: File, bar: Option<&ProgressBar>) -> io::Result<Box<dyn BufRead + Send>> {
    let file: Box<dyn Read + Send> = match bar {
        Some(bar) => {
            bar.set_length(file.metadata()?.len());
            Box::new(bar.wrap_read(file))
        }
        None => Box::new(file),
    };
    let mut buffered = BufReader::with_capacity(BUFFER_BYTES, file);
    if buffered.fill_buf()?.starts_with(&GZIP_MAGIC) {
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(buffered))));
    }
    Ok(Box::new(buffered))
}

/// The lines of a text, with their numbers.
pub struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    /// Reads the lines from a reader. The path is for messages.
    pub fn new(path: &Path, reader: Box<dyn BufRead + Send>) -> Self {
        Self { path: path.to_owned(), reader, number: 0, line: Vec::new() }
    }

    /// Opens a file to read its lines.
    pub fn open(path: &Path, bar: Option<&ProgressBar>) -> Result<Self, RecordsError> {
        let reader = File::open(path).and_then(|file| unpacked(file, bar));
        reader
            .map(|reader| Self::new(path, reader))
            .map_err(|cause| RecordsError::File { path: path.to_owned(), cause })
    }

    /// Returns the number, from 1, and the trimmed text of the next line that is not blank.
    pub fn next_trimmed(&mut self) -> Result<Option<(u64, &str)>, RecordsError> {
        while self.read()? {
            if !self.line.iter().all(u8::is_ascii_whitespace) {
                return self.text().map(|text| Some((self.number, text.trim())));
            }
        }
        Ok(None)
    }

    /// Reads the next line; `false` at the end of the file.
    fn read(&mut self) -> Result<bool, RecordsError> {
        self.line.clear();
        let read =
            self.reader.by_ref().take(MAX_RECORD_BYTES + 1).read_until(b'\n', &mut self.line);
        if read.map_err(|cause| RecordsError::File { path: self.path.clone(), cause })? == 0 {
            return Ok(false);
        }
        self.number += 1;
        Ok(true)
    }

    fn text(&self) -> Result<&str, RecordsError> {
        let wrong = |why| refused(&self.path, self.number, why);
        if self.line.len() as u64 > MAX_RECORD_BYTES {
            return Err(wrong(format!(
                "it is longer than {MAX_RECORD_BYTES} bytes, the most that a line may have"
            )));
        }
        let text = std::str::from_utf8(&self.line);
        let text = text.map_err(|error| wrong(format!("it is not UTF-8: {error}")))?;
        let is_first = self.number == 1;
        Ok(text.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first).unwrap_or(text))
    }
}

/// The error for an invalid line.
pub fn refused(path: &Path, line: u64, why: String) -> RecordsError {
    RecordsError::Line { path: path.to_owned(), line, why }
}

/// Reads a line that is a JSON object. The last of several fields with one name counts.
pub fn object(line: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(line).map_err(|error| match error.classify() {
        Category::Data => "it is not a JSON object".to_owned(),
        Category::Io | Category::Syntax | Category::Eof => {
            // The text is one line, so the line number of serde_json is always 1 and is removed.
            let message = error.to_string();
            let reason = message.rsplit_once(" at line ").map_or(&*message, |(reason, _)| reason);
            format!("it is not JSON: {reason}, column {}", error.column())
        }
    })
}

/// The text of a field that is a string or a number.
pub fn field(object: &Map<String, Value>, name: &str) -> Result<String, String> {
    match object.get(name) {
        None => Err(format!("it has no field {name:?}")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(_) => Err(format!("its field {name:?} is neither a string nor a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(content: Vec<u8>) -> Lines {
        Lines::new(Path::new("f"), Box::new(io::Cursor::new(content)))
    }

    #[test]
    fn blank_lines_are_skipped_and_counted() {
        let mut lines = lines(b"\xef\xbb\xbf a \n\n \t\r\nb".to_vec());
        assert_eq!(lines.next_trimmed().unwrap(), Some((1, "a")));
        assert_eq!(lines.next_trimmed().unwrap(), Some((4, "b")));
        assert_eq!(lines.next_trimmed().unwrap(), None);
    }

    #[test]
    fn a_field_is_a_string_or_a_number() {
        let read = |line: &str| field(&object(line)?, "b");
        assert_eq!(read(r#"{"b":"x\n\"","c":[{}],"a":1}"#).unwrap(), "x\n\"");
        assert_eq!(read(r#"{"b":1,"b":2.50}"#).unwrap(), "2.5");
        let rows = [
            ("nonsense{", "it is not JSON: expected ident, column "),
            ("{} x", "it is not JSON: trailing characters, column "),
            (r#"{"b":-1e400}"#, "it is not JSON: number out of range, column "),
            (r#"{"b":"\ud800"}"#, "it is not JSON: "),
            ("[1]", "it is not a JSON object"),
            (r#"{"a":1}"#, "it has no field \"b\""),
            (r#"{"b":null}"#, "its field \"b\" is neither a string nor a number"),
        ];
        for (line, why) in rows {
            let error = read(line).unwrap_err();
            assert!(error.starts_with(why), "{line}: {error}");
        }
    }

    #[test]
    fn a_line_too_long_or_not_utf8_is_an_error_with_its_number() {
        let mut long = b"a\n".to_vec();
        long.resize(long.len() + usize::try_from(MAX_RECORD_BYTES).unwrap() + 1, b'x');
        for (content, why) in [(long, "longer than"), (b"a\n\xff\n".to_vec(), "not UTF-8")] {
            let mut lines = lines(content);
            assert!(lines.next_trimmed().is_ok());
            match lines.next_trimmed() {
                Err(RecordsError::Line { line: 2, why: message, .. }) => {
                    assert!(message.contains(why), "{message}")
                }
                other => panic!("{why}: {other:?}"),
            }
        }
    }
}
