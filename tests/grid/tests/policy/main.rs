//! What the policy does on a few cells, in one program, so that its tests run beside each other.

mod relief;
mod takeover;
