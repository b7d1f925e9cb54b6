//! Finds the values whose shapes contain a symbol or a rank variable, or equal a wanted shape.

use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::graph::{Function, Value};
use mithril_ir::shape::Shape;
use rustc_hash::FxHashMap;

/// Where the dims of a function can be read from at run time. Lists are in the order of the values.
#[derive(Default)]
pub struct ShapeSources<'m> {
    symbols: FxHashMap<&'m Symbol, Vec<(Value, usize)>>,
    leads: FxHashMap<&'m Symbol, Vec<Value>>,
    /// Arguments by shape.
    arguments: FxHashMap<&'m Shape, Vec<Value>>,
    /// Dims of arguments that are expressions of a single symbol, by that symbol.
    expressions: FxHashMap<&'m Symbol, Vec<(Value, usize, &'m Dim)>>,
}

impl<'m> ShapeSources<'m> {
    pub fn of(function: &'m Function) -> ShapeSources<'m> {
        let mut shape_sources = ShapeSources::default();
        for (at, info) in function.values.iter().enumerate() {
            let (value, shape) = (Value(at as u32), &info.ty.shape);
            if let Some(lead) = &shape.lead {
                shape_sources.leads.entry(lead).or_default().push(value);
            }
            let is_argument = at < function.args.len();
            for (axis, dim) in shape.dims.iter().enumerate() {
                match dim.as_symbol() {
                    Some(symbol) => {
                        let places = shape_sources.symbols.entry(symbol).or_default();
                        // One axis of each value is enough: the first one.
                        if places.last().is_none_or(|(last, _)| *last != value) {
                            places.push((value, axis));
                        }
                    }
                    None if is_argument => shape_sources.expression(value, axis, dim),
                    None => {}
                }
            }
            if is_argument {
                shape_sources.arguments.entry(shape).or_default().push(value);
            }
        }
        shape_sources
    }

    fn expression(&mut self, value: Value, axis: usize, dim: &'m Dim) {
        let (mut only, mut several) = (None, false);
        for symbol in dim.symbols() {
            several |= only.is_some_and(|first| first != symbol);
            only = Some(symbol);
        }
        if let Some(symbol) = only.filter(|_| !several) {
            self.expressions.entry(symbol).or_default().push((value, axis, dim));
        }
    }

    /// The values that have the symbol as a dim, with the first such axis of each.
    pub fn symbol(&self, symbol: &Symbol) -> &[(Value, usize)] {
        self.symbols.get(symbol).map_or(&[], |places| places)
    }

    /// The values that have the rank variable.
    pub fn lead(&self, lead: &Symbol) -> &[Value] {
        self.leads.get(lead).map_or(&[], |values| values)
    }

    /// The arguments that have the shape.
    pub fn arguments(&self, shape: &Shape) -> &[Value] {
        self.arguments.get(shape).map_or(&[], |values| values)
    }

    /// The dims of arguments that are expressions of this symbol only.
    pub fn expressions(&self, symbol: &Symbol) -> Vec<(Value, usize, &'m Dim)> {
        self.expressions.get(symbol).cloned().unwrap_or_default()
    }
}
