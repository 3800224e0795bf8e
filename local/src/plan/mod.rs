//! `plan`: what a hot key needs and costs, before anything is deployed.

mod prices;

pub use prices::{Evidence, Price, Prices, PricesError};
