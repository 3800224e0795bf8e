//! Entity tags: a client's name for the state of an item, and the conditions on it.

use std::fmt;

use crate::protocol::version::Version;
use crate::values::content;
use crate::values::value::Attributes;

/// The state of one item. Two states with the same tag are equal. A tag is text that clients can
/// keep, for example as an HTTP entity tag.
///
/// It is the item's version. An item that another program stored, or an append with an idempotency
/// key, has no version of its own, so its tag also has a digest of the content.
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// use dynamodb_write_sharding::{Attributes, ETag};
///
/// let first = table
///     .put("seats", "14C", Attributes::new())
///     .await?
///     .tag
///     .expect("it was stored by this request");
/// let kept: String = first.to_string();
/// table.delete("seats", "14C").if_match(&ETag::new(&kept)).await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ETag(String);

impl ETag {
    /// The tag of a stored item.
    #[doc(hidden)]
    #[must_use]
    pub fn of(version: Version, attributes: &Attributes) -> Self {
        // An item of another program keeps its tag when a drain moves it.
        let version = if version == Version::ADOPTED { Version::NONE } else { version };
        let of_content = || Self(format!("{version}-{}", content::id(attributes).simple()));
        Self::of_version(version).unwrap_or_else(of_content)
    }

    /// `None` if the version is not the product's own.
    pub(crate) fn of_version(version: Version) -> Option<Self> {
        is_own(version).then(|| Self(version.to_string()))
    }

    /// Accepts a client's text, which may be the tag of nothing.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// If the tag contains nothing else. Another spelling of a version is none.
    pub(crate) fn version(&self) -> Option<Version> {
        Version::parse(&self.0).filter(|version| is_own(*version) && version.to_string() == self.0)
    }
}

/// The product's own versions name one state of an item.
fn is_own(version: Version) -> bool {
    version > Version::LOWEST && version != Version::ADOPTED
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The states that a condition names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ETags {
    /// Any state: the item exists.
    Any,
    /// One of these states.
    Of(Vec<ETag>),
}

impl ETags {
    fn name(&self, current: Option<&ETag>) -> bool {
        current.is_some_and(|current| match self {
            Self::Any => true,
            Self::Of(tags) => tags.contains(current),
        })
    }
}

/// The conditions of a request on an item, as `If-Match` and `If-None-Match` of RFC 9110.
///
/// ```
/// use dynamodb_write_sharding::{Conditions, ETag, ETags};
///
/// let tag = ETag::new("12");
/// let unchanged =
///     Conditions { matches: Some(ETags::Of(vec![tag.clone()])), ..Conditions::default() };
/// assert!(unchanged.hold(Some(&tag)) && !unchanged.hold(None));
/// let absent = Conditions { differs: Some(ETags::Any), ..Conditions::default() };
/// assert!(absent.hold(None) && !absent.hold(Some(&tag)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The item is in one of these states.
    pub matches: Option<ETags>,
    /// The item is in none of these states.
    pub differs: Option<ETags>,
}

impl Conditions {
    pub(crate) fn unchanged_since(tag: &ETag) -> Self {
        Self { matches: Some(ETags::Of(vec![tag.clone()])), differs: None }
    }

    /// No conditions.
    #[must_use]
    pub const fn are_none(&self) -> bool {
        self.matches.is_none() && self.differs.is_none()
    }

    /// Whether the conditions hold for the stored item; `None` if there is none.
    #[must_use]
    pub fn hold(&self, current: Option<&ETag>) -> bool {
        self.matches.as_ref().is_none_or(|tags| tags.name(current))
            && !self.differs.as_ref().is_some_and(|tags| tags.name(current))
    }

    /// The only version for which the conditions hold, if there is one.
    pub(crate) fn only_version(&self) -> Option<Version> {
        match (&self.matches, &self.differs) {
            (Some(ETags::Of(tags)), None) if tags.len() == 1 => tags.first()?.version(),
            _ => None,
        }
    }

    /// Whether they hold exactly if there is no item.
    pub(crate) fn only_absent(&self) -> bool {
        self.matches.is_none() && self.differs == Some(ETags::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::value::Value;

    #[test]
    fn a_tag_without_a_version_of_its_own_is_of_the_content() {
        let one = Attributes::from([("a".to_owned(), Value::Null)]);
        for version in [Version::NONE, Version::LOWEST, Version::ADOPTED] {
            let (empty, full) = (ETag::of(version, &Attributes::new()), ETag::of(version, &one));
            assert_ne!(empty, full);
            assert_eq!((empty.version(), full.version()), (None, None));
        }
        let version = Version::new(3, 7, 9);
        assert_eq!(ETag::of(version, &one).version(), Some(version));
        // Another spelling is another tag.
        assert_eq!(ETag::new(&format!("0{version}")).version(), None);
    }

    #[test]
    fn conditions_name_one_version_only_where_no_other_can_do() {
        let tag = |number: u64| ETag::of(Version::new(1, number, 0), &Attributes::new());
        let of = |tags: Vec<ETag>| Some(ETags::Of(tags));
        let rows = [
            (Conditions { matches: of(vec![tag(1)]), differs: None }, Some(Version::new(1, 1, 0))),
            (Conditions { matches: of(vec![tag(1), tag(2)]), differs: None }, None),
            (Conditions { matches: of(vec![tag(1)]), differs: of(vec![tag(1)]) }, None),
            (Conditions { matches: Some(ETags::Any), differs: None }, None),
            (Conditions { matches: of(vec![]), differs: None }, None),
        ];
        for (conditions, expected) in rows {
            assert_eq!(conditions.only_version(), expected, "{conditions:?}");
        }
        // A weak tag matches nothing.
        assert!(!Conditions { matches: of(vec![]), differs: None }.hold(Some(&tag(1))));
    }
}
