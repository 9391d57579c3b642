//! The device against a real kernel driver. Where this machine has no adapter each test says so and passes;
//! `cargo xtask test fabric/verbs` runs them in a virtual machine that has one, and over the adapter of `tests/adapter`.

mod asked_for;
#[path = "../fixture/mod.rs"]
mod fixture;
mod groups;
mod killed;
mod limits;
mod one_machine;
mod side;
mod two_machines;
mod xrc;
