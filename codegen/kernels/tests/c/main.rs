//! Generated C, compiled by the system's compiler under UBSan with every warning as an error: every
//! operation of the table against the evaluator, on numbers, on extremes, on no elements, and its
//! gradients; and again as programs, under ASan and UBSan, and as each compiler that is there makes
//! them at each level of optimization.

mod builds;
#[path = "../../../../ir/tests/cases/mod.rs"]
mod cases;
mod compiled;
mod gradients;
mod operations;
mod programs;
mod sanitized;
mod standalone;
#[path = "../uses/mod.rs"]
mod uses;
