//! The commands of the binary.

pub mod check;
pub mod explain;
pub mod hit;
pub mod schema;

#[cfg(test)]
mod golden;
