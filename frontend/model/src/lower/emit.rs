//! Emits the operations of table blocks.

use mithril_ir::attr::{Attr, AttrKind};
use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Value;
use mithril_ir::op::{self, DTypeRule, Op};
use mithril_ir::shape::Shape;

use super::cx::{Cx, Operand};
use crate::block::Block;
use crate::blocks::{Entry, Meaning, Settings};
use crate::setting::Setting;

impl Cx<'_> {
    /// Emits the operations of an entry. Returns the outputs, then the next states.
    pub fn emit(&self, entry: &Entry) -> Result<Vec<Value>> {
        (entry.needs)(self)?;
        let builder = self.builder;
        let values = match entry.meaning {
            Meaning::Op(name) => {
                let mut values: Vec<Value> = Vec::with_capacity(self.operands.len());
                for operand in self.operands {
                    match operand {
                        Operand::Absent => {}
                        Operand::One(value) => values.push(*value),
                        Operand::List(list) => values.extend(list),
                    }
                }
                let op = op::get(name);
                let value = builder.op(name, &values, &attrs(op, self.settings))?;
                match op.dtype {
                    // Indices are cast to the model's index dtype.
                    DTypeRule::Fixed(DType::I64) if builder.ty(value).dtype != self.index => {
                        vec![builder.var(value).cast(self.index).value]
                    }
                    _ => vec![value],
                }
            }
            Meaning::Lower(lower) => lower(self)?,
            Meaning::Wrap(wrapper) => (wrapper.lower)(self)?,
            Meaning::Compose(_) | Meaning::Body(_) => {
                unreachable!("a block with blocks inside is not a primitive")
            }
        };
        builder.check()?;
        Ok(values)
    }

    /// The shape of an input according to the table's rule.
    pub fn inferred_shape(&self, entry: &Entry, terminal: &str) -> Result<Shape> {
        if let Meaning::Wrap(wrapper) = entry.meaning {
            return (wrapper.shape)(self, terminal);
        }
        let input = entry.inputs.iter().find(|input| input.name == terminal);
        let rule = input.and_then(|i| i.shape).expect("an inferred input has a rule");
        rule(self)
    }

    /// Calls `body` with the operands of a block inside this one, which has the same terminals. The
    /// input of this name has another value, or none.
    pub fn inside<T>(
        &self,
        block: &Block,
        (name, value): (&str, Option<Value>),
        body: impl FnOnce(&Cx, &'static Entry) -> Result<T>,
    ) -> Result<T> {
        let definition = &block.definition;
        let (entry, settings) = definition.origin.as_ref().expect("the block is a table entry");
        let operand = |own: &str| match (own == name, value) {
            (true, Some(value)) => Operand::One(value),
            (true, None) => Operand::Absent,
            (false, _) => self.operand(own).cloned().unwrap_or(Operand::Absent),
        };
        let operands: Vec<Operand> = block.inputs().iter().map(|t| operand(&t.name)).collect();
        let cx = Cx { settings, terminals: block.inputs(), operands: &operands, ..*self };
        body(&cx, entry)
    }
}

/// The attributes of an operation, taken from the parameters of the same names. `axis` becomes
/// `axes` if the operation takes several.
fn attrs(op: Op, settings: &Settings) -> Vec<(&'static str, Attr)> {
    let mut attrs = Vec::new();
    for def in op.0.attrs {
        let own = settings
            .iter()
            .find(|(p, _)| p.name == def.name || (def.name == "axes" && p.name == "axis"));
        let Some((parameter, setting)) = own else {
            continue;
        };
        let value = match (setting, def.kind) {
            (Setting::Bool(v), _) => Attr::Bool(*v),
            (Setting::Int(v), AttrKind::Ints) => Attr::ints([*v]),
            (Setting::Int(v), _) => Attr::Int(*v),
            (Setting::Float(v), _) => Attr::Float(*v),
            (Setting::DType(v), _) => Attr::DType(*v),
            (Setting::List(_), _) => Attr::ints(settings.ints(parameter.name).unwrap_or_default()),
            _ => Attr::None,
        };
        attrs.push((def.name, value));
    }
    attrs
}
