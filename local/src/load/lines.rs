//! The lines of the file as items.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// One line that is longer would not fit an item anyway.
const MAX_LINE_BYTES: u64 = 8 * 1_024 * 1_024;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Why nothing was loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be opened or read.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        cause: std::io::Error,
    },
    /// A line is not an item.
    #[error("{path}, line {line}: {why}; nothing was stored")]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The API cannot be reached at all.
    #[error("{url} cannot be reached: {cause}")]
    Api {
        /// The API.
        url: String,
        /// What went wrong.
        cause: String,
    },
}

/// The fields that make up the keys.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    pub(super) partition_key: String,
    pub(super) sort_key: Vec<String>,
}

/// A line as a request's item.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) partition_key: String,
    /// The item's JSON.
    pub(super) item: String,
}

/// The lines of a file; a blank one is passed over.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<Box<dyn Read + Send>>,
    number: u64,
}

impl Lines {
    pub(super) fn open(path: &Path, bar: Option<&ProgressBar>) -> Result<Self, LoadError> {
        let failed = |cause| LoadError::File { path: path.to_owned(), cause };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let file: Box<dyn Read + Send> = match bar {
            Some(bar) => {
                bar.set_length(length);
                Box::new(bar.wrap_read(file))
            }
            None => Box::new(file),
        };
        let mut buffered = BufReader::with_capacity(1 << 16, file);
        let is_gzip = buffered.fill_buf().map_err(failed)?.starts_with(&GZIP_MAGIC);
        let plain: Box<dyn Read + Send> =
            if is_gzip { Box::new(MultiGzDecoder::new(buffered)) } else { Box::new(buffered) };
        Ok(Self { path: path.to_owned(), reader: BufReader::with_capacity(1 << 16, plain), number: 0 })
    }

    /// The next line that is not blank, as an item.
    pub(super) fn next(&mut self, fields: &Fields) -> Result<Option<Line>, LoadError> {
        loop {
            let mut bytes = Vec::new();
            let read = self.reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes);
            let read = read.map_err(|cause| LoadError::File { path: self.path.clone(), cause })?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if bytes.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line = item(&bytes, fields).map_err(|why| LoadError::Line {
                path: self.path.clone(),
                line: self.number,
                why,
            })?;
            return Ok(Some(Line { number: self.number, ..line }));
        }
    }
}

/// Reads every line once, storing nothing; returns how many there are.
pub(super) fn check(path: &Path, fields: &Fields) -> Result<u64, LoadError> {
    let bar = ProgressBar::new(0).with_style(style("checking {wide_bar} {bytes}/{total_bytes} {eta}"));
    let mut lines = Lines::open(path, Some(&bar))?;
    let mut count = 0;
    while lines.next(fields)?.is_some() {
        count += 1;
    }
    bar.finish_and_clear();
    Ok(count)
}

pub(super) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn item(bytes: &[u8], fields: &Fields) -> Result<Line, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))?.trim();
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let object: Map<String, Value> = serde_json::from_str(text).map_err(|_| "it is not a JSON object".to_owned())?;
    let field = |name: &str| match object.get(name) {
        None => Err(format!("it has no field {name:?}")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(_) => Err(format!("its field {name:?} is neither a string nor a number")),
    };
    let partition_key = field(&fields.partition_key)?;
    let single_number = match fields.sort_key.as_slice() {
        [name] => object.get(name).filter(|value| value.is_number()).map(ToString::to_string),
        _ => None,
    };
    let joined = fields.sort_key.iter().map(|name| field(name)).collect::<Result<Vec<_>, _>>()?.join("#");
    let sort_key = single_number.unwrap_or_else(|| Value::from(joined).to_string());
    let key = Value::from(partition_key.as_str());
    let item = format!(r#"{{"partition_key":{key},"sort_key":{sort_key},"attributes":{raw}}}"#);
    Ok(Line { number: 0, partition_key, item })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn fields() -> Fields {
        Fields { partition_key: "path".into(), sort_key: vec!["time".into(), "commit".into()] }
    }

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn a_malformed_line_is_named_by_its_number() {
        let good = r#"{"path":"a","time":1,"commit":"c"}"#;
        let rows = [
            (format!("{good}\n\n{good}\nnot json\n"), 4, "it is not JSON"),
            (format!("{good}\n[1]\n"), 2, "it is not a JSON object"),
            (format!("{good}\n{{\"path\":\"a\",\"time\":1}}\n"), 2, "it has no field \"commit\""),
            (format!("{good}\n{{\"path\":[],\"time\":1,\"commit\":\"c\"}}\n"), 2, "neither a string nor a number"),
        ];
        for (content, number, why) in rows {
            match check(file(content.as_bytes()).path(), &fields()) {
                Err(LoadError::Line { line, why: said, .. }) => {
                    assert_eq!(line, number, "{content}");
                    assert!(said.contains(why), "{said}");
                }
                other => panic!("{content}: {other:?}"),
            }
        }
        assert!(matches!(check(file(b"{\"path\":\xff}").path(), &fields()), Err(LoadError::Line { line: 1, .. })));
    }

    #[test]
    fn gzip_is_known_by_its_content_and_a_cut_one_is_an_error() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"{\"path\":\"a\",\"time\":1,\"commit\":\"c\"}\n").unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(check(file(&packed).path(), &fields()).unwrap(), 1);
        assert!(check(file(&packed[..packed.len() - 6]).path(), &fields()).is_err());
    }

    #[test]
    fn a_sort_key_of_one_number_stays_a_number() {
        let one = Fields { partition_key: "path".into(), sort_key: vec!["time".into()] };
        let line = br#"{"path":"a","time":7,"commit":"c"}"#;
        assert!(item(line, &one).unwrap().item.contains(r#""sort_key":7,"#));
        assert!(item(line, &fields()).unwrap().item.contains(r##""sort_key":"7#c","##));
    }
}
