//! Type inference of results: the interface of the table's rules, and the checks that all
//! operations share.

use crate::attr::Attr;
use crate::diagnostic::{Diagnostic, ErrorKind, Fact, Label, Message, Name, Result, did_you_mean};
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::message;
use crate::op::{Arity, Class, DTypeRule, Kind, Op, ShapeRule};
use crate::shape::{self, Guard, Shape, Type};

/// The context of a rule: the operation whose result it types.
pub struct Infer<'a> {
    pub op: Op,
    pub operands: &'a [&'a Type],
    pub attrs: &'a [Attr],
    /// The operands' elements as dims, for small integer operands.
    pub known: &'a [Option<&'a [Dim]>],
    pub guards: &'a mut Vec<Guard>,
    /// Makes a new symbol, for a rank variable or a dim.
    pub fresh: &'a mut dyn FnMut() -> Symbol,
}

impl Infer<'_> {
    pub fn shape(&self, i: usize) -> &Shape {
        &self.operands[i].shape
    }

    /// The operation, for a message.
    pub fn name(&self) -> Name {
        Name::Operation(self.op.name)
    }

    pub fn attr(&self, name: &str) -> &Attr {
        find_attr(self.op, self.attrs, name)
    }

    pub fn int(&self, name: &str) -> i64 {
        self.attr(name).as_int()
    }

    pub fn bool(&self, name: &str) -> bool {
        matches!(self.attr(name), Attr::Bool(true))
    }

    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        as_ints(self.attr(name))
    }

    pub fn shape_attr(&self, name: &str) -> &Shape {
        self.attr(name).as_shape()
    }

    /// A shape attribute in which no dim is `?`.
    /// Errors: it has a `?`.
    pub fn whole_shape(&self, name: &str) -> Result<Shape> {
        let shape = self.shape_attr(name).clone();
        if shape.dims.iter().any(Dim::is_unknown) {
            return Diagnostic::of(
                ErrorKind::Shapes,
                message![self.name(), format!(" needs all dims of `{name}`")],
            )
            .got(&shape)
            .hint("give the shape of the model's inputs with `shapes=`")
            .err();
        }
        Ok(shape)
    }

    /// Checks a dtype attribute, where it is given. Errors: a dtype of another class.
    pub fn dtype_attr(
        &self,
        name: &str,
        accepts: impl Fn(DType) -> bool,
        expected: &str,
    ) -> Result<()> {
        match self.attr(name) {
            Attr::DType(dtype) if !accepts(*dtype) || dtype.is_storage_only() => Diagnostic::of(
                ErrorKind::DType,
                message![format!("`{name}` of "), self.name(), " is the wrong kind of dtype"],
            )
            .got(dtype)
            .expected(expected)
            .err(),
            _ => Ok(()),
        }
    }

    /// Checks the dtype to accumulate in. Errors: it is narrower than the operand's, or of another
    /// kind.
    pub fn accumulates(&self) -> Result<()> {
        let own = self.operands[0].dtype;
        let wider = |acc: DType| {
            let kind = acc.is_float() == own.is_float() && acc.is_int() == own.is_int();
            acc == own || (kind && acc.bits() > own.bits())
        };
        self.dtype_attr("acc", wider, &format!("{own} or a wider dtype of the same kind"))
    }

    /// Checks that `x` broadcasts to `target` without stretching any of `target`'s dims. Dims that
    /// are aligned with a rank variable are checked at run time.
    /// Errors: a dim that differs.
    pub fn broadcasts_to(&mut self, x: &Shape, target: &Shape) -> Result<()> {
        let longer = x.dims.len() > target.dims.len() || x.lead.is_some();
        let mut fits = target.lead.is_some() || !longer;
        for (from, to) in x.dims.iter().rev().zip(target.dims.iter().rev()) {
            let same = from.as_const() == Some(1) || shape::unify(from, to, self.guards).is_some();
            fits = fits && same;
        }
        match fits {
            true => Ok(()),
            false => self
                .shape_error(format!("{x} does not broadcast to {target}"))
                .got(x)
                .expected(format!(
                    "dims that are 1 or equal those of {target}, aligned at the \
                                   last axis"
                ))
                .err(),
        }
    }

    /// Unifies two dims, or returns an error that shows both.
    pub fn unify(&mut self, a: &Dim, b: &Dim, what: impl Into<Message>) -> Result<Dim> {
        match shape::unify(a, b, self.guards) {
            Some(dim) => Ok(dim),
            None => self
                .shape_error(what.into().then(format!(" differ: {a} against {b}")))
                .got(format!("{a} and {b}"))
                .expected("equal sizes")
                .err(),
        }
    }

    /// Checks that a dim is at least `minimum`. If that is undecided, adds a guard that checks it
    /// at run time.
    /// Errors: the dim is smaller.
    pub fn at_least(&mut self, dim: &Dim, minimum: i64, what: impl Fn() -> String) -> Result<()> {
        if dim.is_unknown() || dim.lower_bound().is_some_and(|bound| bound >= minimum) {
            return Ok(());
        }
        if dim.as_const().is_some() {
            return self.shape_error(what()).got(dim).expected(format!("at least {minimum}")).err();
        }
        // The guard is easier to read with a bare symbol: `h >= 3`, not `h + 2 >= 5`.
        let constant = dim.constant_term();
        let minimum = Dim::Const(minimum.saturating_sub(constant));
        let dim = dim - &Dim::Const(constant);
        self.guards.push(Guard::new(dim.clone(), dim.max(&minimum)));
        Ok(())
    }

    pub fn broadcast(&mut self, a: &Shape, b: &Shape) -> Result<Shape> {
        shape::broadcast(a, b, self.guards, self.fresh)
    }

    /// Checks that two shapes are equal. Errors: the ranks or a dim differ.
    pub fn same(&mut self, a: &Shape, b: &Shape, what: impl Into<Message> + Clone) -> Result<()> {
        if a.lead != b.lead || a.dims.len() != b.dims.len() {
            return self
                .shape_error(what.into().then(format!(" differ in shape: {a} against {b}")))
                .got(format!("{a} and {b}"))
                .expected("equal shapes")
                .err();
        }
        for (x, y) in a.dims.iter().zip(&b.dims) {
            self.unify(x, y, message!["dims of "].then(what.clone()))?;
        }
        Ok(())
    }

    /// A shape error that shows the types of all operands.
    pub fn mismatch<T>(&self, what: impl Into<Message>) -> Result<T> {
        self.shape_error(what).err()
    }

    /// Starts a shape error to which the caller adds more facts than the operands' types.
    pub fn shape_error(&self, what: impl Into<Message>) -> Diagnostic {
        let error = Diagnostic::of(ErrorKind::Shapes, what);
        match self.operands.is_empty() {
            true => error,
            false => error.operands(self.describe()),
        }
    }

    /// The operands with their shapes: `x: [3 x 4], y: [5]`.
    pub fn describe(&self) -> String {
        let each = self.operands.iter().enumerate().map(|(i, ty)| {
            let operand = self.op.operand(i);
            match operand.arity {
                Arity::Many => {
                    format!("{}[{}]: {}", operand.name, i + 1 - self.op.operands.len(), ty.shape)
                }
                Arity::One | Arity::Optional => format!("{}: {}", operand.name, ty.shape),
            }
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

/// The attribute with this name, which the op must have.
pub fn find_attr<'a>(op: Op, attrs: &'a [Attr], name: &str) -> &'a Attr {
    let at =
        op.attr_index(name).unwrap_or_else(|| panic!("`{}` has no attribute `{name}`", op.name));
    &attrs[at]
}

pub fn as_ints(attr: &Attr) -> Option<&[i64]> {
    match attr {
        Attr::Ints(v) => Some(v),
        _ => None,
    }
}

impl Class {
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Class::Any => true,
            Class::Number => (dtype.is_float() || dtype.is_int()) && !dtype.is_storage_only(),
            Class::Float => dtype.is_float() && !dtype.is_storage_only(),
            Class::Wide => matches!(dtype, DType::F32 | DType::F64),
            Class::Int => dtype.is_int() && !dtype.is_storage_only(),
            Class::Bits => (dtype.is_int() && !dtype.is_storage_only()) || dtype == DType::Bool,
            Class::Bool => dtype == DType::Bool,
            Class::Key => dtype == DType::U32,
        }
    }

    /// The accepted dtypes, in words.
    pub fn name(self) -> &'static str {
        match self {
            Class::Any => "any dtype",
            Class::Number => "a float or an integer",
            Class::Float => "a float",
            Class::Wide => "f32 or f64",
            Class::Int => "an integer",
            Class::Bits => "an integer or bool",
            Class::Bool => "bool",
            Class::Key => "a random key, tensor<2 x u32>",
        }
    }
}

/// The type of the result of any operation except a call. Attributes are complete and checked.
/// Errors: wrong number, dtypes or shapes of operands.
pub fn infer(cx: &mut Infer) -> Result<Type> {
    check_operands(cx)?;
    let shape = match cx.op.shape {
        ShapeRule::First => cx.shape(0).clone(),
        ShapeRule::Rule(rule) => rule(cx)?,
        ShapeRule::Broadcast => broadcast_all(cx)?,
        ShapeRule::Call(_) => return needs_function(cx),
    };
    let dtype = match cx.op.dtype {
        DTypeRule::Shared => shared_dtype(cx).expect("an op of shared dtype has such an operand"),
        DTypeRule::Fixed(dtype) => dtype,
        DTypeRule::Attr(name) => match cx.attr(name) {
            Attr::DType(dtype) => *dtype,
            Attr::Tensor(tensor) => tensor.dtype(),
            _ => shared_dtype(cx)
                .expect("a dtype attribute that may be left out follows the operands"),
        },
        DTypeRule::Call => return needs_function(cx),
    };
    if shape.dims.iter().any(|d| d.as_const().is_some_and(|c| c < 0)) {
        return cx
            .shape_error(format!("{shape} has a negative dim"))
            .got(&shape)
            .expected("dims of at least 0")
            .err();
    }
    if shape.dims.iter().any(Dim::is_unknown) && dims_are_known(cx) {
        return cx
            .shape_error("a dim does not fit in 64 bits")
            .expected(format!("dims of at most {}", i64::MAX))
            .err();
    }
    shape.check_count().map_err(|error| match cx.operands.is_empty() {
        true => error,
        false => Box::new(error.operands(cx.describe())),
    })?;
    Ok(Type { shape, dtype })
}

/// The error for a call, whose types are those of the function that it names.
fn needs_function<T>(cx: &Infer) -> Result<T> {
    Diagnostic::new(message![cx.name(), " has no type without the function that it names"]).err()
}

/// Whether all dims that the result's dims are computed from are numbers. Then an unknown dim of
/// the result can only come from overflow.
fn dims_are_known(cx: &Infer) -> bool {
    let has_unknown_dims = |shape: &Shape| {
        shape.lead.is_some() || shape.dims.iter().any(|dim| dim.as_const().is_none())
    };
    let open = |attr: &Attr| matches!(attr, Attr::Shape(shape) if has_unknown_dims(shape));
    !cx.operands.is_empty()
        && !cx.operands.iter().any(|ty| has_unknown_dims(&ty.shape))
        && !cx.attrs.iter().any(open)
}

fn broadcast_all(cx: &mut Infer) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    for i in 1..cx.operands.len() {
        let next = cx.shape(i).clone();
        shape = cx.broadcast(&shape, &next).map_err(|mut error| {
            let operands = Fact { label: Label::Operands, value: cx.describe().into() };
            error.facts.insert(0, operands);
            error
        })?;
    }
    Ok(shape)
}

fn shared_dtype(cx: &Infer) -> Option<DType> {
    (0..cx.operands.len()).find(|&i| cx.op.operand(i).shared).map(|i| cx.operands[i].dtype)
}

fn check_operands(cx: &Infer) -> Result<()> {
    let (minimum, most) = cx.op.arity();
    let count = cx.operands.len();
    if count < minimum || most.is_some_and(|m| count > m) {
        let expected = match most {
            Some(m) if m == minimum => format!("{minimum}"),
            Some(m) => format!("{minimum} to {m}"),
            None => format!("at least {minimum}"),
        };
        return Diagnostic::new(message![cx.name(), " got the wrong number of operands"])
            .got(count)
            .expected(expected)
            .err();
    }
    let shared = shared_dtype(cx);
    for (i, ty) in cx.operands.iter().enumerate() {
        let operand = cx.op.operand(i);
        if !operand.class.accepts(ty.dtype) || (ty.dtype.is_storage_only() && !moves(cx.op, i)) {
            return Diagnostic::of(
                ErrorKind::DType,
                message![cx.name(), " does not take this dtype"],
            )
            .got(message![Name::Operand(operand.name), format!(": {}", ty.dtype)])
            .expected(match ty.dtype.is_storage_only() {
                true => "a dtype to compute in",
                false => operand.class.name(),
            })
            .hint(ty.dtype.conversion(&|dtype| operand.class.accepts(dtype)))
            .err();
        }
        if operand.shared && shared != Some(ty.dtype) {
            return dtypes_differ(cx);
        }
    }
    Ok(())
}

/// Whether the operation only moves or casts this operand, so that its dtype may be storage-only.
fn moves(op: Op, i: usize) -> bool {
    match op.kind {
        Kind::Layout | Kind::Index | Kind::Constant | Kind::Dim | Kind::Barrier | Kind::Call => {
            true
        }
        Kind::Elementwise => matches!(op.dtype, DTypeRule::Attr(_)),
        Kind::Composite => op.operand(i).shared,
        Kind::Reduce | Kind::Contraction | Kind::Order | Kind::Matrix | Kind::Random => false,
    }
}

fn dtypes_differ(cx: &Infer) -> Result<()> {
    let dtypes: Vec<String> = (0..cx.operands.len())
        .filter(|&i| cx.op.operand(i).shared)
        .map(|i| format!("{}: {}", cx.op.operand(i).name, cx.operands[i].dtype))
        .collect();
    let mut shared = (0..cx.operands.len()).filter(|&i| cx.op.operand(i).shared);
    let hint = match shared.any(|i| cx.operands[i].dtype == DType::Bool) {
        true => DType::Bool.conversion(&|_| true),
        false => "make the dtypes agree with `cast`",
    };
    Diagnostic::of(ErrorKind::DType, message!["the operands of ", cx.name(), " differ in dtype"])
        .operands(dtypes.join(", "))
        .expected("one dtype: there is no implicit promotion")
        .hint(hint)
        .err()
}

/// The attributes in the table's order, from names and values; the others get their defaults.
/// Errors: an unknown name, a value of the wrong kind, or a missing required attribute.
pub fn complete_attrs(op: Op, given: &[(&str, Attr)]) -> Result<smallvec::SmallVec<[Attr; 2]>> {
    for (name, _) in given {
        if op.attr_index(name).is_none() {
            let names = op.attrs.iter().map(|a| a.name);
            let mut error = Diagnostic::new(message![
                Name::Operation(op.name),
                format!(" has no attribute `{name}`")
            ]);
            error.hint = did_you_mean(name, names);
            return error.err();
        }
    }
    op.attrs
        .iter()
        .map(|def| {
            let value = given.iter().find(|(name, _)| *name == def.name).map(|(_, v)| v.clone());
            match value.or_else(|| def.default.value()) {
                Some(value) => check_attr(op, def, value),
                None => Diagnostic::new(message![
                    Name::Operation(op.name),
                    format!(" needs the attribute `{}`", def.name),
                ])
                .expected(def.kind.name())
                .err(),
            }
        })
        .collect()
}

fn check_attr(op: Op, def: &super::AttrDef, value: Attr) -> Result<Attr> {
    use crate::attr::AttrKind;
    let optional = matches!(def.default, super::Default::None);
    match (&value, def.kind) {
        (Attr::None, _) if optional => Ok(value),
        (Attr::Int(v), AttrKind::Float) => Ok(Attr::Float(*v as f64)),
        _ if value.kind() == Some(def.kind) => Ok(value),
        _ => Diagnostic::of(
            ErrorKind::Setting,
            message![
                format!("the attribute `{}` of ", def.name),
                Name::Operation(op.name),
                " has the wrong type",
            ],
        )
        .got(value.kind().map_or("nothing", |k| k.name()))
        .expected(def.kind.name())
        .err(),
    }
}
