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
        let broken = [last_brackets(expr), first_brackets(expr)].into_iter().flatten();
        let width = |text: &str| indent + text.chars().count();
        let fits = |lines: &[String; 3]| {
            let before = prefix.chars().count() + width(&lines[0]);
            before <= WIDTH && width(&lines[1]) + 4 <= WIDTH && width(&lines[2]) <= WIDTH
        };
        if let Some([head, inner, rest]) = broken.into_iter().find(fits) {
            self.line(indent, &format!("{prefix}{head}"));
            self.line(indent + 4, &inner);
            self.line(indent, &rest);
        } else if !has_brackets(expr) {
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

    /// The first line of a loop or a condition: `for x in `, `while ` or `if `, and the expression.
    pub fn head(&mut self, indent: usize, prefix: &str, expr: &Expr) {
        self.place(indent, prefix, expr, ":");
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
            Expr::Call(head, _) if self.opens_late(indent, prefix, head) => {
                self.method_of_operation(indent, prefix, head, &format!("{expr}{suffix}"));
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

    /// Whether the receiver of a method call is an operation in brackets that must be broken.
    fn opens_late(&self, indent: usize, prefix: &str, head: &Expr) -> bool {
        let operation =
            matches!(head, Expr::Attribute(inner, _) if matches!(**inner, Expr::Binary(..)));
        operation && !self.fits(indent, prefix, head, "(")
    }

    /// Writes a call of a method of an operation in brackets, broken in these. `text` is the call.
    fn method_of_operation(&mut self, indent: usize, prefix: &str, head: &Expr, text: &str) {
        let Expr::Attribute(operation, _) = head else {
            return self.line(indent, &format!("{prefix}{text}"));
        };
        let closing = operation.to_string().len() + "(".len();
        self.line(indent, &format!("{prefix}("));
        self.place(indent + 4, "", operation, "");
        self.line(indent, &text[closing..]);
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

/// Whether the expression is an operation with only one operator of the lowest precedence.
/// Formatters break such an operation in its last or first brackets, if it ends or begins with one.
fn has_one_operator(expr: &Expr) -> bool {
    let Expr::Binary(left, operator, _) = expr else { return false };
    !matches!(&**left, Expr::Binary(_, inner, _) if strength(inner) == strength(operator))
}

/// The text of such an operation up to its last opening bracket, inside, and from its end on.
fn last_brackets(expr: &Expr) -> Option<[String; 3]> {
    let text = expr.to_string();
    let inside = text.strip_suffix(')').filter(|_| has_one_operator(expr))?;
    let mut depth = 1;
    let open = inside.char_indices().rev().find(|(_, c)| {
        depth += i32::from(*c == ')') - i32::from(*c == '(');
        depth == 0
    });
    let (head, inner) = inside.split_at(open?.0 + 1);
    (!inner.is_empty()).then(|| [head.to_string(), inner.to_string(), ")".to_string()])
}

/// The first bracket of such an operation, what is inside, and the text from its end on.
fn first_brackets(expr: &Expr) -> Option<[String; 3]> {
    let text = expr.to_string();
    let inside = text.strip_prefix('(').filter(|_| has_one_operator(expr))?;
    let mut depth = 1;
    let close = inside.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth == 0
    });
    let (inner, rest) = inside.split_at(close?.0);
    Some(["(".to_string(), inner.to_string(), rest.to_string()])
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
