//! Requests that fail without a request to DynamoDB, and what they report.

use std::error::Error;

use dynamodb_write_sharding::{Attributes, ReadError, WriteError};
use tokio::time::Instant;

#[expect(unreachable_pub, reason = "the examples of the documentation include it, too")]
mod in_process;

fn assert_says_so(error: &WriteError, which: &str) {
    assert_eq!(error.to_string(), "the deadline passed", "{which}");
    assert!(error.source().is_some(), "{which}: the source says what was missing");
    assert!(error.is_retryable(), "{which}: nothing was changed, so it may be repeated");
    assert_eq!((error.attempts, error.throttled), (0, 0), "{which}");
}

#[test]
fn a_write_without_time_names_the_deadline_and_no_limit() {
    in_process::with_table(async |table| {
        let nothing = Attributes::new;
        let first = table.put("seats", "1A", nothing()).deadline(Instant::now()).await;
        let first = first.expect_err("there is no time to read the table's settings");
        assert_says_so(&first, "the first write");
        table.put("seats", "1A", nothing()).await?;
        let write = table.put("seats", "1B", nothing()).deadline(Instant::now()).await;
        let write = write.expect_err("there is no time to send it");
        assert_says_so(&write, "a later write");
        let absent = table.get::<Attributes>("seats", "1B").consistent(true).await?;
        assert!(absent.is_none(), "nothing was changed");
        Ok(())
    });
}

/// DynamoDB refuses to compare a key with an empty value.
#[test]
fn an_empty_prefix_or_bound_is_never_sent() {
    in_process::with_table(async |table| {
        let query = || table.query::<Attributes>("seats");
        for (what, query) in [
            ("prefix", query().prefix("")),
            ("from", query().from("")),
            ("to", query().to("")),
            ("after", query().after("")),
        ] {
            let refused = query.await.expect_err(what);
            assert!(matches!(refused, ReadError::Invalid(_)), "{what}: {refused}");
        }
        Ok(())
    });
}
