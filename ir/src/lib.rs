//! The intermediate representation of Mithril: the op table, types, graph, builder, text form,
//! verifier, reference evaluator and diagnostics.

pub mod algebra;
pub mod attr;
pub mod builder;
pub mod diagnostic;
pub mod dim;
pub mod dtype;
pub mod eval;
pub mod evaluate;
pub mod external;
pub mod graph;
mod guards;
pub mod loc;
pub mod naming;
pub mod nesting;
pub mod op;
pub mod order;
mod render;
mod retype;
pub mod scalar;
pub mod shape;
pub mod signature;
pub mod symbolic;
pub mod tensor;
pub mod text;
pub mod verify;
