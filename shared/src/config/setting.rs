//! Tables of the variables that a program reads. Each row has a variable's name, what is allowed,
//! and the field that it sets.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::ConfigError;

/// A variable that sets a part of the configuration `C`.
#[must_use]
pub struct Setting<C> {
    /// The variable's name.
    pub name: &'static str,
    /// What is allowed, for people.
    pub allowed: String,
    is_required: bool,
    get: Box<Get<C>>,
    set: Box<Set<C>>,
}

type Get<C> = dyn Fn(&mut C) -> String + Send + Sync;
type Set<C> = dyn Fn(&mut C, &str) -> Option<()> + Send + Sync;

impl<C: 'static> Setting<C> {
    /// A variable with its setter and getter. `set` sees the values of the rows above, and returns
    /// `None` for a value that is not allowed.
    pub(crate) fn new(
        name: &'static str,
        allowed: impl Into<String>,
        get: impl Fn(&mut C) -> String + Send + Sync + 'static,
        set: impl Fn(&mut C, &str) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        let (get, set) = (Box::new(get), Box::new(set));
        Self { name, allowed: allowed.into(), is_required: false, get, set }
    }

    /// A variable that sets one field. `parse` returns `None` for a value that is not allowed.
    pub fn parsed<T: 'static>(
        name: &'static str,
        allowed: impl Into<String>,
        field: fn(&mut C) -> &mut T,
        parse: impl Fn(&str) -> Option<T> + Send + Sync + 'static,
        show: impl Fn(&T) -> String + Send + Sync + 'static,
    ) -> Self {
        let set = move |config: &mut C, value: &str| {
            *field(config) = parse(value)?;
            Some(())
        };
        Self::new(name, allowed, move |config| show(field(config)), set)
    }

    /// A whole number within these bounds, inclusive.
    pub fn number<T: TryFrom<u64> + ToString + 'static>(
        name: &'static str,
        bounds: RangeInclusive<u64>,
        field: fn(&mut C) -> &mut T,
    ) -> Self {
        let allowed = whole_number(&bounds);
        let parse = move |value: &str| T::try_from(number(value, &bounds)?).ok();
        Self::parsed(name, allowed, field, parse, T::to_string)
    }

    /// A whole number of this unit within these bounds, inclusive.
    pub fn duration(
        name: &'static str,
        unit_ms: u64,
        bounds: RangeInclusive<u64>,
        field: fn(&mut C) -> &mut Duration,
    ) -> Self {
        let allowed = whole_number(&bounds);
        let parse = move |value: &str| number(value, &bounds)?.checked_mul(unit_ms);
        let show = move |time: &Duration| (time.as_millis() / u128::from(unit_ms)).to_string();
        Self::parsed(name, allowed, field, move |v| parse(v).map(Duration::from_millis), show)
    }

    /// One of these names.
    pub fn one_of<T: Copy + PartialEq + Sync>(
        name: &'static str,
        names: &'static [(&'static str, T)],
        field: fn(&mut C) -> &mut T,
    ) -> Self {
        let parse = |text: &str| names.iter().find(|(name, _)| *name == text).map(|row| row.1);
        let show = |value: &T| names.iter().find(|row| row.1 == *value).map_or("", |row| row.0);
        Self::parsed(name, listed(names), field, parse, move |value| show(value).to_owned())
    }

    /// `true` or `false`.
    pub fn flag(name: &'static str, field: fn(&mut C) -> &mut bool) -> Self {
        Self::one_of(name, &[("true", true), ("false", false)], field)
    }

    /// The same variable without a default.
    pub fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// The variable's value in this configuration, as it would be set. `None` if it must be set.
    pub fn value_in(&self, config: &mut C) -> Option<String> {
        (!self.is_required).then(|| (self.get)(config))
    }
}

/// Changes the configuration of defaults by the variables of `lookup`, and fails at the first row
/// that is missing or wrong. An empty value counts as not set.
pub fn read<C>(
    settings: &'static [Setting<C>],
    mut config: C,
    lookup: impl Fn(&'static str) -> Option<String>,
) -> Result<C, ConfigError> {
    for Setting { name: setting, allowed, is_required, set, .. } in settings {
        match lookup(setting).filter(|value| !value.is_empty()) {
            Some(value) => {
                set(&mut config, &value).ok_or(ConfigError::Wrong { setting, value, allowed })?
            }
            None if *is_required => return Err(ConfigError::Missing { setting, allowed }),
            None => {}
        }
    }
    Ok(config)
}

/// A whole number within these bounds.
pub fn number(value: &str, bounds: &RangeInclusive<u64>) -> Option<u64> {
    value.parse().ok().filter(|number| bounds.contains(number))
}

fn whole_number(bounds: &RangeInclusive<u64>) -> String {
    format!("a whole number from {} to {}", bounds.start(), bounds.end())
}

fn listed<T>(names: &[(&'static str, T)]) -> String {
    let names = names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    names.rsplit_once(", ").map_or(names.clone(), |(others, last)| format!("{others} or {last}"))
}
