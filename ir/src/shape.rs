//! Shapes and tensor types.

use std::fmt;

use smallvec::SmallVec;

use crate::diagnostic::{Diagnostic, ErrorKind, NeedsRank, Result};
use crate::dim::{Atom, Dim, Relation, Symbol};
use crate::dtype::DType;
use crate::loc::Loc;

/// The dims of a tensor, after at most one leading rank variable: `*b x 784`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Shape {
    /// The rank variable, which stands for any number of leading dims.
    pub lead: Option<Symbol>,
    pub dims: SmallVec<[Dim; 4]>,
}

/// The type of a value: `tensor<batch x 784 x f32>`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Type {
    pub shape: Shape,
    pub dtype: DType,
}

/// An equality of two dims that could not be decided at compile time and is checked at run time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Guard {
    pub left: Dim,
    pub right: Dim,
    /// The blocks whose dims are compared.
    pub loc: Loc,
}

impl Guard {
    /// A guard without a location yet.
    pub fn new(left: Dim, right: Dim) -> Guard {
        Guard { left, right, loc: Loc::unknown() }
    }

    /// Whether both compare the same dims, in either order.
    pub fn agrees(&self, other: &Guard) -> bool {
        (&self.left, &self.right) == (&other.left, &other.right)
            || (&self.left, &self.right) == (&other.right, &other.left)
    }

    /// The guard in its simplest form: `n >= 2` for `n == max(n, 2)`.
    pub fn relation(&self) -> (&Dim, &'static str, &Dim) {
        for (one, other) in [(&self.left, &self.right), (&self.right, &self.left)] {
            let (relation, operands) = match other.as_atom() {
                Some(Atom::Max(operands)) => (">=", operands),
                Some(Atom::Min(operands)) => ("<=", operands),
                Some(Atom::Symbol(_) | Atom::FloorDiv(_) | Atom::Mod(_)) | None => continue,
            };
            match &operands[..] {
                [a, b] if a == one => return (one, relation, b),
                [a, b] if b == one => return (one, relation, a),
                _ => {}
            }
        }
        (&self.left, "==", &self.right)
    }
}

impl Shape {
    pub fn new(dims: impl IntoIterator<Item = Dim>) -> Shape {
        Shape { lead: None, dims: dims.into_iter().collect() }
    }

    pub fn scalar() -> Shape {
        Shape::default()
    }

    pub fn fixed(dims: &[usize]) -> Shape {
        Shape::new(dims.iter().map(|&d| Dim::from(d)))
    }

    pub fn with_lead(lead: Symbol, dims: impl IntoIterator<Item = Dim>) -> Shape {
        Shape { lead: Some(lead), dims: dims.into_iter().collect() }
    }

    /// The number of dims, where it is known.
    pub fn rank(&self) -> Option<usize> {
        self.lead.is_none().then_some(self.dims.len())
    }

    /// All dims as numbers, where all are known.
    pub fn as_fixed(&self) -> Option<Vec<usize>> {
        if self.lead.is_some() {
            return None;
        }
        self.dims.iter().map(|d| d.as_const().and_then(|c| usize::try_from(c).ok())).collect()
    }

    /// The rank, or an error that names the rank variable that must be known.
    pub fn need_rank(&self) -> Result<usize> {
        match &self.lead {
            None => Ok(self.dims.len()),
            Some(lead) => Err(Box::new(unknown_rank(lead, None))),
        }
    }

    /// The last `count` dims, or an error that names the rank variable to split.
    pub fn need_trailing(&self, count: usize) -> Result<&[Dim]> {
        match &self.lead {
            _ if self.dims.len() >= count => Ok(&self.dims[self.dims.len() - count..]),
            Some(lead) => Err(Box::new(unknown_rank(lead, Some(count - self.dims.len())))),
            None => Diagnostic::of(
                ErrorKind::Shapes,
                match count {
                    1 => "at least 1 dim is needed".into(),
                    _ => format!("at least {count} dims are needed"),
                },
            )
            .got(format!("{self} ({} dims)", self.dims.len()))
            .expected(match count {
                1 => "at least 1 dim".to_string(),
                _ => format!("at least {count} dims"),
            })
            .err(),
        }
    }

    /// The axis, counted from the front, for a shape whose rank is known.
    /// Errors: unknown rank, or an axis outside `-rank..rank`.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        let rank = self.need_rank()?;
        axis_of(axis, rank).ok_or_else(|| Box::new(axis_range(axis, self, rank as i64)))
    }

    /// The axis, counted from the back (1 is the last). With a rank variable only negative axes are
    /// allowed.
    pub fn axis_from_back(&self, axis: i64) -> Result<usize> {
        if self.lead.is_none() {
            return Ok(self.dims.len() - self.axis(axis)?);
        }
        if axis < 0 {
            self.need_trailing(axis.unsigned_abs() as usize)?;
            return Ok(axis.unsigned_abs() as usize);
        }
        self.need_rank()
    }

    /// Number of elements, as a polynomial; `None` if there is a rank variable.
    pub fn elements(&self) -> Option<Dim> {
        self.lead.is_none().then(|| self.dims.iter().cloned().product())
    }

    /// Checks a known shape. Errors: more elements than any memory holds.
    pub fn check_count(&self) -> Result<()> {
        let sizes = || self.dims.iter().map(Dim::as_const);
        let count = sizes().try_fold(1i64, |count, size| match size {
            Some(size) => count.checked_mul(size),
            None => Some(count),
        });
        // With symbols or a size of 0 the number of elements may still be small.
        if count.is_some() || sizes().any(|size| matches!(size, None | Some(0))) {
            return Ok(());
        }
        Diagnostic::of(ErrorKind::Memory, "a value has more elements than any memory holds")
            .got(self)
            .expected(format!("at most {} elements", i64::MAX))
            .err()
    }

    pub fn for_each_symbol(&self, f: &mut dyn FnMut(&Symbol)) {
        if let Some(lead) = &self.lead {
            f(lead);
        }
        self.dims.iter().for_each(|d| d.for_each_symbol(f));
    }

    /// Replaces dim symbols by `dims` and the rank variable by `leads`.
    pub fn substitute(
        &self,
        dims: &dyn Fn(&Symbol) -> Option<Dim>,
        leads: &dyn Fn(&Symbol) -> Option<Shape>,
    ) -> Shape {
        let trailing = self.dims.iter().map(|d| d.substitute(dims));
        match self.lead.as_ref().and_then(leads) {
            Some(front) => {
                Shape { lead: front.lead, dims: front.dims.into_iter().chain(trailing).collect() }
            }
            None => Shape { lead: self.lead.clone(), dims: trailing.collect() },
        }
    }
}

fn unknown_rank(lead: &Symbol, count: Option<usize>) -> Diagnostic {
    let what = match count {
        Some(1) => format!("the last dim of `*{lead}` must be known here"),
        Some(n) => format!("the last {n} dims of `*{lead}` must be known here"),
        None => format!("the rank of `*{lead}` must be known here"),
    };
    let mut diagnostic = Diagnostic::of(ErrorKind::Shapes, what)
        .hint("give the shape of the model's inputs with `shapes=`");
    diagnostic.needs_rank = Some(NeedsRank { lead: lead.clone(), trailing: count, rank: None });
    diagnostic
}

fn axis_range(axis: i64, shape: &Shape, rank: i64) -> Diagnostic {
    let allowed = match rank {
        0 => "none: a scalar has no axes".to_string(),
        _ => format!("an axis from {} to {}", -rank, rank - 1),
    };
    Diagnostic::of(ErrorKind::Shapes, format!("axis {axis} is out of range"))
        .got(format!("axis {axis} of {shape}"))
        .expected(allowed)
}

/// Unifies two dims: returns the one to use, and adds a guard if their equality is undecided.
/// `None`: they differ.
pub fn unify(a: &Dim, b: &Dim, guards: &mut Vec<Guard>) -> Option<Dim> {
    match a.compare(b) {
        Relation::Equal => Some(a.clone()),
        Relation::Different => None,
        Relation::Undecided if a.is_unknown() => Some(b.clone()),
        Relation::Undecided if b.is_unknown() => Some(a.clone()),
        Relation::Undecided => {
            guards.push(Guard::new(a.clone(), b.clone()));
            Some(if b.as_const().is_some() { b.clone() } else { a.clone() })
        }
    }
}

const ONE: Dim = Dim::Const(1);

/// NumPy's broadcasting of two shapes. Two different rank variables give a fresh one.
/// Errors: the two dims that differ, with their axis from the back.
pub fn broadcast(
    a: &Shape,
    b: &Shape,
    guards: &mut Vec<Guard>,
    fresh: &mut dyn FnMut() -> Symbol,
) -> Result<Shape> {
    let count = a.dims.len().max(b.dims.len());
    let mut dims: SmallVec<[Dim; 4]> = SmallVec::with_capacity(count);
    // Dims of one shape that align with the other's rank variable have an unknown result.
    let hidden =
        |own: &Shape, other: &Shape| other.lead.is_some() && own.dims.len() > other.dims.len();
    let obscured = hidden(a, b) || hidden(b, a);
    let known = if obscured { a.dims.len().min(b.dims.len()) } else { count };
    for i in (1..=known).rev() {
        // A shape of lower rank counts as one with leading dims of 1.
        let (x, y) = (from_back(a, i).unwrap_or(&ONE), from_back(b, i).unwrap_or(&ONE));
        let dim = broadcast_dim(x, y, guards);
        dims.push(dim.ok_or_else(|| Box::new(incompatible((a, x), (b, y), i)))?);
    }
    let lead = match (&a.lead, &b.lead) {
        _ if obscured => Some(fresh()),
        (Some(x), Some(y)) if x != y => Some(fresh()),
        (Some(x), _) | (None, Some(x)) => Some(x.clone()),
        (None, None) => None,
    };
    Ok(Shape { lead, dims })
}

fn from_back(shape: &Shape, i: usize) -> Option<&Dim> {
    shape.dims.len().checked_sub(i).map(|at| &shape.dims[at])
}

fn broadcast_dim(x: &Dim, y: &Dim, guards: &mut Vec<Guard>) -> Option<Dim> {
    match (x.as_const(), y.as_const()) {
        (Some(1), _) => Some(y.clone()),
        (_, Some(1)) => Some(x.clone()),
        _ => unify(x, y, guards),
    }
}

fn incompatible((a, x): (&Shape, &Dim), (b, y): (&Shape, &Dim), i: usize) -> Diagnostic {
    Diagnostic::of(ErrorKind::Shapes, "")
        .got(format!("{a} and {b}: {x} against {y} in axis -{i}"))
        .expected("dims that are equal or 1, aligned at the last axis")
}

/// The axis, counted from the front, for this rank; `None` if it is out of range.
pub fn axis_of(axis: i64, rank: usize) -> Option<usize> {
    let index = if axis < 0 { axis + rank as i64 } else { axis };
    (0..rank as i64).contains(&index).then_some(index as usize)
}

impl Type {
    pub fn new(dtype: DType, shape: Shape) -> Type {
        Type { shape, dtype }
    }

    pub fn scalar(dtype: DType) -> Type {
        Type { shape: Shape::scalar(), dtype }
    }
}

/// A dim as written between the `x`s of a type: sums are in parentheses.
fn fmt_dim(dim: &Dim, f: &mut fmt::Formatter) -> fmt::Result {
    match dim {
        Dim::Const(c) => write!(f, "{c}"),
        _ if dim.prints_as_atom() => write!(f, "{dim}"),
        _ => write!(f, "({dim})"),
    }
}

fn fmt_dims(shape: &Shape, f: &mut fmt::Formatter, last: Option<&str>) -> fmt::Result {
    let mut separator = "";
    if let Some(lead) = &shape.lead {
        write!(f, "*{lead}")?;
        separator = " x ";
    }
    for dim in &shape.dims {
        f.write_str(separator)?;
        fmt_dim(dim, f)?;
        separator = " x ";
    }
    match last {
        Some(text) => write!(f, "{separator}{text}"),
        None => Ok(()),
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("[")?;
        fmt_dims(self, f, None)?;
        f.write_str("]")
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("tensor<")?;
        fmt_dims(&self.shape, f, Some(self.dtype.name()))?;
        f.write_str(">")
    }
}
