//! The routes of the API. The writer, the reader, the local edition and the checks use this table.

use crate::problem::Problem;

/// The operation of a request, named after its `operationId` in `functions/api/openapi.yaml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "functions/api/openapi.yaml describes each operation")]
pub enum Operation {
    StoreItem,
    StoreItems,
    ReplaceItem,
    UpdateItem,
    DeleteItem,
    GetItem,
    GetItems,
    GetShards,
}

/// The function that serves an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the name of a function")]
pub enum Function {
    Writer,
    Reader,
}

/// Methods and paths, each with its function and operation. `checks/rules/template.py` also
/// reads these rows.
#[rustfmt::skip]
const ROUTES: [(&str, &str, Function, Operation); 8] = [
    ("GET", "/item", Function::Reader, Operation::GetItem),
    ("PUT", "/item", Function::Writer, Operation::ReplaceItem),
    ("PATCH", "/item", Function::Writer, Operation::UpdateItem),
    ("DELETE", "/item", Function::Writer, Operation::DeleteItem),
    ("GET", "/items", Function::Reader, Operation::GetItems),
    ("POST", "/items", Function::Writer, Operation::StoreItem),
    ("POST", "/items/batch", Function::Writer, Operation::StoreItems),
    ("GET", "/shards", Function::Reader, Operation::GetShards),
];

/// Returns the function that serves a request, and its operation. Returns `None` if there is no
/// such route.
#[must_use]
pub fn route(method: &str, path: &str) -> Option<(Function, Operation)> {
    ROUTES.iter().find(|row| (row.0, row.1) == (method, path)).map(|row| (row.2, row.3))
}

/// Returns the problem for a request that matches no route: 405 with the allowed methods if the
/// path exists, otherwise 404.
#[must_use]
pub fn no_route(method: &str, path: &str) -> Problem {
    let methods: Vec<&str> = ROUTES.iter().filter(|row| row.1 == path).map(|row| row.0).collect();
    if methods.is_empty() {
        Problem::no_route(path)
    } else {
        Problem::method(method, path, methods.join(", "))
    }
}
