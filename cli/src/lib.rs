//! Code that the command-line programs share: reading records, and printing.

pub mod numbers;
pub mod output;
pub mod records;
