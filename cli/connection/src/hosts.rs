//! The host names of this machine. A page of another site can make its own name resolve to this
//! machine, so a server accepts only requests that name it.

use std::net::IpAddr;
use std::sync::Arc;

use http::uri::Authority;

/// The accepted host names. Addresses are always accepted.
#[derive(Debug, Clone)]
pub struct Hosts(Arc<[String]>);

impl Hosts {
    /// Accepts `localhost` and these names.
    pub fn new(names: &[String]) -> Self {
        let names = names.iter().map(|name| name.to_ascii_lowercase());
        Self(names.chain(["localhost".to_owned()]).collect())
    }

    /// Whether a `Host` header names this machine.
    pub fn accepts(&self, host: &str) -> bool {
        let Ok(parsed) = host.parse::<Authority>() else { return false };
        let name = parsed.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }
}
