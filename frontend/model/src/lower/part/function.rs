//! Lowers a function of a `.mir` text to a call.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Name, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Value};
use mithril_ir::op;
use mithril_ir::shape::Type;
use mithril_ir::signature::{Binding, bind_known};

use crate::lower::Mode;
use crate::lower::block_error::{BlockError, BlockResult};
use crate::lower::instance::frame::Frame;
use crate::lower::part::NetValue;
use crate::model::seal::{Feed, Part};
use crate::text_function::TextFunction;

/// An operand of a call.
enum Operand {
    Typed(Value),
    /// An input whose type follows from those of the other operands.
    Untyped {
        value: Value,
        net: u32,
    },
}

impl<'a> Frame<'a, '_> {
    pub(super) fn function(
        &mut self,
        part: &'a Part,
        function: &Arc<TextFunction>,
    ) -> BlockResult<()> {
        let callee = self.lowering.text_function(function, self.float_of(part));
        let called = callee.and_then(|callee| {
            self.call_function(part, &callee).map_err(|mut error| {
                // Messages name the function as the user does.
                error.diagnostic.rename(&|name| match name {
                    Name::Function(own) if *own == callee.name => Some(function.name.to_string()),
                    Name::Function(_) | Name::Operation(_) | Name::Operand(_) => None,
                });
                error
            })
        });
        called.map_err(|error: Box<BlockError>| {
            error.of_block(&part.name, &part.definition, self.contexts(part, &[]))
        })
    }

    fn call_function(&mut self, part: &'a Part, callee: &Function) -> BlockResult<()> {
        let operands = self.function_operands(part, callee)?;
        let attrs = [Attr::Function(callee.name.clone())].into_iter().collect();
        let values = self.builder.call(op::get("call"), callee, attrs, &operands)?;
        let mut nets = part.outputs.iter().flatten();
        for (result, value) in callee.results.iter().zip(values) {
            let Some(state) = &result.state else {
                let net = nets.next().expect("an output for each result");
                self.bind(*net, value)?;
                continue;
            };
            let state = callee.args.iter().position(|argument| argument.name == *state);
            if let (Some(at), Mode::Training) = (state, self.lowering.options.mode) {
                self.next_state(&part.inputs[at], value);
            }
        }
        Ok(())
    }

    /// The dtype that `float` stands for in this call.
    fn float_of(&self, part: &Part) -> DType {
        Some(self.shared_dtype(part))
            .filter(|dtype| dtype.is_float())
            .unwrap_or(self.lowering.numerics.float)
    }

    fn function_operands(&mut self, part: &Part, callee: &Function) -> BlockResult<Vec<Value>> {
        let mut operands: Vec<Operand> = Vec::with_capacity(part.inputs.len());
        for (at, feed) in part.inputs.iter().enumerate() {
            operands.push(match feed {
                Feed::Key => Operand::Typed(self.key(part)?),
                Feed::Net(net) => self.call_operand(part, callee, at, *net)?,
                Feed::Absent | Feed::List(_) => {
                    unreachable!("inputs of functions are neither optional nor lists")
                }
            });
        }
        let ty = |operand: &Operand| match operand {
            Operand::Typed(value) => Some(self.builder.ty(*value)),
            Operand::Untyped { .. } => None,
        };
        let types: Vec<Option<Type>> = operands.iter().map(ty).collect();
        let binding = match types.iter().all(Option::is_some) {
            true => Binding::default(),
            false => bind_known(callee, &types, &mut Vec::new())?,
        };
        let mut values = Vec::with_capacity(operands.len());
        for (at, operand) in operands.into_iter().enumerate() {
            let (value, net) = match operand {
                Operand::Typed(value) => {
                    values.push(value);
                    continue;
                }
                Operand::Untyped { value, net } => (value, net),
            };
            let want = callee.ty(callee.arg(at));
            if !binding.knows_shape(&want.shape) {
                let name = &part.definition.inputs[at].name;
                return Err(Diagnostic::of(
                    ErrorKind::Shapes,
                    format!("the shape of `{name}` cannot be inferred"),
                )
                .expected(want)
                .hint("give it with `shapes=`")
                .into());
            }
            self.set_type(net, value, binding.ty(want))?;
            values.push(value);
        }
        Ok(values)
    }

    /// The operand of an argument.
    fn call_operand(
        &mut self,
        part: &Part,
        callee: &Function,
        at: usize,
        net: u32,
    ) -> BlockResult<Operand> {
        let want = callee.ty(callee.arg(at)).clone();
        let value = match self.net_value(net)? {
            NetValue::Untyped(value) => return Ok(Operand::Untyped { value, net }),
            NetValue::Value(value) => value,
            NetValue::Literal(literal) => match literal.in_dtype(want.dtype) {
                Some(tensor) => self.builder.constant(tensor),
                None => {
                    let name = &part.definition.inputs[at].name;
                    return Err(literal.conversion_error(name, want.dtype).into());
                }
            },
        };
        has_rank(&self.builder.ty(value), &want)?;
        Ok(Operand::Typed(value))
    }
}

/// Checks the rank of an operand. Errors: it is not known, or too small.
fn has_rank(operand: &Type, want: &Type) -> Result<()> {
    if operand.shape.lead.is_some() {
        operand.shape.need_trailing(want.shape.dims.len())?;
        if want.shape.lead.is_none() {
            operand.shape.need_rank()?;
        }
    }
    Ok(())
}
