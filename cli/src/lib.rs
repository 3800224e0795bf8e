//! Code that the command-line programs share: reading records and what an endpoint has observed, and
//! printing.

pub mod numbers;
pub mod observed;
pub mod output;
pub mod records;
