//! Initializers: how the elements of a new param or state are drawn.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};

use crate::setting::Setting;

/// A rule for drawing the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Init {
    Zeros,
    Ones,
    /// One number, stored as its bits (f64).
    Constant(u64),
    /// Standard normal.
    Normal,
    /// Uniform from 0 to 1.
    Uniform,
    /// Standard normal, redrawn while it is beyond two standard deviations.
    TruncatedNormal,
    /// Uniform within `sqrt(6 / (fan in + fan out))` (Glorot & Bengio 2010, eq. 16).
    XavierUniform,
    /// Normal with standard deviation `sqrt(2 / (fan in + fan out))` (Glorot & Bengio 2010).
    XavierNormal,
    /// Uniform within `sqrt(6 / fan in)` (He et al. 2015).
    KaimingUniform,
    /// Normal with standard deviation `sqrt(2 / fan in)` (He et al. 2015, eq. 10).
    KaimingNormal,
    /// A matrix of orthonormal rows or columns (Saxe et al. 2014).
    Orthogonal,
    /// Uniform within `1 / sqrt(fan in)`, the default of `torch.nn.Linear`. A vector takes the fan
    /// of the matrix that `fan_of` names; without one it is zeros.
    FanIn,
    /// Uniform within `1 / sqrt(fan in)` of the matrix that `fan_of` names, the default of
    /// `torch.nn.LSTM`.
    FanOf,
    /// Xavier uniform for a matrix that joins several projections, the default of
    /// `torch.nn.MultiheadAttention`: query, key and value count as one matrix if they have the
    /// same input width.
    Projection,
    /// Normal with standard deviation 1 / sqrt(second to last dim).
    Scaled,
    /// The norms of the first values of the array that `fan_of` names.
    Norms(Norms),
    /// An estimate of a singular vector of another array.
    Singular(Singular),
}

/// The axis along which norms lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norms {
    /// One norm for the whole array.
    Whole,
    Along(i64),
    /// The axis of outputs: 1 for a matrix, 0 for others.
    Outputs,
}

impl Norms {
    /// The axis in an array of this shape.
    pub(crate) fn axis(self, shape: &[usize]) -> Option<usize> {
        let axis = match self {
            Norms::Whole => None,
            Norms::Along(axis) => Some(axis.rem_euclid(shape.len().max(1) as i64) as usize),
            Norms::Outputs => Some(usize::from(shape.len() == 2)),
        };
        axis.filter(|axis| *axis < shape.len())
    }

    /// The norms of an array.
    pub fn of(self, values: &[f64], shape: &[usize]) -> Vec<f64> {
        let axis = self.axis(shape);
        let count = axis.map_or(1, |axis| shape[axis]);
        let inner = axis.map_or(1, |axis| shape[axis + 1..].iter().product::<usize>().max(1));
        let mut squares = vec![0.0; count];
        for (i, value) in values.iter().enumerate() {
            let at = axis.map_or(0, |_| i / inner % count);
            squares[at] += value * value;
        }
        squares.into_iter().map(f64::sqrt).collect()
    }
}

/// A singular vector of an array, as a matrix (outputs, all other axes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Singular {
    pub axis: Norms,
    /// Whether it is the vector over the outputs.
    pub is_left: bool,
}

/// The array that another one takes its fan or its norms from.
#[derive(Clone, Copy)]
pub struct Other<'a> {
    pub name: &'a str,
    pub sizes: &'a [i64],
    pub start: &'a Start,
}

impl Other<'_> {
    /// The norms of the values that the array starts with.
    fn norms(self, norms: Norms) -> Result<Draw> {
        Ok(Draw::Norms {
            norms,
            of: Box::new(self.start.draw(self.name, self.sizes, None)?),
            name: self.name.into(),
            shape: self.sizes.iter().map(|size| *size as usize).collect(),
        })
    }
}

/// The rules that can be chosen by name.
const NAMED: [(&str, Init); 10] = [
    ("zeros", Init::Zeros),
    ("ones", Init::Ones),
    ("normal", Init::Normal),
    ("uniform", Init::Uniform),
    ("truncated_normal", Init::TruncatedNormal),
    ("xavier_uniform", Init::XavierUniform),
    ("xavier_normal", Init::XavierNormal),
    ("kaiming_uniform", Init::KaimingUniform),
    ("kaiming_normal", Init::KaimingNormal),
    ("orthogonal", Init::Orthogonal),
];

impl Init {
    /// Describes the rule in words.
    pub fn in_words(self) -> String {
        match self {
            Init::Zeros => "as 0".into(),
            Init::Ones => "as 1".into(),
            Init::Constant(bits) => format!("as {:?}", f64::from_bits(bits)),
            Init::Normal => "standard normal".into(),
            Init::Uniform => "uniform from 0 to 1".into(),
            Init::TruncatedNormal => "standard normal within 2".into(),
            Init::XavierUniform => "uniform within sqrt(6 / (fan in + fan out))".into(),
            Init::XavierNormal => {
                "normal with standard deviation sqrt(2 / (fan in + fan out))".into()
            }
            Init::KaimingUniform => "uniform within sqrt(6 / fan in)".into(),
            Init::KaimingNormal => "normal with standard deviation sqrt(2 / fan in)".into(),
            Init::Orthogonal => "with orthonormal rows or columns".into(),
            Init::FanIn => "uniform within 1/sqrt(fan in)".into(),
            Init::FanOf => "uniform within 1/sqrt(dimension)".into(),
            Init::Projection => "Xavier uniform, as columns of one matrix".into(),
            Init::Scaled => "normal with standard deviation 1/sqrt(dim before the last)".into(),
            Init::Norms(_) => "as the norms of the weight".into(),
            Init::Singular(_) => "as an estimate of a singular vector of the weight".into(),
        }
    }
}

/// A Python function that draws values for a key and a shape. Functions are equal if they have the
/// same `id`.
#[derive(Clone)]
pub struct Function {
    /// The name used in messages.
    pub name: Arc<str>,
    /// The identity of the function.
    pub id: usize,
    pub value: Arc<dyn Any + Send + Sync>,
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.id == other.id
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} #{:x}", self.name, self.id)
    }
}

/// The source of initial values: a known rule, or a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    Known(Init),
    Function(Function),
}

/// The initial value of a param or a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    pub rule: Rule,
    /// The index of the input of the same block that gives the fan.
    pub fan_of: Option<u32>,
    /// Whether a matrix is (fan out, fan in).
    pub transposed: bool,
    /// Whether the first axis counts arrays that are drawn one by one.
    pub stacked: bool,
}

/// The distribution of the elements of one new array.
#[derive(Clone, PartialEq, Debug)]
pub enum Draw {
    Constant(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Standard normal, truncated at two standard deviations.
    TruncatedNormal,
    /// Uniform from the first number to the second.
    Uniform(f64, f64),
    Orthogonal,
    /// Each slice along the first axis is drawn for itself, with a key of its own.
    Stacked(Box<Draw>),
    Function(Function),
    /// The norms of another array, drawn under its name.
    Norms {
        norms: Norms,
        of: Box<Draw>,
        name: Arc<str>,
        shape: Vec<usize>,
    },
}

impl From<Init> for Start {
    fn from(init: Init) -> Start {
        Start { rule: Rule::Known(init), fan_of: None, transposed: false, stacked: false }
    }
}

impl Rule {
    /// The rule for a setting: a name, a number or a function. `None` for any other setting.
    pub fn of(setting: &Setting) -> Option<Rule> {
        let number = |v: f64| v.is_finite().then(|| Rule::Known(Init::Constant(v.to_bits())));
        match setting {
            Setting::Str(name) => {
                let found = NAMED.iter().find(|(own, _)| **own == **name);
                found.map(|(_, init)| Rule::Known(*init))
            }
            Setting::Int(v) => number(*v as f64),
            Setting::Float(v) => number(*v),
            Setting::Function(function) => Some(Rule::Function(function.clone())),
            Setting::None
            | Setting::Bool(_)
            | Setting::DType(_)
            | Setting::Tensor(_)
            | Setting::Block(_)
            | Setting::List(_)
            | Setting::Slice(_)
            | Setting::Ellipsis
            | Setting::Connection(_)
            | Setting::Terminal => None,
        }
    }

    /// Describes the accepted settings.
    pub fn expected() -> String {
        let names = NAMED.map(|(name, _)| format!("\"{name}\""));
        format!("one of {}, a finite number, or a function of key and shape", names.join(", "))
    }

    /// Suggests a known name that is similar to an unknown one.
    pub fn similar(setting: &Setting) -> Option<String> {
        match setting {
            Setting::Str(name) => did_you_mean(name, NAMED.iter().map(|(name, _)| *name)),
            _ => None,
        }
    }
}

impl Start {
    /// The distribution of each array of those that the first axis counts. Their sizes are `sizes`.
    fn draw_one(&self, name: &str, sizes: &[i64], other: Option<Other>) -> Result<Draw> {
        let own = Start { stacked: false, ..self.clone() };
        let start = other.map(|other| Start { stacked: false, ..other.start.clone() });
        let other = other.zip(start.as_ref()).map(|(other, start)| Other {
            sizes: other.sizes.get(usize::from(other.start.stacked)..).unwrap_or(&[]),
            start,
            ..other
        });
        own.draw(name, sizes, other)
    }

    /// Whether the value follows from that of another array.
    pub fn is_derived(&self) -> bool {
        matches!(self.rule, Rule::Known(Init::Norms(_) | Init::Singular(_)))
    }

    /// The distribution for an array of these sizes. `other` is the input that gives the fan. Errors: a rule for matrices with an array of fewer than two dims.
    pub fn draw(&self, name: &str, sizes: &[i64], other: Option<Other>) -> Result<Draw> {
        if let (true, [_, rest @ ..], Rule::Known(_)) = (self.stacked, sizes, &self.rule) {
            return Ok(Draw::Stacked(Box::new(self.draw_one(name, rest, other)?)));
        }
        let fan_of = other.map(|other| other.sizes);
        let init = match &self.rule {
            Rule::Function(function) => return Ok(Draw::Function(function.clone())),
            Rule::Known(init) => *init,
        };
        let own = fans(sizes, self.transposed);
        let required_fans = || {
            own.ok_or_else(|| {
                let rule = NAMED.iter().find(|(_, named)| *named == init).map_or("", |(n, _)| n);
                let what = format!("`init=\"{rule}\"` needs a matrix, and `{name}` is not one");
                let error =
                    Diagnostic::of(ErrorKind::Setting, what).got(format!("a shape of {sizes:?}"));
                Box::new(error.expected("at least two dims"))
            })
        };
        let within = |bound: f64| Draw::Uniform(-bound, bound);
        Ok(match init {
            Init::Zeros => Draw::Constant(0.0),
            Init::Ones => Draw::Constant(1.0),
            Init::Constant(bits) => Draw::Constant(f64::from_bits(bits)),
            Init::Normal | Init::Singular(_) => Draw::Normal(1.0),
            Init::Uniform => Draw::Uniform(0.0, 1.0),
            Init::TruncatedNormal => Draw::TruncatedNormal,
            Init::XavierUniform => required_fans().map(|(i, o)| within((6.0 / (i + o)).sqrt()))?,
            Init::XavierNormal => {
                required_fans().map(|(i, o)| Draw::Normal((2.0 / (i + o)).sqrt()))?
            }
            Init::KaimingUniform => required_fans().map(|(i, _)| within((6.0 / i).sqrt()))?,
            Init::KaimingNormal => required_fans().map(|(i, _)| Draw::Normal((2.0 / i).sqrt()))?,
            Init::Orthogonal => required_fans().map(|_| Draw::Orthogonal)?,
            Init::FanIn => match own.or_else(|| fans(fan_of?, self.transposed)) {
                Some((fan, _)) => within(fan.sqrt().recip()),
                None => Draw::Constant(0.0),
            },
            Init::FanOf => match fan_of.and_then(|sizes| fans(sizes, self.transposed)) {
                Some((fan, _)) => within(fan.sqrt().recip()),
                None => Draw::Constant(0.0),
            },
            Init::Projection => {
                let (i, o) = own.unwrap_or((1.0, 1.0));
                let joined = fan_of.and_then(|sizes| fans(sizes, false)).filter(|(j, _)| *j == i);
                // Query, key and value count as one matrix. Key and value have equal widths, which
                // are the smaller ones if heads share them.
                let all = joined.map_or(o, |(_, other)| o.max(other) + 2.0 * o.min(other));
                within((6.0 / (i + all)).sqrt())
            }
            Init::Norms(norms) => match other {
                Some(other) => other.norms(norms)?,
                None => Draw::Constant(1.0),
            },
            Init::Scaled => {
                let fan = sizes.len().checked_sub(2).map_or(1, |at| sizes[at]);
                Draw::Normal((fan.max(1) as f64).sqrt().recip())
            }
        })
    }
}

/// The fan in and fan out. For a matrix they are its dims. An array with more dims is a convolution
/// kernel (channels out, channels in, sizes …), whose fans are the channels times the product of
/// the sizes.
fn fans(sizes: &[i64], transposed: bool) -> Option<(f64, f64)> {
    let [first, second, field @ ..] = sizes else { return None };
    let field: f64 = field.iter().map(|n| *n as f64).product();
    let (first, second) = (*first as f64 * field, *second as f64 * field);
    let (fan_in, fan_out) = match transposed || sizes.len() > 2 {
        true => (second, first),
        false => (first, second),
    };
    Some((fan_in.max(1.0), fan_out.max(1.0)))
}
