//! The context in which a table block is lowered.

use mithril_ir::algebra::{Var, build};
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::{Dim, Relation, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::shape::{Guard, Shape, unify};
use rustc_hash::FxHashMap;

use super::Mode;
use super::instance::Steps;
use crate::blocks::{Settings, Value};
use crate::definition::Terminal;
use crate::setting::Setting;

/// The operands of one block and its settings, in the function that it is lowered into.
pub struct Cx<'a> {
    pub builder: &'a Builder,
    pub settings: &'a Settings,
    pub mode: Mode,
    /// The default dtypes of the model's floats and of its indices.
    pub float: DType,
    pub index: DType,
    /// The dtype that the model states for the input whose shape is inferred.
    pub stated: Option<DType>,
    pub(super) sizes: &'a FxHashMap<Symbol, i64>,
    pub(super) steps: &'a Steps,
    pub(super) terminals: &'a [Terminal],
    pub(super) operands: &'a [Operand],
}

/// The values that an input of a block is connected to.
#[derive(Clone)]
pub(super) enum Operand {
    Absent,
    One(Value),
    List(Vec<Value>),
}

impl<'a> Cx<'a> {
    pub(super) fn operand(&self, name: &str) -> Option<&'a Operand> {
        let at = self.terminals.iter().position(|t| &*t.name == name)?;
        Some(&self.operands[at])
    }

    /// An input that is always connected.
    pub fn var(&self, name: &str) -> Var<'a> {
        self.optional(name).unwrap_or_else(|| panic!("the block has no input `{name}`"))
    }

    /// An input that may have been left out.
    pub fn optional(&self, name: &str) -> Option<Var<'a>> {
        match self.operand(name)? {
            Operand::One(value) => Some(self.builder.var(*value)),
            Operand::Absent | Operand::List(_) => None,
        }
    }

    /// The items of a list input.
    pub fn list(&self, name: &str) -> Vec<Var<'a>> {
        match self.operand(name) {
            Some(Operand::List(values)) => values.iter().map(|v| self.builder.var(*v)).collect(),
            Some(Operand::One(value)) => vec![self.builder.var(*value)],
            Some(Operand::Absent) | None => Vec::new(),
        }
    }

    pub fn training(&self) -> bool {
        self.mode == Mode::Training
    }

    /// An integer parameter that is not `None`.
    pub fn int(&self, name: &str) -> i64 {
        self.settings.int(name).unwrap_or_else(|| panic!("`{name}` is an integer by its kind"))
    }

    /// A float parameter that is not `None`.
    pub fn float(&self, name: &str) -> f64 {
        self.settings.float(name).unwrap_or_else(|| panic!("`{name}` is a number by its kind"))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.settings.flag(name)
    }

    pub fn text(&self, name: &str) -> &'a str {
        self.settings.text(name)
    }

    /// The last dim of an input. Errors: a scalar, an unknown rank.
    pub fn last_dim(&self, name: &str) -> Result<Dim> {
        Ok(self.var(name).shape().need_trailing(1)?[0].clone())
    }

    /// Divides a dim by a number. Divisibility is checked at compile time if the dim is known,
    /// otherwise at each call. Errors: the dim is not divisible.
    pub fn divide(&self, dim: &Dim, by: i64, error: impl FnOnce() -> Diagnostic) -> Result<Dim> {
        let by = Dim::Const(by);
        if let Some(part) = dim.exact_div(&by) {
            return Ok(part);
        }
        if dim.as_const().is_some() {
            return error().err();
        }
        let part = dim.floor_div(&by);
        self.builder.add_guards(vec![Guard::new(dim.clone(), &part * &by)]);
        Ok(part)
    }

    /// Whether two dims are equal for all values of their symbols. `None` if that depends on the
    /// values.
    pub fn is_equal(&self, one: &Dim, other: &Dim) -> Option<bool> {
        match one.compare(other) {
            Relation::Equal => Some(true),
            Relation::Different => Some(false),
            Relation::Undecided => None,
        }
    }

    /// Whether two dims have the same size in the call for which this is compiled. `None` if a size
    /// is not known.
    pub fn is_same_size(&self, one: &Dim, other: &Dim) -> Option<bool> {
        let size = |dim: &Dim| dim.evaluate(&|symbol| self.sizes.get(symbol).copied());
        Some(size(one)? == size(other)?)
    }

    /// Requires that a dim is at least `least`, at compile time if the dim is known, otherwise at
    /// each call. Errors: it is less.
    pub fn need(&self, dim: &Dim, least: i64, error: impl FnOnce() -> Diagnostic) -> Result<()> {
        match dim.as_const() {
            Some(known) if known < least => error().err(),
            Some(_) => Ok(()),
            None => {
                let guard = Guard::new(dim.clone(), dim.max(&Dim::Const(least)));
                self.builder.add_guards(vec![guard]);
                Ok(())
            }
        }
    }

    /// Requires that a dim has this size, at compile time if the dim is known, otherwise at each
    /// call. Errors: it has another size.
    pub fn need_equal(
        &self,
        dim: &Dim,
        size: i64,
        error: impl FnOnce() -> Diagnostic,
    ) -> Result<()> {
        match dim.as_const() {
            Some(known) if known != size => error().err(),
            Some(_) => Ok(()),
            None => {
                self.builder.add_guards(vec![Guard::new(dim.clone(), Dim::Const(size))]);
                Ok(())
            }
        }
    }

    /// Requires that a value has this rank, which is the only one that the block takes. Errors: it has
    /// another one, or an unknown one.
    pub fn need_rank(
        &self,
        value: Var,
        rank: usize,
        error: impl FnOnce() -> Diagnostic,
    ) -> Result<()> {
        match value.shape().need_rank() {
            Ok(own) if own == rank => Ok(()),
            Ok(_) => error().err(),
            Err(mut unknown) => {
                if let Some(needs) = unknown.needs_rank.as_mut() {
                    needs.rank = Some(rank);
                }
                Err(unknown)
            }
        }
    }

    /// Requires that two dims are equal, at compile time if that is decided, otherwise at each call.
    /// Errors: they differ.
    pub fn need_same(
        &self,
        one: &Dim,
        other: &Dim,
        error: impl FnOnce() -> Diagnostic,
    ) -> Result<()> {
        let mut guards: Vec<Guard> = Vec::new();
        if unify(one, other, &mut guards).is_none() {
            return error().err();
        }
        self.builder.add_guards(guards);
        Ok(())
    }

    /// Builds an operation that `Var` has no method for.
    pub fn op(&self, name: &str, operands: &[Var<'a>], attrs: &[(&str, Attr)]) -> Var<'a> {
        build(self.builder, name, operands, attrs)
    }

    /// 0, 1, 2, … along `axis` of `shape`.
    pub fn iota(&self, shape: Shape, axis: i64, dtype: DType) -> Var<'a> {
        let attrs = [("shape", shape.into()), ("axis", axis.into()), ("dtype", dtype.into())];
        self.op("iota", &[], &attrs)
    }

    /// Whether each of `count` steps is within its sequence: a new last axis of `lengths`. Calls
    /// check that lengths are at least 0 and at most `count`.
    pub fn within(&self, lengths: Var<'a>, count: &Dim) -> Var<'a> {
        lengths.unary("sequence_mask", &[("shape", Shape::new([count.clone()]).into())])
    }

    /// The inputs that stand for computed settings, in their order, as dims. Errors: a scalar that
    /// cannot be derived from shapes.
    pub fn computed(&self) -> Result<Vec<Dim>> {
        let names = self.settings.terminals();
        names.iter().map(|name| self.known_scalar(self.var(name), name)).collect()
    }

    /// A scalar as a dim. Errors: it cannot be derived from shapes.
    pub fn known_scalar(&self, scalar: Var, what: &str) -> Result<Dim> {
        match self.builder.known(scalar.value).as_deref() {
            Some([dim]) => Ok(dim.clone()),
            _ => not_known(what.trim_end_matches(|c: char| c == '_' || c.is_ascii_digit())),
        }
    }

    /// A shape parameter: a list of dims given to the constructor, or a shape that the model
    /// computes, which is read from the terminal of the same name. Errors: dims that cannot be
    /// derived from shapes.
    pub fn dims(&self, parameter: &str) -> Result<Shape> {
        let setting = self.settings.get(parameter);
        let Some(items) = setting.as_list() else {
            let known = self.optional(parameter).and_then(|v| self.builder.known(v.value));
            return match known {
                Some(dims) => Ok(Shape::new(dims.iter().cloned())),
                None => not_known(parameter),
            };
        };
        let mut computed = self.computed()?.into_iter();
        let dims = items.iter().map(|item| match item {
            Setting::Int(v) if *v >= 0 => Dim::Const(*v),
            Setting::Terminal => computed.next().unwrap_or(Dim::Unknown),
            _ => Dim::Unknown,
        });
        Ok(Shape::new(dims.collect::<Vec<_>>()))
    }
}

fn not_known<T>(parameter: &str) -> Result<T> {
    Diagnostic::new(format!("`{parameter}` must follow from shapes and constants"))
        .got("a value that is computed from data")
        .expected("arithmetic on `.shape`, `Size`, `Length` and integers")
        .err()
}
