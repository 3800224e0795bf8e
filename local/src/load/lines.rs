//! Reads the lines of the file as items.

use indicatif::ProgressBar;
use serde_json::Value;

use super::LoadOptions;
use cli::output::bar_style;
use cli::records::{Lines, RecordsError, field, object, refused};

/// An error that prevents the load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read, or a line is not an item.
    #[error("{0}; nothing was stored")]
    File(#[from] RecordsError),
    /// The same, but only while the lines are stored.
    #[error("{0}; the file was good before, and some of its lines may be stored")]
    Changed(RecordsError),
    /// The API is unreachable.
    #[error("cannot reach {url}: {cause}")]
    Api {
        /// The API.
        url: String,
        /// The cause.
        cause: String,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) partition_key: String,
    pub(super) item: String,
}

/// Returns the next line of the file that is not blank, as an item.
pub(super) fn next_line(
    lines: &mut Lines,
    options: &LoadOptions,
) -> Result<Option<Line>, RecordsError> {
    let Some((number, text)) = lines.next_trimmed()? else { return Ok(None) };
    let line = item(number, text, options).map(Some);
    line.map_err(|why| refused(&options.file, number, why))
}

/// Reads every line without storing it. Returns the number of lines.
pub(super) fn check(options: &LoadOptions) -> Result<u64, RecordsError> {
    let bar = ProgressBar::new(0)
        .with_style(bar_style("checking {wide_bar} {bytes}/{total_bytes} {eta}"));
    let mut lines = Lines::open(&options.file, Some(&bar))?;
    let mut count = 0;
    while next_line(&mut lines, options)?.is_some() {
        count += 1;
    }
    bar.finish_and_clear();
    Ok(count)
}

fn item(number: u64, text: &str, options: &LoadOptions) -> Result<Line, String> {
    let object = object(text)?;
    let partition_key = field(&object, &options.partition_key)?;
    let single_number = match options.sort_key.as_slice() {
        [name] => object.get(name).filter(|value| value.is_number()).map(ToString::to_string),
        _ => None,
    };
    let parts = options.sort_key.iter().map(|name| field(&object, name));
    let joined = parts.collect::<Result<Vec<_>, _>>()?.join("#");
    let sort_key = single_number.unwrap_or_else(|| Value::from(joined).to_string());
    let key = Value::from(partition_key.as_str());
    let item = format!(r#"{{"partition_key":{key},"sort_key":{sort_key},"attributes":{text}}}"#);
    Ok(Line { number, partition_key, item })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::io::Write;

    fn options() -> LoadOptions {
        let keys = ["--partition-key", "path", "--sort-key", "time", "--sort-key", "commit"];
        LoadOptions::parse_from(["load", "file"].into_iter().chain(keys))
    }

    fn check_content(content: &[u8]) -> Result<u64, RecordsError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        check(&LoadOptions { file: file.path().to_owned(), ..options() })
    }

    #[test]
    fn a_malformed_line_is_named_by_its_number() {
        let good = r#"{"path":"a","time":1,"commit":"c"}"#;
        let rows = [
            (format!("{good}\n\n{good}\nnot json\n"), 4, "it is not JSON"),
            (format!("{good}\n{{\"path\":\"a\",\"time\":1}}\n"), 2, "it has no field \"commit\""),
        ];
        for (content, number, why) in rows {
            match check_content(content.as_bytes()) {
                Err(RecordsError::Line { line, why: actual, .. }) => {
                    assert_eq!(line, number, "{content}");
                    assert!(actual.contains(why), "{actual}");
                }
                other => panic!("{content}: {other:?}"),
            }
        }
    }

    #[test]
    fn gzip_is_detected_by_content_and_a_truncated_file_is_an_error() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"{\"path\":\"a\",\"time\":1,\"commit\":\"c\"}\n").unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(check_content(&packed).unwrap(), 1);
        assert!(check_content(&packed[..packed.len() - 6]).is_err());
    }

    #[test]
    fn a_sort_key_of_one_number_stays_a_number() {
        let one = LoadOptions { sort_key: vec!["time".into()], ..options() };
        let line = r#"{"path":"a","time":7,"commit":"c"}"#;
        assert!(item(1, line, &one).unwrap().item.contains(r#""sort_key":7,"#));
        assert!(item(1, line, &options()).unwrap().item.contains(r##""sort_key":"7#c","##));
    }
}
