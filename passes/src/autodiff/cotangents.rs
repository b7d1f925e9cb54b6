//! Accumulates the cotangents of values.

use mithril_ir::algebra::Var;
use mithril_ir::builder::Builder;
use mithril_ir::graph::Value;
use rustc_hash::FxHashMap;

/// The cotangent of each value accumulated so far.
#[derive(Default)]
pub struct Cotangents(pub FxHashMap<Value, Value>);

impl Cotangents {
    pub fn add(&mut self, builder: &Builder, value: Value, more: Var) -> Value {
        let sum = match self.0.get(&value) {
            Some(sum) => (builder.var(*sum) + more).value,
            None => more.value,
        };
        self.0.insert(value, sum);
        sum
    }
}
