//! The endpoint over the embedded engine, beside the engine itself.

mod cases;
mod claim;
mod expressions;
mod http_checks;
mod indexes;
mod late;
mod observed;
mod reads;
mod recorded;
mod scans;
mod world;
