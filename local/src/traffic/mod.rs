//! Traffic through the edition's own handlers: a meter of what becomes of it, and a generator.

mod generator;
mod meter;
mod plan;

pub(crate) use generator::{Generated, epoch_micros, generate, request};
pub(crate) use meter::{Counts, Latencies, Meter};
pub(crate) use plan::LoadPlan;
