//! The intermediate representation of Mithril: the op table, types, graph, builder, text form,
//! verifier, reference evaluator and diagnostics.

pub mod dim;
pub mod dtype;
pub mod eval;
pub mod scalar;
pub mod tensor;
