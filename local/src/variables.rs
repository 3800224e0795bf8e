//! The variables of the functions, from the tables by which the functions read them.

use serde_json::{Value, json};
use shard_scaler::ScalerConfig;
use sharding::TableConfig;
use sharding::variables::{Setting, TABLE};

/// Every variable, for people or as JSON: a list of objects, whose `default` is null if the
/// variable must be set.
#[must_use]
pub fn list(as_json: bool) -> String {
    let mut rows = described("all functions", &*TABLE, TableConfig::new("", ""));
    rows.extend(described("shard-scaler", &*shard_scaler::VARIABLES, ScalerConfig::default()));
    rows.extend(described("writer", &*writer::VARIABLES, None));
    if as_json {
        return format!("{:#}\n", Value::from(rows));
    }
    let for_people = |row: &Value| {
        let text = |member: &str| row[member].as_str().unwrap_or("required").to_owned();
        let (name, read_by, default) = (text("name"), text("read_by"), text("default"));
        format!("{name} ({read_by})\n  default: {default}\n  allowed: {}\n", text("allowed"))
    };
    rows.iter().map(for_people).collect()
}

fn described<C: 'static>(read_by: &str, settings: &[Setting<C>], mut defaults: C) -> Vec<Value> {
    let row = |setting: &Setting<C>| {
        let default = setting.value_in(&mut defaults);
        json!({"name": setting.name, "read_by": read_by, "default": default, "allowed": setting.allowed})
    };
    settings.iter().map(row).collect()
}
