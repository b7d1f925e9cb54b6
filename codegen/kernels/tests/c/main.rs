//! Compiles generated C and compares it with the evaluator.
//!
//! The system's compiler compiles it with UBSan and with warnings as errors. All operations of the
//! table are tested on ordinary numbers, extreme numbers and empty arrays, and with their
//! gradients. They are also tested as programs, with ASan and UBSan, and with each available
//! compiler at each optimization level.

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
