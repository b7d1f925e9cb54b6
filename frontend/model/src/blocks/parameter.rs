//! Constructor parameters: names, kinds, defaults.

use mithril_ir::dtype::DType;
use mithril_ir::naming::is_identifier;

use crate::init::Rule;
use crate::setting::Setting;

/// A parameter of a constructor.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub default: Default,
    /// The parameter that is a lower bound for this one, if both are given.
    pub least: Option<&'static str>,
    /// Whether PyTorch's block of this name takes the width of its input in this position.
    pub is_width_in_torch: bool,
    /// A short description.
    pub doc: &'static str,
}

impl Parameter {
    /// Makes another parameter a lower bound for this one.
    pub const fn at_least(self, other: &'static str) -> Parameter {
        Parameter { least: Some(other), ..self }
    }

    /// Marks a position in which PyTorch's block of this name takes the width of its input.
    pub const fn is_width_in_torch(self) -> Parameter {
        Parameter { is_width_in_torch: true, ..self }
    }

    /// Sets the description.
    pub const fn doc(self, doc: &'static str) -> Parameter {
        Parameter { doc, ..self }
    }
}

/// The range of a numeric parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    Any,
    /// Any number including infinities, but not NaN.
    Ordered,
    Finite,
    NotNegative,
    Positive,
    /// From 0 to 1.
    Unit,
}

impl Range {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Range::Any => "a number",
            Range::Ordered => "a number that is not NaN",
            Range::Finite => "a finite number",
            Range::NotNegative => "a finite number of at least 0",
            Range::Positive => "a finite number above 0",
            Range::Unit => "a number from 0 to 1",
        }
    }

    /// The same of several numbers.
    fn plural(self) -> String {
        self.name().trim_start_matches("a ").replacen("number", "numbers", 1)
    }

    pub(crate) fn holds(self, number: f64) -> bool {
        match self {
            Range::Any => true,
            Range::Ordered => !number.is_nan(),
            Range::Finite => number.is_finite(),
            Range::NotNegative => number.is_finite() && number >= 0.0,
            Range::Positive => number.is_finite() && number > 0.0,
            Range::Unit => (0.0..=1.0).contains(&number),
        }
    }
}

/// The values that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int,
    /// An integer of at least 1: sizes and counts.
    Count,
    Float(Range),
    DType,
    Str,
    OneOf(&'static [&'static str]),
    /// A value of this kind, or `None`, which has a meaning other than the default.
    OrNone(&'static Kind),
    /// One value of this kind, or a list of them.
    OneOrList(&'static Kind),
    /// A list of values of this kind.
    List(&'static Kind),
    /// An integer of at least 1, or a list of numbers.
    CountOrFloats,
    /// A list of pairs of integers.
    Pairs,
    /// A value of this kind, or one of these names.
    OrOneOf(&'static Kind, &'static [&'static str]),
    /// Padding of axes: an integer, or a list with an integer or a pair per axis.
    Padding,
    /// A dict of strings, stored as a list of pairs.
    Names,
    /// An axis, or a dict from names to axes. `None`: no axis.
    Axes,
    /// For each axis of a device mesh, the axis of an array or `None`: a list, or a dict by the
    /// names of the mesh axes.
    Split,
    /// A dim: an integer, -1 or `None` for an open one, or a scalar that the model computes.
    Dim,
    Dims,
    /// Integers, slices, `None` for a new axis, `...`, integer arrays, and scalars that the model
    /// computes.
    Index,
    /// An integer or a scalar that the model computes.
    Scalar,
    Block,
    /// A number or an array.
    Value,
    /// An initializer: a name, a number, or a function of key and shape.
    Init,
}

impl Kind {
    pub const INTS: Kind = Kind::OneOrList(&Kind::Int);
    pub const COUNTS: Kind = Kind::OneOrList(&Kind::Count);
    pub const FLOATS: Kind = Kind::List(&Kind::Float(Range::Finite));
    pub const STRS: Kind = Kind::List(&Kind::Str);
    pub const BLOCKS: Kind = Kind::List(&Kind::Block);

    /// Describes the accepted values for messages.
    pub fn name(self) -> String {
        match self {
            Kind::Bool => "a bool".into(),
            Kind::Int => "an integer".into(),
            Kind::Count => "an integer of at least 1".into(),
            Kind::Float(range) => range.name().into(),
            Kind::DType => "a dtype".into(),
            Kind::Str => "a string".into(),
            Kind::OneOf(names) => format!("one of {}", strings(names)),
            Kind::OrOneOf(kind, names) => format!("{}, or {}", kind.name(), strings(names)),
            Kind::OrNone(kind) => format!("{} or None", kind.name()),
            Kind::OneOrList(kind) => format!("{}, or a list of them", kind.name()),
            Kind::List(kind) => format!("a list of {}", kind.plural()),
            Kind::CountOrFloats => "an integer of at least 1, or a list of finite numbers".into(),
            Kind::Pairs => "a list of pairs of integers".into(),
            Kind::Padding => "an integer, or a list of integers or pairs of them".into(),
            Kind::Names => "a dict of strings".into(),
            Kind::Axes => "an integer, or a dict from names to integers or None".into(),
            Kind::Split => {
                "a list of integers or None, or a dict from names of mesh axes to these".into()
            }
            Kind::Dim => "a dim: an integer, -1, None or a connection".into(),
            Kind::Dims => "a list of dims: integers, None or connections".into(),
            Kind::Index => {
                "an index: integers, slices, None, ..., arrays of integers or connections".into()
            }
            Kind::Scalar => "an integer or a connection".into(),
            Kind::Block => "a block".into(),
            Kind::Value => "a number or an array".into(),
            Kind::Init => Rule::expected(),
        }
    }

    /// Describes several accepted values.
    fn plural(self) -> String {
        match self {
            Kind::Float(range) => range.plural(),
            Kind::Str => "strings".into(),
            Kind::Block => "blocks".into(),
            Kind::OrNone(kind) => format!("{} or None", kind.plural()),
            other => format!("values, each {}", other.name()),
        }
    }

    /// The kind without restrictions on the number or the name.
    pub(crate) fn widest(self) -> Kind {
        match self {
            Kind::Count | Kind::CountOrFloats => Kind::Int,
            Kind::Float(_) => Kind::Float(Range::Any),
            Kind::OrNone(kind) | Kind::OneOrList(kind) | Kind::OrOneOf(kind, _) => kind.widest(),
            Kind::OneOf(_) => Kind::Str,
            Kind::Dim => Kind::Scalar,
            Kind::Init => Kind::Str,
            other => other,
        }
    }

    /// Whether this kind accepts a block.
    pub fn is_block(self) -> bool {
        matches!(self, Kind::Block | Kind::OrNone(Kind::Block))
    }

    /// The kind of the items of a list.
    pub fn item(self) -> Option<Kind> {
        match self {
            Kind::OneOrList(kind) | Kind::List(kind) => Some(*kind),
            Kind::CountOrFloats => Some(Kind::Float(Range::Finite)),
            Kind::Dims => Some(Kind::Dim),
            _ => None,
        }
    }

    /// Converts the setting to the form in which a block stores it; `None` if this kind does not
    /// accept it.
    pub(crate) fn accept(self, setting: &Setting) -> Option<Setting> {
        let computed = matches!(setting, Setting::Connection(_) | Setting::Terminal);
        let fits = match (self, setting) {
            (_, Setting::List(items)) if self != Kind::Init => return self.accept_list(items),
            (Kind::OrNone(_) | Kind::Dim, Setting::None) => true,
            (Kind::OrOneOf(_, names), Setting::Str(v)) => names.contains(&&**v),
            (Kind::OrNone(kind) | Kind::OneOrList(kind) | Kind::OrOneOf(kind, _), _) => {
                return kind.accept(setting);
            }
            (Kind::Float(range), Setting::Int(v)) => {
                let v = *v as f64;
                return range.holds(v).then_some(Setting::Float(v));
            }
            (Kind::Float(range), Setting::Float(v)) => range.holds(*v),
            (Kind::Bool, Setting::Bool(_))
            | (Kind::Int | Kind::Scalar | Kind::Axes, Setting::Int(_))
            | (Kind::DType, Setting::DType(_))
            | (Kind::Str, Setting::Str(_))
            | (Kind::Block, Setting::Block(_)) => true,
            (Kind::Count | Kind::CountOrFloats, Setting::Int(v)) => *v >= 1,
            (Kind::OneOf(names), Setting::Str(v)) => names.contains(&&**v),
            (Kind::Padding, Setting::Int(_)) => true,
            (Kind::Dim, Setting::Int(v)) => *v >= -1,
            (Kind::Dim, _) => computed,
            (Kind::Dims, Setting::Int(-1..)) => {
                return Some(Setting::List([setting.clone()].into()));
            }
            (Kind::Index, _) => is_index(setting),
            (Kind::Init, Setting::Int(v)) => return Some(Setting::Float(*v as f64)),
            (Kind::Init, _) => Rule::of(setting).is_some(),
            (Kind::Scalar, _) => computed,
            (Kind::Value, _) => matches!(
                setting,
                Setting::Bool(_) | Setting::Int(_) | Setting::Float(_) | Setting::Tensor(_)
            ),
            _ => false,
        };
        fits.then(|| setting.clone())
    }

    /// The same for a list.
    fn accept_list(self, items: &[Setting]) -> Option<Setting> {
        let pairs = |kinds| items.iter().all(|s| is_pair(s, kinds));
        let fits = match self {
            Kind::Pairs => pairs([Kind::Int, Kind::Int]),
            Kind::Names => pairs([Kind::Str, Kind::Str]),
            Kind::Axes => pairs([Kind::Str, Kind::OrNone(&Kind::Int)]),
            Kind::Padding => items.iter().all(is_padding),
            Kind::OrOneOf(kind, _) => return kind.accept_list(items),
            Kind::Split => is_split(items),
            Kind::Index => items.iter().all(is_index),
            _ => {
                let kind = self.item()?;
                let items: Option<Vec<Setting>> = items.iter().map(|s| kind.accept(s)).collect();
                return Some(Setting::List(items?.into()));
            }
        };
        fits.then(|| Setting::List(items.into()))
    }
}

/// The names as strings.
pub(crate) fn strings(names: &[&str]) -> String {
    let each: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    each.join(", ")
}

/// Whether the setting is a list of two settings of these kinds.
fn is_pair(setting: &Setting, kinds: [Kind; 2]) -> bool {
    let pair = setting.as_list().unwrap_or(&[]);
    pair.len() == 2 && pair.iter().zip(kinds).all(|(own, kind)| kind.accept(own).is_some())
}

/// Whether the settings are axes by number of a mesh axis, or pairs of its name and an axis.
fn is_split(items: &[Setting]) -> bool {
    let is_axis = |item: &Setting| Kind::OrNone(&Kind::Int).accept(item).is_some();
    let is_named = |item: &Setting| match item.as_list() {
        Some([Setting::Str(name), axis]) => is_identifier(name) && is_axis(axis),
        _ => false,
    };
    items.iter().all(is_axis) || items.iter().all(is_named)
}

/// Whether the setting is the padding of one axis: a number or a pair of numbers.
fn is_padding(item: &Setting) -> bool {
    let is_pair =
        |pair: &[Setting]| pair.len() == 2 && pair.iter().all(|side| side.as_int().is_some());
    item.as_int().is_some() || item.as_list().is_some_and(is_pair)
}

fn is_index(setting: &Setting) -> bool {
    let scalar = |s: &Setting| {
        matches!(s, Setting::Int(_) | Setting::None | Setting::Connection(_) | Setting::Terminal)
    };
    match setting {
        Setting::Slice(parts) => parts.iter().all(scalar),
        Setting::Ellipsis => true,
        Setting::Tensor(array) => array.dtype().is_int(),
        _ => scalar(setting),
    }
}

/// The value of a parameter that is not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    Required,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(&'static str),
    DType(DType),
}

impl Default {
    /// The default as a setting; `None` if the parameter is required.
    pub fn setting(self) -> Option<Setting> {
        Some(match self {
            Default::Required => return None,
            Default::None => Setting::None,
            Default::Bool(v) => Setting::Bool(v),
            Default::Int(v) => Setting::Int(v),
            Default::Float(v) => Setting::Float(v),
            Default::Str(v) => Setting::Str(v.into()),
            Default::DType(v) => Setting::DType(v),
        })
    }
}

/// A required parameter.
pub const fn required(name: &'static str, kind: Kind) -> Parameter {
    with(name, kind, Default::Required)
}

/// An optional parameter.
pub const fn with(name: &'static str, kind: Kind, default: Default) -> Parameter {
    Parameter { name, kind, default, least: None, is_width_in_torch: false, doc: "" }
}
