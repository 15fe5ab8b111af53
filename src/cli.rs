//! The commands of the binary.

pub mod check;
pub mod explain;
pub mod schema;

#[cfg(test)]
mod golden;
