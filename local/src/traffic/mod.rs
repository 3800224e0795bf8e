//! Traffic through the edition's own handlers: a generator of load, and a meter of its outcomes.

mod generator;
mod meter;
mod plan;

pub(crate) use generator::{Generated, Totals, epoch_micros, generate};
pub(crate) use meter::{Latencies, Meter, number};
pub(crate) use plan::LoadPlan;
