//! A key's metadata item, as attributes and back, and requests to the metadata table: reads,
//! records of the load, and transitions as compare-and-sets on the generation.

use aws_sdk_dynamodb::types::AttributeValue;

use crate::protocol::growth::GrowthRecord;
use crate::protocol::history::ShardHistory;
use crate::protocol::layout::{FIRST_ERA, MAX_GENERATION};
use crate::protocol::load::Load;
use crate::protocol::metadata::{Drain, Phase, ShardMetadata};
use crate::protocol::names::{
    BUSY_AT, CLOSING, DRAIN, DRAIN_STOPPED_AT, DRAINED_AT, DRAINING, ERA, FRUITLESS_GROWTHS,
    GENERATION, LAST_UPDATED, LOAD_MINUTE, LOAD_PER_SHARD, LOAD_UNITS, NUMBER_OF_SHARDS,
    READ_SHARDS, REJECTED_PERCENT, SETTLED, SHARD_HISTORY, SHRUNK_AT, UNMOVABLE_AT, UNPURGED,
};
use crate::table::attributes::{SdkItem, number};
use crate::table::error::{TableError, unless_refused};
use crate::table::{Expression, Table, Tables};
use crate::values::key::{KeyError, PartitionKey, ShardCount};

const MAX_NOTE_ATTEMPTS: u32 = 4;
const MAX_LISTED_KEYS: i32 = 500;
/// Writers record a key's demand in them, independent of the generation.
const LOAD_ATTRIBUTES: [&str; 4] = [LOAD_MINUTE, LOAD_UNITS, LOAD_PER_SHARD, BUSY_AT];
const COMPARED_ATTRIBUTES: [&str; 7] =
    [NUMBER_OF_SHARDS, READ_SHARDS, ERA, GENERATION, CLOSING, DRAINING, DRAIN];

/// The highest era that fits into a version: 11 digits.
const MAX_ERA: u64 = 99_999_999_999;

/// It may be damaged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawMetadata(SdkItem);

impl RawMetadata {
    /// An item that another program stored may have only the widths and their history.
    /// [`TableError::Damaged`] if an attribute cannot be parsed, or if attributes contradict each
    /// other.
    pub(crate) fn parse(&self) -> Result<ShardMetadata, TableError> {
        let number = |name| Ok::<_, TableError>(self.number(name)?.unwrap_or_default());
        let small = |name| u32::try_from(number(name)?).map_err(|_| damaged(name));
        let number_of_shards =
            self.count(NUMBER_OF_SHARDS)?.ok_or_else(|| damaged(NUMBER_OF_SHARDS))?;
        let history = ShardHistory::parse(self.entries()?.iter().map(String::as_str));
        let phase = match (self.count(CLOSING)?, self.flag(DRAINING)?) {
            (None, false) => Phase::Open,
            (Some(to), false) => Phase::Closing(to),
            (None, true) => {
                let text = self.0.get(DRAIN).and_then(|value| value.as_s().ok());
                let drain = text.and_then(|text| drain_from_str(text));
                Phase::Draining(drain.ok_or_else(|| damaged(DRAIN))?)
            }
            (Some(_), true) => {
                let why = format!("{CLOSING} and {DRAINING} exclude each other");
                return Err(TableError::Damaged(why));
            }
        };
        let metadata = ShardMetadata {
            number_of_shards,
            read_shards: self.count(READ_SHARDS)?.unwrap_or(number_of_shards),
            era: self.number(ERA)?.unwrap_or(FIRST_ERA),
            generation: number(GENERATION)?,
            phase,
            shard_history: history.map_err(|error| TableError::Damaged(error.to_string()))?,
            last_updated: number(LAST_UPDATED)?,
            settled: self.flag(SETTLED)?,
            unpurged: self.flag(UNPURGED)?,
            drain_stopped_at: self.number(DRAIN_STOPPED_AT)?,
            drained_at: self.number(DRAINED_AT)?,
            shrunk_at: self.number(SHRUNK_AT)?,
            unmovable_at: self.number(UNMOVABLE_AT)?,
            load: Load {
                minute: number(LOAD_MINUTE)?,
                units: number(LOAD_UNITS)?,
                per_shard: number(LOAD_PER_SHARD)?,
                busy_at: number(BUSY_AT)?,
            },
            growth: GrowthRecord {
                rejected_percent: small(REJECTED_PERCENT)?,
                fruitless: small(FRUITLESS_GROWTHS)?,
            },
        };
        check(&metadata)?;
        Ok(metadata)
    }

    /// The parts of a damaged item that can be parsed, with `nothing` for the others. A rebuild
    /// begins a later generation and era.
    pub(crate) fn readable_parts(&self, nothing: ShardMetadata) -> ShardMetadata {
        let widths = [NUMBER_OF_SHARDS, READ_SHARDS, CLOSING];
        let widths = widths.into_iter().filter_map(|name| self.count(name).ok()?);
        let number = |name| self.number(name).ok().flatten();
        let era = number(ERA).filter(|era| (FIRST_ERA..MAX_ERA).contains(era));
        let entries = self.entries().unwrap_or_default().iter().map(String::as_str);
        let entries = entries.filter(|entry| ShardHistory::parse([*entry]).is_ok());
        ShardMetadata {
            read_shards: widths.fold(nothing.read_shards, ShardCount::max),
            generation: number(GENERATION).unwrap_or_default().min(MAX_GENERATION / 2),
            era: era.unwrap_or(nothing.era),
            shard_history: ShardHistory::parse(entries).unwrap_or_default(),
            ..nothing
        }
    }

    /// The attributes that identify a damaged item, which may have no generation to compare.
    fn compared(&self) -> impl Iterator<Item = (&'static str, Option<&AttributeValue>)> {
        COMPARED_ATTRIBUTES.into_iter().map(move |name| (name, self.0.get(name)))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, TableError> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        value.as_n().ok().and_then(|text| text.parse().ok()).map(Some).ok_or_else(|| damaged(name))
    }

    fn count(&self, name: &str) -> Result<Option<ShardCount>, TableError> {
        let Some(number) = self.number(name)? else { return Ok(None) };
        u32::try_from(number).ok().and_then(ShardCount::new).map(Some).ok_or_else(|| damaged(name))
    }

    fn flag(&self, name: &str) -> Result<bool, TableError> {
        let Some(value) = self.0.get(name) else { return Ok(false) };
        value.as_bool().copied().map_err(|_| damaged(name))
    }

    fn entries(&self) -> Result<&[String], TableError> {
        let Some(value) = self.0.get(SHARD_HISTORY) else { return Ok(&[]) };
        value.as_ss().map(Vec::as_slice).map_err(|_| damaged(SHARD_HISTORY))
    }
}

fn damaged(name: &str) -> TableError {
    TableError::Damaged(format!("the metadata attribute {name} is missing or unusable"))
}

/// Every attribute of a key's metadata except the load; `None` for one that must be absent.
fn attributes(metadata: &ShardMetadata) -> Vec<(&'static str, Option<AttributeValue>)> {
    let flag = |is_set: bool| is_set.then_some(AttributeValue::Bool(true));
    let history = metadata.shard_history.to_strings();
    let growth = Some(metadata.growth).filter(|growth| *growth != GrowthRecord::default());
    let drain = metadata.draining();
    vec![
        (NUMBER_OF_SHARDS, Some(number(metadata.number_of_shards))),
        (READ_SHARDS, Some(number(metadata.read_shards))),
        (LAST_UPDATED, Some(number(metadata.last_updated))),
        // DynamoDB does not store empty sets.
        (SHARD_HISTORY, (!history.is_empty()).then_some(AttributeValue::Ss(history))),
        (ERA, (metadata.era != FIRST_ERA).then(|| number(metadata.era))),
        (GENERATION, Some(number(metadata.generation))),
        (CLOSING, metadata.closing().map(number)),
        (DRAINING, flag(drain.is_some())),
        (DRAIN, drain.map(|drain| AttributeValue::S(drain_to_string(drain)))),
        (DRAIN_STOPPED_AT, metadata.drain_stopped_at.map(number)),
        (DRAINED_AT, metadata.drained_at.map(number)),
        (SHRUNK_AT, metadata.shrunk_at.map(number)),
        (UNMOVABLE_AT, metadata.unmovable_at.map(number)),
        (SETTLED, flag(metadata.settled)),
        (UNPURGED, flag(metadata.unpurged)),
        (REJECTED_PERCENT, growth.map(|growth| number(growth.rejected_percent))),
        (FRUITLESS_GROWTHS, growth.map(|growth| number(growth.fruitless))),
    ]
}

fn drain_to_string(drain: Drain) -> String {
    let at = |at: Option<u64>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let in_doubt = if drain.in_doubt { " in_doubt" } else { "" };
    format!("{} {} {}{in_doubt}", drain.began, at(drain.busy_until), at(drain.emptied_at))
}

fn drain_from_str(text: &str) -> Option<Drain> {
    let at = |word: &str| if word == "-" { Some(None) } else { word.parse().ok().map(Some) };
    let (times, in_doubt) =
        text.strip_suffix(" in_doubt").map_or((text, false), |times| (times, true));
    let [began, busy_until, emptied_at] = times.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    Some(Drain {
        began: at(began)??,
        busy_until: at(busy_until)?,
        in_doubt,
        emptied_at: at(emptied_at)?,
    })
}

fn check(metadata: &ShardMetadata) -> Result<(), TableError> {
    let ShardMetadata { number_of_shards: written, read_shards: read, era, phase, .. } = metadata;
    // In the first era the read width is above the write width only while a change is running, or
    // after a drain that an earlier version began was stopped.
    let is_idle = *era == FIRST_ERA && *phase == Phase::Open && metadata.drain_stopped_at.is_none();
    let damage = if *era < FIRST_ERA || *era > MAX_ERA {
        format!("{ERA} {era} is not a number from {FIRST_ERA} to {MAX_ERA}")
    } else if metadata.generation > MAX_GENERATION {
        format!("{GENERATION} {} is above {MAX_GENERATION}", metadata.generation)
    } else if read < written {
        format!("{READ_SHARDS} {read} is below {NUMBER_OF_SHARDS} {written}")
    } else if let Some(to) = metadata.closing().filter(|to| to > read) {
        format!("{CLOSING} {to} is above {READ_SHARDS} {read}")
    } else if read > written && is_idle {
        format!(
            "{READ_SHARDS} {read} is above {NUMBER_OF_SHARDS} {written} without a width change: \
             an expansion that was written by an earlier version of this product"
        )
    } else {
        return Ok(());
    };
    Err(TableError::Damaged(damage))
}

impl Tables {
    /// Strongly consistent. `None` where the key has no item.
    pub(crate) async fn get_metadata(
        &self,
        key: &PartitionKey,
    ) -> Result<Option<ShardMetadata>, TableError> {
        self.get_raw_metadata(key).await?.map(|raw| raw.parse()).transpose()
    }

    /// As [`get_metadata`](Self::get_metadata), valid or not.
    pub(crate) async fn get_raw_metadata(
        &self,
        key: &PartitionKey,
    ) -> Result<Option<RawMetadata>, TableError> {
        Ok(self.get_metadata_item(key.as_str()).await?.map(RawMetadata))
    }

    /// A page of all metadata, strongly consistent, valid or not, and the key to continue after.
    pub(crate) async fn list_metadata(
        &self,
        after: Option<&PartitionKey>,
    ) -> Result<(Vec<(PartitionKey, RawMetadata)>, Option<PartitionKey>), TableError> {
        let (mut keys, mut start) = (Vec::new(), after.map(|key| self.metadata_key(key.as_str())));
        loop {
            let scan = self
                .client
                .scan()
                .table_name(&self.config.metadata_table_name)
                .limit(MAX_LISTED_KEYS)
                .consistent_read(true);
            let scan = scan.set_exclusive_start_key(start);
            let answer = self.ask(Table::Metadata, scan.send()).await?;
            for item in answer.items.unwrap_or_default() {
                if let Some(key) = self.logical_key(&item)? {
                    keys.push((key, RawMetadata(item)));
                }
            }
            let Some(last) = answer.last_evaluated_key else { return Ok((keys, None)) };
            match self.logical_key(&last)? {
                // A caller cannot continue after the table item or a page of the directory.
                None => start = Some(last),
                next => return Ok((keys, next)),
            }
        }
    }

    /// `None` for the table item and the pages of the directory.
    fn logical_key(&self, item: &SdkItem) -> Result<Option<PartitionKey>, TableError> {
        match PartitionKey::new(&self.stored_key(item)?) {
            Ok(key) => Ok(Some(key)),
            Err(KeyError::Reserved) => Ok(None),
            Err(error) => {
                Err(TableError::Damaged(format!("the key of a metadata item is unusable: {error}")))
            }
        }
    }

    /// Adds write units to the key's units of this minute, and judges the minute before. No width
    /// depends on it alone, so the generation does not change. If other instances always win, the
    /// units are dropped.
    pub(crate) async fn note_load(
        &self,
        key: &PartitionKey,
        minute: u64,
        units: u64,
    ) -> Result<(), TableError> {
        // The recorded minute, as far as it is known.
        let mut noted = minute;
        for _ in 0..MAX_NOTE_ATTEMPTS {
            let added = Expression::of("#m = :noted")
                .names([("#m", LOAD_MINUTE), ("#u", LOAD_UNITS)])
                .numbers([(":noted", noted), (":units", units)])
                .updating("SET #u = #u + :units");
            if unless_refused(self.change_metadata(key.as_str(), added).await)?.is_some() {
                return Ok(());
            }
            let before = self.get_metadata(key).await?.ok_or(TableError::ConditionFailed)?;
            if before.load.takes(minute) {
                noted = before.load.minute;
                continue;
            }
            let minute_before =
                (before.load != Load::default()).then(|| number(before.load.minute));
            let exists = Expression::of("attribute_exists(#n)").name("#n", NUMBER_OF_SHARDS);
            let same = exists.and_same([(LOAD_MINUTE, minute_before.as_ref())]);
            let next = before.load.next(before.number_of_shards, minute, units);
            let values =
                [next.minute, next.units, next.per_shard, next.busy_at].map(|n| Some(number(n)));
            let begun = same.setting(LOAD_ATTRIBUTES.into_iter().zip(values));
            if unless_refused(self.change_metadata(key.as_str(), begun).await)?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes a transition as one compare-and-set. The stored item must still have the generation
    /// of `seen`; without `seen` there must be no item; or it must be the given damaged item. The
    /// recorded load is kept, unless the whole item is written anew.
    /// [`TableError::ConditionFailed`] if another actor was first. After [`TableError::Transient`]
    /// the transition may have been applied.
    pub(crate) async fn write_metadata(
        &self,
        key: &PartitionKey,
        seen: Option<&ShardMetadata>,
        damaged: Option<&RawMetadata>,
        next: &ShardMetadata,
    ) -> Result<(), TableError> {
        let mut stored = attributes(next);
        if seen.is_none() || damaged.is_some() {
            stored.extend(LOAD_ATTRIBUTES.map(|name| (name, None)));
        }
        let key_name = &self.config.partition_key_name;
        let condition = match (damaged, seen) {
            (Some(raw), _) => {
                Expression::of("attribute_exists(#p)").name("#p", key_name).and_same(raw.compared())
            }
            (None, None) => Expression::absent(key_name),
            // Another program wrote it without a generation, so the condition uses the width.
            (None, Some(seen)) if seen.generation == 0 => {
                Expression::of("attribute_not_exists(#g) AND #n = :seen")
                    .names([("#g", GENERATION), ("#n", NUMBER_OF_SHARDS)])
                    .value(":seen", number(seen.number_of_shards))
            }
            (None, Some(seen)) => Expression::of("#g = :seen")
                .name("#g", GENERATION)
                .numbers([(":seen", seen.generation)]),
        };
        self.change_metadata(key.as_str(), condition.setting(stored)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::metadata::Change;
    use crate::protocol::names::METADATA_ATTRIBUTES;
    use crate::values::key::tests::count as shards;

    fn stored(metadata: &ShardMetadata) -> SdkItem {
        let stored = attributes(metadata).into_iter();
        stored.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    fn item(numbers: &[(&str, u64)]) -> SdkItem {
        numbers.iter().map(|(name, n)| ((*name).to_owned(), number(*n))).collect()
    }

    fn parse(item: &SdkItem) -> Result<ShardMetadata, TableError> {
        RawMetadata(item.clone()).parse()
    }

    #[test]
    fn every_state_of_a_key_is_read_as_it_was_written() {
        let growth = GrowthRecord { rejected_percent: 30, fruitless: 1 };
        let changes = [
            Change::Register,
            Change::Close { to: shards(8), growth },
            Change::Open,
            Change::Close { to: shards(2), growth: GrowthRecord::default() },
            Change::Open,
            Change::BeginDrain { busy_until: 90 },
            Change::StopDrain { unmovable: true },
            Change::MarkDrain,
            Change::BeginDrain { busy_until: 95 },
            Change::Emptied,
            Change::FinishDrain { keep_first: false },
            Change::BeginPurge,
        ];
        let mut metadata = ShardMetadata::unregistered();
        for (change, now) in changes.iter().zip(10..) {
            metadata = metadata.apply(change, now).unwrap();
            assert_eq!(parse(&stored(&metadata)).unwrap(), metadata, "after {change:?}");
        }
        let set_or_removed = attributes(&metadata).into_iter().map(|(name, _)| name);
        let all: Vec<&str> = set_or_removed.chain(LOAD_ATTRIBUTES).collect();
        assert!(METADATA_ATTRIBUTES.starts_with(&all), "{all:?}");
    }

    #[test]
    fn a_drain_can_be_read_by_a_person() {
        let marked = Drain { began: 10, busy_until: None, in_doubt: false, emptied_at: None };
        let begun = Drain { busy_until: Some(20), ..marked };
        let emptied = Drain { emptied_at: Some(30), in_doubt: true, ..begun };
        let rows = [(marked, "10 - -"), (begun, "10 20 -"), (emptied, "10 20 30 in_doubt")];
        for (drain, text) in rows {
            assert_eq!(drain_to_string(drain), text);
            assert_eq!(drain_from_str(text), Some(drain));
        }
        for text in ["", "10 20", "- 20 -", "10 20 x", "10 20 30 40", "10  20 30"] {
            assert_eq!(drain_from_str(text), None, "{text}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_damaged() {
        let with =
            |name: &'static str, n| item(&[(NUMBER_OF_SHARDS, 2), (READ_SHARDS, 4), (name, n)]);
        let draining = |mut item: SdkItem, drain: &str| {
            item.insert(DRAINING.to_owned(), AttributeValue::Bool(true));
            item.insert(DRAIN.to_owned(), AttributeValue::S(drain.into()));
            item
        };
        let rows = [
            (item(&[(READ_SHARDS, 2)]), "number_of_shards is missing"),
            (with(READ_SHARDS, 1), "read_shards 1 is below number_of_shards 2"),
            (with(GENERATION, 1), "written by an earlier version"),
            (with(ERA, 0), "era 0 is not"),
            (with(ERA, 100_000_000_000), "era 100000000000 is not"),
            (with(CLOSING, 0), "closing is missing or unusable"),
            (with(CLOSING, 5), "closing 5 is above read_shards 4"),
            (with(CLOSING, 5_000_000_000), "closing is missing or unusable"),
            (draining(with(CLOSING, 4), "1 - -"), "exclude each other"),
            (draining(with(ERA, 3), "shrink@10 copy_home 20 3"), "drain is missing or unusable"),
        ];
        for (item, expected) in rows {
            let message = parse(&item).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(parse(&with(CLOSING, 4)).is_ok());
        assert!(parse(&with(ERA, 3)).is_ok(), "the drain of a lower width has not begun");
    }

    #[test]
    fn of_a_damaged_item_is_taken_what_can_be_read() {
        let mut damaged = item(&[(NUMBER_OF_SHARDS, 2), (CLOSING, 8), (GENERATION, 7), (ERA, 4)]);
        damaged.insert(READ_SHARDS.to_owned(), AttributeValue::S("x".into()));
        damaged
            .insert(SHARD_HISTORY.to_owned(), AttributeValue::Ss(vec!["20:4".into(), "x".into()]));
        assert!(parse(&damaged).is_err());
        let read = RawMetadata(damaged).readable_parts(ShardMetadata::unregistered());
        assert_eq!((read.read_shards, read.era, read.generation), (shards(8), 4, 7));
        assert_eq!(read.shard_history.to_strings(), ["20:4"]);
    }
}
