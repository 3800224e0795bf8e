//! Who may ask: programs of this machine, and not the pages of other sites that its browser shows.
//!
//! A page can have its own host name resolve to this machine, and can send forms anywhere. So a request must name this machine as its
//! host, and one that a page sends must come from a page of this server.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

/// Host names that are taken besides addresses.
#[derive(Debug, Clone)]
pub(crate) struct Hosts(Arc<[String]>);

impl Hosts {
    /// `localhost` and these.
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| name.to_ascii_lowercase()).chain(["localhost".to_owned()]).collect())
    }

    /// Puts the guard in front of all routes.
    pub(crate) fn guard(self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self, check))
    }

    fn takes(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }
}

async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    match refusal(&hosts, request.method(), request.headers()) {
        None => next.run(request).await,
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
    }
}

fn refusal(hosts: &Hosts, method: &Method, headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST);
    if let Some(host) = host
        && !hosts.takes(host)
    {
        return Some(format!("{host:?} is no name of this machine; if it is, start with --allowed-host\n"));
    }
    let origin = text(ORIGIN)?;
    let of_this_server = host.is_some_and(|host| origin.split_once("://").is_some_and(|(_, of)| of == host));
    let changes_nothing = matches!(*method, Method::GET | Method::HEAD);
    (!of_this_server && !changes_nothing).then(|| format!("a page of {origin:?} may not change anything here\n"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn refused(method: Method, host: &'static str, origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
        headers.extend(origin.map(|origin| (ORIGIN, HeaderValue::from_static(origin))));
        refusal(&Hosts::new(&["laptop.lan".to_owned()]), &method, &headers).is_some()
    }

    #[test]
    fn only_names_of_this_machine_are_taken() {
        for host in ["127.0.0.1:3000", "[::1]:3000", "192.168.0.7", "localhost:3000", "LOCALHOST", "laptop.lan:8000"] {
            assert!(!refused(Method::POST, host, None), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:3000", "", "a b"] {
            assert!(refused(Method::GET, host, None), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        let (host, own) = ("localhost:3000", Some("http://localhost:3000"));
        assert!(!refused(Method::POST, host, own));
        assert!(!refused(Method::GET, host, Some("http://evil.example")), "it cannot read the answer");
        for origin in ["http://evil.example", "null", "http://localhost:3001", "http://localhost:3000.evil.example"] {
            assert!(refused(Method::POST, host, Some(origin)), "{origin}");
            assert!(refused(Method::DELETE, host, Some(origin)), "{origin}");
        }
    }
}
