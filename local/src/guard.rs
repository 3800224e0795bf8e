//! Rejects requests from web pages of other sites; programs on this machine are accepted.
//!
//! A page of another site can make its own host name resolve to this machine, and can send forms to
//! any server. So a request must name this machine as its host, and a request from a page must come
//! from a page of this server.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use connection::hosts::Hosts;

pub(crate) fn guard(hosts: Hosts, routes: Router) -> Router {
    routes.layer(from_fn_with_state(hosts, check))
}

async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    match rejection(&hosts, request.method(), request.headers()) {
        None => next.run(request).await,
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
    }
}

fn rejection(hosts: &Hosts, method: &Method, headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST);
    if let Some(host) = host
        && !hosts.accepts(host)
    {
        return Some(format!(
            "{host:?} is not a known name of this machine; if it is one, start with --allowed-host\n"
        ));
    }
    let origin = text(ORIGIN)?;
    let of_this_server =
        host.is_some_and(|host| origin.split_once("://").is_some_and(|(_, of)| of == host));
    let changes_nothing = matches!(*method, Method::GET | Method::HEAD);
    (!of_this_server && !changes_nothing)
        .then(|| format!("a page of {origin:?} may not change data on this server\n"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn rejected(method: Method, host: &'static str, origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
        headers.extend(origin.map(|origin| (ORIGIN, HeaderValue::from_static(origin))));
        rejection(&Hosts::new(&["laptop.lan".to_owned()]), &method, &headers).is_some()
    }

    #[test]
    fn only_names_of_this_machine_are_accepted() {
        let own = "127.0.0.1:3000 [::1]:3000 192.168.0.7 localhost:3000 LOCALHOST laptop.lan:8000";
        for host in own.split(' ') {
            assert!(!rejected(Method::POST, host, None), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:3000", "", "a b"] {
            assert!(rejected(Method::GET, host, None), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        let (host, own) = ("localhost:3000", Some("http://localhost:3000"));
        assert!(!rejected(Method::POST, host, own));
        // It cannot read the response.
        assert!(!rejected(Method::GET, host, Some("http://evil.example")));
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:3001",
            "http://localhost:3000.evil.example",
        ] {
            assert!(rejected(Method::POST, host, Some(origin)), "{origin}");
            assert!(rejected(Method::DELETE, host, Some(origin)), "{origin}");
        }
    }
}
