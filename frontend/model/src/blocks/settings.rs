//! The settings of one block, one per parameter of its entry.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dtype::DType;
use smallvec::SmallVec;

use super::elsewhere::block_called;
use super::elsewhere::parameters::{parameter_elsewhere, parameter_note, string_elsewhere};
use super::{Default, Entry, Kind, Parameter};
use crate::block::{Block, quoted};
use crate::init::Rule;
use crate::model::Source;
use crate::setting::Setting;

/// Checked settings in the order of the parameters, with defaults filled in.
#[derive(Clone)]
pub struct Settings {
    entry: &'static Entry,
    values: SmallVec<[Setting; 2]>,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Settings) -> bool {
        self.values == other.values
    }
}

impl Eq for Settings {}

impl Hash for Settings {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.values.hash(state);
    }
}

impl Settings {
    /// Checks the arguments and fills in defaults. Errors: an unknown parameter, one given twice or
    /// left out, a value of another kind.
    pub(crate) fn new(
        entry: &'static Entry,
        positional: Vec<Setting>,
        named: Vec<(&str, Setting)>,
    ) -> Result<Settings> {
        let parameters = entry.parameters;
        let mut values: SmallVec<[Option<Setting>; 4]> = SmallVec::new();
        if positional.len() > parameters.len() {
            let names: Vec<&str> = parameters.iter().map(|p| p.name).collect();
            let error = Diagnostic::of(
                ErrorKind::Setting,
                format!("`{}` takes fewer parameters", entry.name),
            )
            .got(positional.len())
            .expected(match names.len() {
                0 => "none".to_string(),
                n => format!("at most {n}: {}", quoted(&names)),
            });
            return Diagnostic { hint: one_by_one(entry, &positional), ..error }.err();
        }
        let widths = match (parameters.first(), &positional[..]) {
            (Some(first), [Setting::Int(_), Setting::Int(own), ..])
                if first.name == "dimension" =>
            {
                Some(format!("the input's width is inferred: `{}({own})`", entry.name))
            }
            _ => None,
        };
        check_widths(entry, &positional)?;
        values.extend(positional.into_iter().map(Some));
        values.resize(parameters.len(), None);
        for (name, value) in named {
            let Some(at) = parameters.iter().position(|p| p.name == name) else {
                return unknown(entry, name);
            };
            if values[at].replace(value).is_some() {
                return Diagnostic::of(
                    ErrorKind::Setting,
                    format!("`{name}` of `{}` is given twice", entry.name),
                )
                .err();
            }
        }
        let checked = parameters.iter().zip(values).map(|(p, value)| accepted(entry, p, value));
        let checked = checked.collect::<Result<_>>().map_err(|mut error| {
            error.hint = widths.or(error.hint.take());
            error
        });
        let settings = Settings { entry, values: checked? };
        settings.check_order()?;
        (entry.valid)(&settings)?;
        Ok(settings)
    }

    /// Checks lower bounds that are other parameters. Errors: a number is less than its bound.
    fn check_order(&self) -> Result<()> {
        for (parameter, value) in self.iter() {
            let least = parameter.least.and_then(|name| Some((name, self.float(name)?)));
            if let (Setting::Float(value), Some((name, least))) = (value, least)
                && *value < least
            {
                let what = format!("`{}` of `{}` is out of range", parameter.name, self.entry.name);
                return Diagnostic::of(ErrorKind::Setting, what)
                    .got(format!("{value:?}, and {least:?} as `{name}`"))
                    .expected(format!("a number of at least `{name}`"))
                    .err();
            }
        }
        Ok(())
    }

    /// The setting of a parameter. The entry must have the parameter.
    pub fn get(&self, name: &str) -> &Setting {
        let at = self.entry.parameters.iter().position(|p| p.name == name);
        match at {
            Some(at) => &self.values[at],
            None => &Setting::None,
        }
    }

    /// The same settings, with one of them left out.
    pub(crate) fn without(&self, name: &str) -> Settings {
        let mut other = self.clone();
        if let Some(at) = self.entry.parameters.iter().position(|p| p.name == name) {
            other.values[at] = Setting::None;
        }
        other
    }

    /// The parameters with their settings.
    pub fn iter(&self) -> impl Iterator<Item = (&'static super::Parameter, &Setting)> {
        self.entry.parameters.iter().zip(&self.values)
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name).as_int()
    }

    pub fn float(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Setting::Float(v) => Some(*v),
            _ => None,
        }
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Setting::Bool(true))
    }

    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Setting::Str(v) => v,
            _ => "",
        }
    }

    pub fn dtype(&self, name: &str) -> Option<DType> {
        match self.get(name) {
            Setting::DType(v) => Some(*v),
            _ => None,
        }
    }

    pub fn block(&self, name: &str) -> Option<&Block> {
        match self.get(name) {
            Setting::Block(v) => Some(v),
            _ => None,
        }
    }

    /// One integer or a list of them, as a list; `None` if left out.
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.get(name) {
            Setting::Int(v) => Some(vec![*v]),
            Setting::List(items) => items.iter().map(Setting::as_int).collect(),
            _ => None,
        }
    }

    /// One number or a list of them, as a list; empty if left out.
    pub fn floats(&self, name: &str) -> Vec<f64> {
        let number = |item: &Setting| match item {
            Setting::Float(v) => Some(*v),
            _ => None,
        };
        match self.get(name) {
            Setting::List(items) => items.iter().filter_map(number).collect(),
            one => number(one).into_iter().collect(),
        }
    }

    /// The mesh axes, by name or by number, with the axes of an array that they divide.
    pub fn split(&self, name: &str) -> Vec<(String, i64)> {
        let entry = |(at, item): (usize, &Setting)| match item.as_list() {
            Some([Setting::Str(name), axis]) => Some((name.to_string(), axis.as_int()?)),
            _ => Some((at.to_string(), item.as_int()?)),
        };
        self.list(name).iter().enumerate().filter_map(entry).collect()
    }

    /// The items of a list; empty if left out.
    pub fn list(&self, name: &str) -> &[Setting] {
        self.get(name).as_list().unwrap_or(&[])
    }

    /// Replaces scalars that a model computes by `Terminal` in the settings. Returns them with the
    /// names of the inputs that read them.
    pub(crate) fn take_connections(&mut self) -> Vec<(Arc<str>, Source)> {
        let mut taken = Vec::new();
        for (parameter, value) in self.entry.parameters.iter().zip(&mut self.values) {
            let mut take = |source: &Source| {
                let name = format!("{}_{}", parameter.name, taken.len());
                taken.push((Arc::from(name), source.clone()));
            };
            *value = without_connections(value, &mut take);
        }
        taken
    }

    /// The names of the inputs that stand for computed settings.
    pub(crate) fn terminals(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (parameter, value) in self.iter() {
            for_each_terminal(value, &mut || {
                names.push(format!("{}_{}", parameter.name, names.len()));
            });
        }
        names
    }
}

fn without_connections(value: &Setting, take: &mut dyn FnMut(&Source)) -> Setting {
    match value {
        Setting::Connection(source) => {
            take(source);
            Setting::Terminal
        }
        Setting::List(items) => {
            Setting::List(items.iter().map(|s| without_connections(s, take)).collect())
        }
        Setting::Slice(parts) => {
            let [a, b, c] = &**parts;
            Setting::Slice(Arc::new([
                without_connections(a, take),
                without_connections(b, take),
                without_connections(c, take),
            ]))
        }
        _ => value.clone(),
    }
}

fn for_each_terminal(value: &Setting, found: &mut dyn FnMut()) {
    match value {
        Setting::Terminal => found(),
        Setting::List(items) => items.iter().for_each(|s| for_each_terminal(s, found)),
        Setting::Slice(parts) => parts.iter().for_each(|s| for_each_terminal(s, found)),
        _ => {}
    }
}

/// Errors: the width of the input where this block takes a small number, as users of PyTorch write
/// it first. A number of at least 1 is accepted by name.
fn check_widths(entry: &Entry, positional: &[Setting]) -> Result<()> {
    let is_width = |value: &Setting| match value {
        Setting::Int(n) => *n >= 1,
        Setting::Float(n) => *n >= 1.0,
        Setting::List(_) => true,
        _ => false,
    };
    let mut given = entry.parameters.iter().zip(positional);
    let Some(at) = given.position(|(p, value)| p.is_width_in_torch && is_width(value)) else {
        return Ok(());
    };
    let (Parameter { name, kind, .. }, value) = (&entry.parameters[at], &positional[at]);
    let problem = match value {
        Setting::List(_) => "has the wrong type",
        _ => "is out of range",
    };
    let what = format!("`{name}` of `{}` {problem}", entry.name);
    let expected = match kind.accept(value) {
        Some(_) => format!("a number below 1, unless by name: {name}={}", value.text()),
        None => kind.name(),
    };
    let others: Vec<String> = positional[..at].iter().map(Setting::text).collect();
    let sizes = value.as_list().map_or(1, <[Setting]>::len) as i64;
    let hint = match entry.parameters.iter().any(|p| p.name == "axis") && sizes > 1 {
        true => {
            let axes: Vec<String> = (-sizes..0).map(|axis| axis.to_string()).collect();
            format!("the input's sizes are inferred: `{}(axis=({}))`", entry.name, axes.join(", "))
        }
        false => {
            format!("the input's width is inferred: `{}({})`", entry.name, others.join(", "))
        }
    };
    Diagnostic::of(ErrorKind::Setting, what)
        .got(value.describe())
        .expected(expected)
        .hint(hint)
        .err()
}

/// The hint for blocks that are given as separate arguments instead of one list.
fn one_by_one(entry: &Entry, given: &[Setting]) -> Option<String> {
    let takes_list = entry.parameters.first().is_some_and(|p| p.kind == Kind::BLOCKS);
    let blocks = given.iter().all(|value| matches!(value, Setting::Block(_)));
    let list = Setting::List(given.into());
    (takes_list && blocks).then(|| format!("`{}({})`", entry.name, list.text()))
}

/// Converts a value to the form in which the block stores it. Errors: a value that the parameter
/// does not accept; no value and no default.
fn accepted(entry: &Entry, parameter: &Parameter, value: Option<Setting>) -> Result<Setting> {
    let (name, kind) = (parameter.name, parameter.kind);
    let Some(value) = value else {
        return parameter.default.setting().ok_or_else(|| {
            let error =
                Diagnostic::of(ErrorKind::Setting, format!("`{}` needs `{name}`", entry.name));
            Box::new(error.expected(kind.name()).hint(format!("{}({name}=…)", entry.name)))
        });
    };
    let open = parameter.default == Default::None;
    if open && value.is_none() {
        return Ok(value);
    }
    kind.accept(&value).ok_or_else(|| {
        let wrong = |item: &Setting| kind.item().is_some_and(|kind| kind.accept(item).is_none());
        // For a list, reports the item that is wrong.
        let items = value.as_list().unwrap_or(&[]);
        let (name, kind, value, open) = match (items.iter().position(wrong), kind.item()) {
            (Some(at), Some(item)) => (format!("{name}[{at}]"), item, items[at].clone(), false),
            _ => (name.to_string(), kind, value, open),
        };
        let what = match (kind, kind.widest().accept(&value)) {
            (Kind::OneOf(_) | Kind::Init, Some(_)) => "has an invalid value",
            (_, Some(_)) => "is out of range",
            (_, None) => "has the wrong type",
        };
        let expected = kind.name() + if open { ", or None" } else { "" };
        let what = format!("`{name}` of `{}` {what}", entry.name);
        let mut error = Diagnostic::of(ErrorKind::Setting, what);
        if let (true, Setting::Str(text)) = (kind.is_block(), &value) {
            error.hint = block_called(text).map(|block| format!("`{block}()` is that block"));
        }
        if let (Kind::Bool, Setting::Str(text)) = (kind, &value) {
            error.hint = string_elsewhere(entry.name, &name, text).map(String::from);
        }
        if kind == Kind::Init {
            error.hint = Rule::similar(&value);
        }
        Box::new(error.got(value.describe()).expected(expected))
    })
}

fn unknown<T>(entry: &'static Entry, name: &str) -> Result<T> {
    let names: Vec<&str> = entry.parameters.iter().map(|p| p.name).collect();
    let mut error =
        Diagnostic::of(ErrorKind::Setting, format!("`{}` has no parameter `{name}`", entry.name));
    error = error.expected(match names.is_empty() {
        true => "no parameters".to_string(),
        false => quoted(&names),
    });
    let terminal = format!("`{name}` is a terminal: {}(…)({name}=…)", entry.name);
    let note = || parameter_note(entry.name, name).map(String::from);
    let near = || did_you_mean(name, names.iter().copied());
    error.hint = match terminal_of(entry, name) {
        Some(true) => Some(terminal),
        // The block has it only with other settings.
        Some(false) => note().or_else(near).or(Some(terminal)),
        None => note().or_else(near).or_else(|| parameter_elsewhere(name, &names)),
    };
    error.err()
}

/// Whether the block has this terminal with its default settings; `None` if it never has it.
fn terminal_of(entry: &'static Entry, name: &str) -> Option<bool> {
    let values = entry.parameters.iter().map(|p| p.default.setting().unwrap_or(Setting::None));
    let usual = Settings { entry, values: values.collect() };
    let input = entry.inputs.iter().filter(|i| i.name == name).map(|i| (i.present)(&usual));
    let output = entry.outputs.iter().filter(|o| o.name == name).map(|o| (o.present)(&usual));
    input.chain(output).reduce(|one, other| one || other)
}

#[cfg(test)]
mod tests {
    use crate::Setting;
    use crate::blocks::build;

    #[test]
    fn norms_refuse_the_width_of_their_input() {
        for (block, given, hint) in [
            ("LayerNorm", vec![Setting::Int(64)], "`LayerNorm()`"),
            ("LayerNorm", vec![Setting::List([Setting::Int(64)].into())], "`LayerNorm()`"),
            ("RMSNorm", vec![Setting::Int(1)], "`RMSNorm()`"),
            ("InstanceNorm", vec![Setting::Float(64.0)], "`InstanceNorm()`"),
            ("GroupNorm", vec![Setting::Int(8), Setting::Int(64)], "`GroupNorm(8)`"),
            ("BatchNorm1d", vec![Setting::Int(1)], "`BatchNorm1d()`"),
            ("BatchNorm2d", vec![Setting::Int(64), Setting::Float(1e-5)], "`BatchNorm2d()`"),
        ] {
            let error = build(block, given, vec![]).expect_err(block);
            let hint = format!("the input's width is inferred: {hint}");
            assert_eq!(error.hint.as_deref(), Some(&*hint), "{block}");
        }
    }

    #[test]
    fn norms_accept_numbers_below_1_and_others_by_name() {
        for (block, given, named) in [
            ("LayerNorm", vec![Setting::Float(1e-5)], vec![]),
            ("LayerNorm", vec![Setting::Int(0)], vec![]),
            ("LayerNorm", vec![], vec![("eps", Setting::Int(1))]),
            ("GroupNorm", vec![Setting::Int(8), Setting::Float(1e-3)], vec![]),
            ("GroupNorm", vec![Setting::Int(8)], vec![]),
            ("BatchNorm2d", vec![Setting::Float(0.1), Setting::Float(1e-5)], vec![]),
            ("BatchNorm2d", vec![], vec![("momentum", Setting::Float(1.0))]),
        ] {
            assert!(build(block, given, named).is_ok(), "{block}");
        }
    }
}
