//! Reads the wanted fields of each line of a JSON Lines or CSV file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use serde_json::error::Category;
use serde_json::value::RawValue;

use super::csv_rows::CsvRows;
use super::shown::shortened;
use super::write::Row;
use cli::records::{self, RecordsError, refused};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileFormat {
    JsonLines,
    Csv,
}

impl FileFormat {
    /// Detects the format by the first character of the content.
    pub(super) fn of(start: &[u8]) -> Self {
        let start = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start).trim_ascii_start();
        match start.first() {
            None | Some(b'{' | b'[') => Self::JsonLines,
            Some(_) => Self::Csv,
        }
    }
}

/// Reads row after row. The names of the wanted fields must be distinct.
pub(super) enum Rows {
    JsonLines { path: PathBuf, lines: records::Lines, wanted: Vec<String> },
    Csv(Box<CsvRows>),
}

impl Rows {
    pub(super) fn new(
        path: &Path,
        format: FileFormat,
        reader: Box<dyn BufRead + Send>,
        wanted: &[String],
    ) -> Result<Self, RecordsError> {
        if format == FileFormat::Csv {
            return CsvRows::new(path, reader, wanted).map(|rows| Self::Csv(Box::new(rows)));
        }
        let lines = records::Lines::new(path, reader);
        Ok(Self::JsonLines { path: path.to_owned(), lines, wanted: wanted.to_vec() })
    }

    /// The next line that is not blank.
    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>, RecordsError> {
        match self {
            Self::Csv(rows) => rows.next(),
            Self::JsonLines { path, lines, wanted } => {
                let Some((line, text)) = lines.next_trimmed()? else { return Ok(None) };
                let values = json_values(text, wanted).map_err(|why| refused(path, line, why))?;
                Ok(Some(Row { line, values, bytes: text.len() as u64 }))
            }
        }
    }
}

fn json_values<'a>(text: &'a str, wanted: &[String]) -> Result<Vec<Cow<'a, str>>, String> {
    // The last of several fields with one name counts.
    let found = serde_json::from_str::<HashMap<Cow<'_, str>, &RawValue>>(text);
    let found = found.map_err(|error| match error.classify() {
        Category::Data => "it is not a JSON object".to_owned(),
        Category::Io | Category::Syntax | Category::Eof => {
            // The text is one line, so the line number of serde_json is always 1 and is removed.
            let message = error.to_string();
            let reason = message.rsplit_once(" at line ").map_or(&*message, |(reason, _)| reason);
            format!("it is not JSON: {reason}, column {}", error.column())
        }
    })?;
    let value = |name: &String| {
        let raw =
            found.get(name.as_str()).ok_or_else(|| format!("it has no field {name:?}"))?.get();
        scalar(raw).map_err(|why| format!("its field {name:?} is {}{why}", shortened(raw)))
    };
    wanted.iter().map(value).collect()
}

/// Reads a JSON string or number. A number gets the text that `load` writes into keys.
fn scalar(raw: &str) -> Result<Cow<'_, str>, &'static str> {
    if let Some(inner) = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        if !inner.contains('\\') {
            return Ok(Cow::Borrowed(inner));
        }
        // The text is valid JSON, so its escapes can only fail by a lone surrogate.
        let text: String = serde_json::from_str(raw)
            .map_err(|_| ", which has a lone surrogate: no Unicode text has one")?;
        return Ok(Cow::Owned(text));
    }
    if raw.len() < 19 && raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Cow::Borrowed(raw));
    }
    if !raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return Err("; a string or a number is allowed");
    }
    let number: serde_json::Number =
        serde_json::from_str(raw).map_err(|_| ", too large a number")?;
    Ok(Cow::Owned(number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row's values, or the line and the reason of the first error.
    fn read(content: &[u8], wanted: &[&str]) -> Result<Vec<Vec<String>>, (u64, String)> {
        let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        let reader = Box::new(std::io::Cursor::new(content.to_vec()));
        let line_and_reason = |error| match error {
            RecordsError::Line { line, why, .. } => (line, why),
            RecordsError::File { cause, .. } => panic!("{cause}"),
        };
        let mut rows = Rows::new(Path::new("f"), FileFormat::of(content), reader, &wanted)
            .map_err(line_and_reason)?;
        let mut all = Vec::new();
        while let Some(row) = rows.next().map_err(line_and_reason)? {
            all.push(row.values.into_iter().map(Cow::into_owned).collect());
        }
        Ok(all)
    }

    #[test]
    fn the_format_is_detected_by_the_content() {
        let rows = [
            ("", FileFormat::JsonLines),
            ("\n {\"a\":1}", FileFormat::JsonLines),
            ("\u{feff}{", FileFormat::JsonLines),
            ("a,b\n", FileFormat::Csv),
        ];
        for (start, format) in rows {
            assert_eq!(FileFormat::of(start.as_bytes()), format, "{start}");
        }
    }

    #[test]
    fn the_same_rows_are_read_from_both_formats() {
        let json = "{\"b\":\"x\\n\\\"\",\"c\":[{}],\"a\":1}\n\n{\"a\":2.50,\"b\":\"\u{e9},\"}";
        let csv = "b,c,a\r\n\"x\n\"\"\",,1\n\n\"\u{e9},\",z,2.5\n";
        let expected = vec![
            vec!["1".to_owned(), "x\n\"".to_owned()],
            vec!["2.5".to_owned(), "\u{e9},".to_owned()],
        ];
        assert_eq!(read(json.as_bytes(), &["a", "b"]), Ok(expected.clone()));
        assert_eq!(read(csv.as_bytes(), &["a", "b"]), Ok(expected));
        let marked = read(b"\xef\xbb\xbfa,b\n1,2\n", &["a"]);
        assert_eq!(marked, Ok(vec![vec!["1".to_owned()]]));
    }

    #[test]
    fn an_error_names_its_line_and_its_reason() {
        let json = |line: &str| format!("{{\"a\":1,\"b\":2}}\n{line}").into_bytes();
        let b = |value: &str| json(&format!("{{\"a\":1,\"b\":{value}}}"));
        let unclosed = format!("a,b\n1,\"{}", "x\n".repeat(5_000_000));
        let rows: &[(Vec<u8>, u64, &str)] = &[
            (json("\nnonsense{"), 3, "it is not JSON: expected"),
            (json("{\"a\":1}"), 2, "it has no field \"b\""),
            (b("null"), 2, "its field \"b\" is null; a string or a number"),
            (b("-1e400"), 2, "its field \"b\" is -1e400, too large a number"),
            (b("\"\\ud800\""), 2, "\"\\ud800\", which has a lone surrogate"),
            (json("[1]"), 2, "it is not a JSON object"),
            (json("{} x"), 2, "it is not JSON: trailing"),
            ("a,c\n1,2\n".into(), 1, "the header has no field \"b\"; its fields are a, c"),
            ("a,b,a\n1,2,3\n".into(), 1, "the header repeats the field \"a\""),
            ("a,b\n1,2\n\n3\n".into(), 4, "it has 1 field, the header has 2"),
            (b"a,b\n1,\xff\n".to_vec(), 2, "it is not UTF-8"),
            (unclosed.into(), 2, "a quote may be unclosed"),
            ("a,b\r\n1,2\r\n\r\n\"3\r\n\",4,5\r\n".into(), 4, "it has 3 fields"),
            ("a,b\n1,2\n3,\"4\n5\n".into(), 3, "its last quote is not closed"),
        ];
        for (content, line, why) in rows {
            let start = String::from_utf8_lossy(&content[..content.len().min(80)]).into_owned();
            let (at, message) = read(content, &["a", "b"]).unwrap_err();
            assert!(at == *line && message.contains(why), "{start}: line {at}: {message}");
        }
    }
}
