//! Turns the chosen terms back into a function.

use egg::Id;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::extract::Extraction;
use super::terms::{Operator, Term, Terms, is_opaque};
use crate::rebuild::Rebuild;

/// Builds the function from the chosen terms. Operations that are kept stay in order.
pub fn function(
    module: &Module,
    source: &Function,
    terms: &Terms,
    extraction: &Extraction,
) -> Result<Function> {
    let rebuild = Rebuild::new(module, source);
    let mut lowering = Lowering { rebuild, terms, extraction, values: FxHashMap::default() };
    for (value, _) in source.arguments() {
        lowering.values.insert(terms.class(value), value);
    }
    for op in &source.ops {
        if is_opaque(op) {
            let operands = op.operands.iter().map(|value| lowering.class(terms.class(*value)));
            let operands: Result<SmallVec<[Value; 3]>> = operands.collect();
            lowering.rebuild.keep_on(op, operands?)?;
            for value in op.results() {
                lowering.values.insert(terms.class(value), lowering.rebuild.value(value));
            }
            continue;
        }
        let class = terms.class(op.result());
        if extraction.chosen.contains_key(&class) {
            let value = lowering.class(class)?;
            lowering.rebuild.replace(op.result(), value);
        }
    }
    lowering.rebuild.finish()
}

struct Lowering<'t, 'f> {
    rebuild: Rebuild<'t>,
    terms: &'t Terms<'f>,
    extraction: &'t Extraction<'t>,
    values: FxHashMap<Id, Value>,
}

impl Lowering<'_, '_> {
    /// The value of a class; emits its operands first.
    fn class(&mut self, class: Id) -> Result<Value> {
        // Uses an explicit stack: chains of terms are as long as the function.
        let mut open = vec![class];
        while let Some(next) = open.last().copied() {
            if self.values.contains_key(&next) {
                open.pop();
                continue;
            }
            let term = self.extraction.chosen[&next];
            let count = open.len();
            let operands = term.operands.iter().rev().map(|id| self.terms.graph.find(*id));
            open.extend(operands.filter(|id| !self.values.contains_key(id)));
            if open.len() > count {
                continue;
            }
            let operands = term.operands.iter();
            let operands = operands.map(|id| self.values[&self.terms.graph.find(*id)]).collect();
            let value = self.term(term, operands)?;
            self.values.insert(next, value);
        }
        Ok(self.values[&class])
    }

    fn term(&mut self, term: &Term, operands: SmallVec<[Value; 3]>) -> Result<Value> {
        let origin = &self.terms.origins[term.origin as usize];
        if let Some(number) = origin.operation {
            let op = &self.rebuild.source.ops[number as usize];
            self.rebuild.keep_on(op, operands)?;
            return Ok(self.rebuild.value(op.result()));
        }
        match self.terms.operator(term) {
            Operator::Leaf(value, _) => Ok(self.rebuild.value(*value)),
            Operator::Op { op, attrs, .. } => {
                self.rebuild.builder.set_loc(origin.loc.clone());
                self.rebuild.builder.push(*op, &operands, attrs.clone())
            }
        }
    }
}
