//! The trait of passes, and how the fields of a pass's struct become command-line options.

use mithril_ir::diagnostic::{Result, did_you_mean};
use mithril_ir::graph::Module;

use crate::context::PassContext;
use crate::target::{CORE, Target, Targets};

/// A rewriting of modules: valid IR in, valid IR out, with the same meaning.
pub trait Pass: Options {
    /// Runs the pass and returns the new module. Unchanged functions are the same `Arc`.
    /// Errors: those that a user's module or options can cause.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module>;
}

/// What the command line knows about a pass. The macro [`pass!`](crate::pass!) implements it.
pub trait Options {
    /// The kebab-case name.
    fn name(&self) -> &'static str;

    /// A description in a sentence or two.
    fn doc(&self) -> String;

    /// The options with their current values.
    fn fields(&self) -> Vec<Field>;

    /// Sets an option from text, which may name one of `targets`. `None`: there is no option of
    /// that name.
    /// Errors: the form that is expected instead of `text`.
    fn set(&mut self, name: &str, text: &str, targets: Targets) -> Option<Result<(), String>>;
}

/// An option of a pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// In kebab case.
    pub name: String,
    pub doc: String,
    /// As text that [`Options::set`] parses.
    pub value: String,
    /// Whether its value is a list, whose items are separated by commas.
    pub list: bool,
}

/// A type of option values.
pub trait OptionValue: Sized {
    /// Whether its text may contain commas.
    const LIST: bool = false;

    /// Parses the value of an option, which may name one of `targets`.
    ///
    /// Errors: the form that is expected instead.
    fn parse(text: &str, targets: Targets) -> Result<Self, String>;

    /// Text that `parse` accepts.
    fn print(&self) -> String;
}

impl OptionValue for bool {
    fn parse(text: &str, _: Targets) -> Result<bool, String> {
        text.parse().map_err(|_| "true or false".to_string())
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl OptionValue for usize {
    fn parse(text: &str, _: Targets) -> Result<usize, String> {
        text.parse().map_err(|_| "a number".to_string())
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl OptionValue for String {
    fn parse(text: &str, _: Targets) -> Result<String, String> {
        Ok(text.to_string())
    }

    fn print(&self) -> String {
        self.clone()
    }
}

/// Names separated by commas.
impl OptionValue for Vec<String> {
    const LIST: bool = true;

    fn parse(text: &str, _: Targets) -> Result<Vec<String>, String> {
        let names = text.split(',').map(str::trim);
        Ok(names.filter(|n| !n.is_empty()).map(str::to_string).collect())
    }

    fn print(&self) -> String {
        self.join(",")
    }
}

/// An upper bound on a number, or no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    At(usize),
    All,
}

impl Limit {
    /// Whether `count` is below the bound.
    pub fn allows(self, count: usize) -> bool {
        match self {
            Limit::At(limit) => count < limit,
            Limit::All => true,
        }
    }
}

impl OptionValue for Limit {
    fn parse(text: &str, _: Targets) -> Result<Limit, String> {
        match text {
            "all" => Ok(Limit::All),
            _ => (text.parse().map(Limit::At)).map_err(|_| "a number, or `all`".to_string()),
        }
    }

    fn print(&self) -> String {
        match self {
            Limit::At(limit) => limit.to_string(),
            Limit::All => "all".to_string(),
        }
    }
}

impl OptionValue for Target {
    fn parse(text: &str, targets: Targets) -> Result<Target, String> {
        let all = || targets.iter().chain([CORE]);
        all().find(|target| target.name == text).copied().ok_or_else(|| {
            let names = || all().map(|target| target.name);
            let list = names().collect::<Vec<_>>().join(", ");
            let near = did_you_mean(text, names());
            near.map_or_else(|| format!("one of {list}"), |near| format!("one of {list}: {near}"))
        })
    }

    fn print(&self) -> String {
        self.name.to_string()
    }
}

/// Joins the lines of a doc comment into one text.
pub fn prose(lines: &[&str]) -> String {
    let lines: Vec<&str> = lines.iter().map(|l| l.trim()).collect();
    lines.join(" ").replace("  ", " ").trim().to_string()
}

/// Declares the struct of a pass. Its fields, with docs and defaults, are its options.
#[macro_export]
macro_rules! pass {
    (
        $(#[doc = $doc:literal])+
        pub struct $pass:ident($name:literal) {
            $($(#[doc = $about:literal])+ $field:ident: $type:ty = $default:expr),* $(,)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug)]
        pub struct $pass {
            $($(#[doc = $about])+ pub $field: $type),*
        }

        impl Default for $pass {
            fn default() -> $pass {
                $pass { $($field: $default),* }
            }
        }

        impl $crate::pass::Options for $pass {
            fn name(&self) -> &'static str {
                $name
            }

            fn doc(&self) -> String {
                $crate::pass::prose(&[$($doc),+])
            }

            fn fields(&self) -> Vec<$crate::pass::Field> {
                vec![$($crate::pass::Field {
                    name: stringify!($field).replace('_', "-"),
                    doc: $crate::pass::prose(&[$($about),+]),
                    value: $crate::pass::OptionValue::print(&self.$field),
                    list: <$type as $crate::pass::OptionValue>::LIST,
                }),*]
            }

            #[allow(unused_variables)]
            fn set(
                &mut self,
                name: &str,
                text: &str,
                targets: $crate::target::Targets,
            ) -> Option<Result<(), String>> {
                $(if name == stringify!($field).replace('_', "-") {
                    let value = <$type as $crate::pass::OptionValue>::parse(text, targets);
                    return Some(value.map(|value| self.$field = value));
                })*
                None
            }
        }
    };
}
