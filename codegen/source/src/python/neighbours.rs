//! Finds related operations of a function: those that read the same operands, and those that read a
//! result.

use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::Kind;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The operations of a function by the values that they read, as indices in program order.
pub struct Neighbours<'m> {
    function: &'m Function,
    /// The operations that read each value, once each.
    readers: Vec<SmallVec<[u32; 2]>>,
    /// Operations by name and operands.
    siblings: FxHashMap<(&'static str, &'m [Value]), SmallVec<[u32; 1]>>,
    /// Composites by operands.
    composites: FxHashMap<&'m [Value], SmallVec<[u32; 1]>>,
}

impl<'m> Neighbours<'m> {
    pub fn of(function: &'m Function) -> Neighbours<'m> {
        let mut readers = vec![SmallVec::new(); function.values.len()];
        let (mut siblings, mut composites) = (FxHashMap::default(), FxHashMap::default());
        for (at, op) in function.ops.iter().enumerate() {
            let at = at as u32;
            for value in &op.operands {
                let own: &mut SmallVec<[u32; 2]> = &mut readers[value.index()];
                if own.last() != Some(&at) {
                    own.push(at);
                }
            }
            let operands = &op.operands[..];
            let alike: &mut SmallVec<_> = siblings.entry((op.op.0.name, operands)).or_default();
            alike.push(at);
            if op.op.kind == Kind::Composite {
                let alike: &mut SmallVec<_> = composites.entry(operands).or_default();
                alike.push(at);
            }
        }
        Neighbours { function, readers, siblings, composites }
    }

    fn numbered<'a>(
        &'a self,
        numbers: Option<&'a [u32]>,
    ) -> impl Iterator<Item = &'m Operation> + use<'a, 'm> {
        let function = self.function;
        numbers.unwrap_or(&[]).iter().map(move |at| &function.ops[*at as usize])
    }

    /// The operations that read a value, in order.
    pub fn readers(&self, value: Value) -> impl Iterator<Item = &'m Operation> + '_ {
        self.numbered(Some(&self.readers[value.index()]))
    }

    /// The operation that computes a value; `None` for an argument.
    pub fn producer(&self, value: Value) -> Option<&'m Operation> {
        let ops = &self.function.ops;
        let at = ops.partition_point(|op| op.first.index() <= value.index());
        ops.get(at.checked_sub(1)?).filter(|op| op.results().any(|own| own == value))
    }

    /// The operations of this name on these operands, in order.
    pub fn siblings<'a>(
        &'a self,
        name: &'a str,
        operands: &'a [Value],
    ) -> impl Iterator<Item = &'m Operation> + use<'a, 'm> {
        let known = self.siblings.get(&(name, operands));
        self.numbered(known.map(|numbers| &numbers[..]))
    }

    /// The composites on these operands, in order.
    pub fn composites<'a>(
        &'a self,
        operands: &'a [Value],
    ) -> impl Iterator<Item = &'m Operation> + use<'a, 'm> {
        self.numbered(self.composites.get(operands).map(|numbers| &numbers[..]))
    }
}
