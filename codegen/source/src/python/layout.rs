//! Prints statements as lines of text. Long ones are broken as ruff would.

use std::fmt::Write;

use super::expr::{Argument, Expr, operand_strengths, strength};

/// Maximum line length: the default of ruff and black.
pub const WIDTH: usize = 88;

/// Lines of Python under construction.
#[derive(Default)]
pub struct Lines {
    text: String,
}

impl Lines {
    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, indent: usize, text: &str) {
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// A line as the user wrote it.
    pub fn verbatim(&mut self, indent: usize, text: &str) {
        self.line(if text.trim().is_empty() { 0 } else { indent }, text.trim_end());
    }

    pub fn comment(&mut self, indent: usize, text: &str) {
        self.line(indent, &format!("# {text}"));
    }

    /// `prefix` and an expression: an assignment or a return.
    pub fn statement(&mut self, indent: usize, prefix: &str, expr: &Expr) {
        if self.whole(indent, prefix, expr, "") {
            return;
        }
        let targets = prefix.strip_suffix(" = ").filter(|t| t.contains(", "));
        if let (Some(targets), Expr::Call(head, _)) = (targets, expr) {
            let first = prefix.chars().count() + head.width() + "(".len();
            if indent + first > WIDTH {
                return self.unpacking(indent, targets, expr);
            }
        }
        if !has_brackets(expr) {
            self.line(indent, &format!("{prefix}("));
            self.place(indent + 4, "", expr, "");
            self.line(indent, ")");
        } else {
            self.place(indent, prefix, expr, "");
        }
    }

    /// `assert test, message`. A test that is longer than a line, such as one of long dims, is not
    /// broken: a comment tells formatters to leave it.
    pub fn assertion(&mut self, indent: usize, test: &Expr, message: &Expr) {
        let head = format!("assert {test}, ");
        if self.fits(indent, &head, message, "") {
            return self.line(indent, &format!("{head}{message}"));
        }
        self.line(indent, &format!("{head}("));
        self.line(indent + 4, &message.to_string());
        let is_long = indent + head.chars().count() + "(".len() > WIDTH;
        self.line(indent, if is_long { ")  # fmt: skip" } else { ")" });
    }

    /// An assignment to more names than fit on a line.
    fn unpacking(&mut self, indent: usize, targets: &str, expr: &Expr) {
        self.line(indent, "(");
        for target in targets.split(", ") {
            self.line(indent + 4, &format!("{target},"));
        }
        self.place(indent, ") = ", expr, "");
    }

    /// `prefix` and several expressions: the results of a function, or the variables of a `del`.
    pub fn listed(&mut self, indent: usize, prefix: &str, items: Vec<Expr>) {
        let texts: Vec<String> = items.iter().map(Expr::to_string).collect();
        let joined = Expr::Name(texts.join(", "));
        match self.fits(indent, prefix, &joined, "") || items.len() < 2 {
            true => self.statement(indent, prefix, &joined),
            false => self.statement(indent, prefix, &Expr::Tuple(items)),
        }
    }

    /// The head of a function.
    pub fn def(&mut self, name: &str, params: &[String]) {
        let args = params.iter().map(|p| Argument::plain(Expr::name(p)));
        let head = Expr::name(name).call(args);
        self.place(0, "def ", &head, ":");
    }

    /// The head of a loop.
    pub fn loop_head(&mut self, indent: usize, variables: &str, over: &Expr) {
        self.place(indent, &format!("for {variables} in "), over, ":");
    }

    fn fits(&self, indent: usize, prefix: &str, expr: &Expr, suffix: &str) -> bool {
        let around = indent + prefix.chars().count() + suffix.len();
        WIDTH.checked_sub(around).is_some_and(|room| expr.fits(room))
    }

    /// Writes the expression between `prefix` and `suffix` if that fits on one line, and returns
    /// whether it does.
    fn whole(&mut self, indent: usize, prefix: &str, expr: &Expr, suffix: &str) -> bool {
        let start = self.text.len();
        self.text.extend(std::iter::repeat_n(' ', indent));
        // Writing to a string does not fail.
        let _ = write!(self.text, "{prefix}{expr}{suffix}");
        let fits = self.text[start..].chars().count() <= WIDTH;
        match fits {
            true => self.text.push('\n'),
            false => self.text.truncate(start),
        }
        fits
    }

    /// Writes the expression between `prefix` and `suffix`, broken into lines where necessary.
    fn place(&mut self, indent: usize, prefix: &str, expr: &Expr, suffix: &str) {
        if self.whole(indent, prefix, expr, suffix) {
            return;
        }
        match expr {
            Expr::Call(head, args) if self.breaks_before(indent, prefix, head) => {
                let Expr::Attribute(inner, name) = &**head else {
                    return self.line(indent, &format!("{prefix}{expr}{suffix}"));
                };
                let joined: Vec<String> = args.iter().map(Argument::to_string).collect();
                self.place(
                    indent,
                    prefix,
                    inner,
                    &format!(".{name}({}){suffix}", joined.join(", ")),
                );
            }
            Expr::Call(head, args) if !args.is_empty() => {
                self.line(indent, &format!("{prefix}{}", opened(head, "(")));
                self.arguments(indent + 4, args);
                self.line(indent, &format!("){suffix}"));
            }
            Expr::Index(head, items) if self.breaks_inside(indent, prefix, head) => {
                let items: Vec<String> = items.iter().map(Expr::to_string).collect();
                self.place(indent, prefix, head, &format!("[{}]{suffix}", items.join(", ")));
            }
            Expr::Index(head, items) => {
                self.line(indent, &format!("{prefix}{}", opened(head, "[")));
                let comma = if items.len() > 1 { "," } else { "" };
                for item in items {
                    self.place(indent + 4, "", item, comma);
                }
                self.line(indent, &format!("]{suffix}"));
            }
            Expr::Tuple(items) => self.items(indent, prefix, ("(", ")"), items, suffix),
            Expr::List(items) => self.items(indent, prefix, ("[", "]"), items, suffix),
            Expr::Dict(items) => {
                self.line(indent, &format!("{prefix}{{"));
                for (key, value) in items {
                    self.place(indent + 4, &format!("{key}: "), value, ",");
                }
                self.line(indent, &format!("}}{suffix}"));
            }
            Expr::Binary(..) => self.operators(indent, prefix, expr, suffix),
            Expr::Name(_)
            | Expr::Literal(_)
            | Expr::Unary(..)
            | Expr::Attribute(..)
            | Expr::Call(..)
            | Expr::Range(_)
            | Expr::Starred(_)
            | Expr::Lambda(..)
            | Expr::Slot(_) => self.line(indent, &format!("{prefix}{expr}{suffix}")),
        }
    }

    /// Whether the receiver of a method call must be broken itself, because it leaves no room for
    /// the bracket of the call.
    fn breaks_before(&self, indent: usize, prefix: &str, head: &Expr) -> bool {
        let broken = matches!(head, Expr::Attribute(inner, _) if has_brackets(inner));
        broken && !self.fits(indent, prefix, head, "(")
    }

    /// Whether the call that is indexed must be broken, because it leaves no room for the bracket
    /// of the index.
    fn breaks_inside(&self, indent: usize, prefix: &str, head: &Expr) -> bool {
        matches!(head, Expr::Call(_, args) if !args.is_empty())
            && !self.fits(indent, prefix, head, "[")
    }

    /// Writes all arguments on one line if they fit, otherwise one per line.
    fn arguments(&mut self, indent: usize, args: &[Argument]) {
        let joined: Vec<String> = args.iter().map(Argument::to_string).collect();
        let joined = joined.join(", ");
        if indent + joined.chars().count() <= WIDTH {
            return self.line(indent, &joined);
        }
        for arg in args {
            let key = arg.keyword.as_ref().map(|k| format!("{k}="));
            self.place(indent, key.as_deref().unwrap_or(""), &arg.value, ",");
        }
    }

    fn items(
        &mut self,
        indent: usize,
        prefix: &str,
        brackets: (&str, &str),
        items: &[Expr],
        suffix: &str,
    ) {
        self.line(indent, &format!("{prefix}{}", brackets.0));
        for item in items {
            self.place(indent + 4, "", item, ",");
        }
        self.line(indent, &format!("{}{suffix}", brackets.1));
    }

    /// Writes one line per operand of the operator with the lowest precedence.
    fn operators(&mut self, indent: usize, prefix: &str, expr: &Expr, suffix: &str) {
        let mut operands: Vec<(&str, String)> = Vec::new();
        let weakest = expr.strength();
        let mut rest = expr;
        while let Expr::Binary(left, operator, right) = rest {
            if strength(operator) != weakest {
                break;
            }
            let (_, least) = operand_strengths(operator);
            operands.push((*operator, parenthesised(right, least)));
            rest = left.as_ref();
        }
        let first = operands.last().map_or(0, |(operator, _)| operand_strengths(operator).0);
        self.line(indent, &format!("{prefix}{}", parenthesised(rest, first)));
        for (i, (operator, operand)) in operands.iter().enumerate().rev() {
            let end = if i == 0 { suffix } else { "" };
            self.line(indent, &format!("{operator} {operand}{end}"));
        }
    }
}

fn parenthesised(expr: &Expr, least: u8) -> String {
    match expr.strength() < least {
        true => format!("({expr})"),
        false => expr.to_string(),
    }
}

/// The text before the brackets of a call or an index, with the opening bracket.
fn opened(head: &Expr, bracket: &str) -> String {
    let empty = Expr::Call(Box::new(head.clone()), Vec::new()).to_string();
    format!("{}{bracket}", empty.trim_end_matches("()"))
}

/// Whether the expression has brackets of its own inside which it can be broken.
fn has_brackets(expr: &Expr) -> bool {
    match expr {
        Expr::Call(_, args) => !args.is_empty(),
        Expr::Index(..) | Expr::Tuple(_) | Expr::List(_) | Expr::Dict(_) => true,
        Expr::Name(_)
        | Expr::Literal(_)
        | Expr::Unary(..)
        | Expr::Binary(..)
        | Expr::Attribute(..)
        | Expr::Range(_)
        | Expr::Starred(_)
        | Expr::Lambda(..)
        | Expr::Slot(_) => false,
    }
}
