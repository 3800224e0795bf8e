//! Reads the records of a CSV file.
//!
//! This module feeds `csv_core` line by line instead of using the reader of the crate `csv`. That
//! reader does not limit the length of a record, so a quote that is never closed would swallow the
//! file. It also counts lines differently than an editor if some are blank.

use std::borrow::Cow;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use super::shown::shortened;
use super::write::Row;
use cli::records::{self, Lines, MAX_RECORD_BYTES, RecordsError, refused};

pub(super) struct CsvRows {
    path: PathBuf,
    lines: Lines,
    record: Record,
    columns: Vec<usize>,
    /// The fields and the bytes of the header.
    header: (usize, u64),
}

impl CsvRows {
    pub(super) fn new(
        path: &Path,
        reader: Box<dyn BufRead + Send>,
        wanted: &[String],
    ) -> Result<Self, RecordsError> {
        let (path, lines) = (path.to_owned(), Lines::new(path, reader));
        let record = Record::new();
        let mut rows = Self { path, lines, record, columns: Vec::new(), header: (0, 0) };
        let Some(line) = rows.read()? else { return Ok(rows) };
        let names: Vec<&str> =
            (0..rows.record.fields).map(|place| rows.record.field(place).trim()).collect();
        for name in wanted {
            let mut places = (0..names.len()).filter(|place| names[*place] == name);
            let refuse = |why: &str| {
                let fields = shortened(&names.join(", "));
                let why = format!("the header {why} {name:?}; its fields are {fields}");
                refused(&rows.path, line, why)
            };
            rows.columns.push(places.next().ok_or_else(|| refuse("has no field"))?);
            if places.next().is_some() {
                return Err(refuse("repeats the field"));
            }
        }
        rows.header = (rows.record.fields, rows.record.length as u64);
        Ok(rows)
    }

    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>, RecordsError> {
        let Some(line) = self.read()? else { return Ok(None) };
        let (has, needs) = (self.record.fields, self.header.0);
        if has != needs {
            let s = if has == 1 { "" } else { "s" };
            let why = format!("it has {has} field{s}, the header has {needs}");
            return Err(refused(&self.path, line, why));
        }
        let texts = self.columns.iter().map(|column| self.record.field(*column));
        let values = texts.map(Cow::Borrowed).collect();
        Ok(Some(Row { line, values, bytes: self.header.1 + self.record.length as u64 }))
    }

    /// Reads the next record, which may span several lines. Returns the number of its first line.
    fn read(&mut self) -> Result<Option<u64>, RecordsError> {
        (self.record.length, self.record.fields) = (0, 0);
        let mut first = None;
        let mut bytes = 0;
        loop {
            let Some((number, line)) = self.lines.next_line()? else {
                let unclosed = "its last quote is not closed";
                let refuse = |first| Err(refused(&self.path, first, unclosed.to_owned()));
                return first.map_or(Ok(None), refuse);
            };
            if first.is_none() && line.trim_ascii().is_empty() {
                continue;
            }
            let first = *first.get_or_insert(number);
            bytes += line.len() as u64 + 1;
            if bytes > MAX_RECORD_BYTES {
                let why = format!("{}; a quote may be unclosed", records::too_long());
                return Err(refused(&self.path, first, why));
            }
            if self.record.push(line) {
                return Ok(Some(first));
            }
        }
    }
}

struct Record {
    parser: Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
    length: usize,
    fields: usize,
}

impl Record {
    fn new() -> Self {
        // The lines have no line breaks; `push` adds one.
        let parser = ReaderBuilder::new().terminator(Terminator::Any(b'\n')).build();
        Self { parser, text: Vec::new(), ends: Vec::new(), length: 0, fields: 0 }
    }

    /// Adds a line. Returns whether the record ends with it.
    fn push(&mut self, line: &str) -> bool {
        // Unescaped text is no longer than escaped text. A line has at most one field more than
        // commas.
        let (bytes, commas) = (line.len() + 1, line.bytes().filter(|byte| *byte == b',').count());
        self.text.resize(self.text.len().max(self.length + bytes), 0);
        self.ends.resize(self.ends.len().max(self.fields + commas + 1), 0);
        for part in [line.as_bytes(), b"\n"] {
            let (text, ends) = (self.text.get_mut(self.length..), self.ends.get_mut(self.fields..));
            let (Some(text), Some(ends)) = (text, ends) else { return true };
            let (result, _, written, ended) = self.parser.read_record(part, text, ends);
            self.length += written;
            self.fields += ended;
            if matches!(result, ReadRecordResult::Record | ReadRecordResult::End) {
                return true;
            }
        }
        false
    }

    fn field(&self, place: usize) -> &str {
        let end = |place: usize| self.ends.get(place).copied().unwrap_or(0);
        let from = place.checked_sub(1).map_or(0, end);
        // Lines are UTF-8 and are cut at ASCII characters, so fields are also UTF-8.
        self.text
            .get(from..end(place))
            .and_then(|text| std::str::from_utf8(text).ok())
            .unwrap_or_default()
    }
}
