//! Parsed templates. Their language is described at [`backends`](crate::backends).

use super::expr::{Argument, Expr, OPERATORS, Strength, UNARY, operand_strengths, strength};
use super::transposes::composed;

/// One way to spell an operation, and when it may be used.
#[derive(Clone, PartialEq, Debug)]
pub struct Alternative {
    pub expr: Expr,
    pub guards: Vec<Guard>,
}

/// `slot is word` or `slot == text`.
#[derive(Clone, PartialEq, Debug)]
pub struct Guard {
    pub slot: String,
    pub test: Test,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    Is(String),
    Equals(String),
}

/// What fills the slots of a template.
pub enum Filling {
    One(Expr),
    /// Several expressions: separate items where a list may stand, a tuple elsewhere.
    Many(Vec<Expr>),
}

/// The alternatives of a template, in order.
/// Errors: text that is not a template, with the position where parsing fails.
pub fn parse(text: &str) -> Result<Vec<Alternative>, String> {
    text.split("; ").map(alternative).collect()
}

fn alternative(text: &str) -> Result<Alternative, String> {
    let (body, conditions) = match text.split_once(" if ") {
        Some((body, conditions)) => (body, Some(conditions)),
        None => (text, None),
    };
    let guards = conditions.map(|c| c.split(" and ").map(guard).collect());
    let mut parser = Parser { text: body, at: 0, segments: 0 };
    let expr = parser.expression(0)?;
    parser.end()?;
    Ok(Alternative { expr, guards: guards.unwrap_or(Ok(Vec::new()))? })
}

fn guard(text: &str) -> Result<Guard, String> {
    let test = match (text.split_once(" is "), text.split_once(" == ")) {
        (Some((slot, word)), _) => (slot, Test::Is(word.trim().into())),
        (_, Some((slot, value))) => (slot, Test::Equals(value.trim().into())),
        _ => return Err(format!("`{text}` is not a condition")),
    };
    Ok(Guard { slot: test.0.trim().into(), test: test.1 })
}

/// Fills the slots of an expression. `default` says whether a slot is at its default: an optional
/// segment is left out if all its slots are. `module` replaces `@`.
pub fn fill<E>(
    expr: &Expr,
    module: &str,
    default: &mut dyn FnMut(&str) -> bool,
    slot: &mut dyn FnMut(&str) -> Result<Filling, E>,
) -> Result<Expr, E> {
    Filler { module, default, slot }.expr(expr)
}

struct Filler<'a, E> {
    module: &'a str,
    default: &'a mut dyn FnMut(&str) -> bool,
    slot: &'a mut dyn FnMut(&str) -> Result<Filling, E>,
}

impl<E> Filler<'_, E> {
    fn boxed(&mut self, expr: &Expr) -> Result<Box<Expr>, E> {
        self.expr(expr).map(Box::new)
    }

    fn expr(&mut self, expr: &Expr) -> Result<Expr, E> {
        Ok(match expr {
            Expr::Name(name) if name == "@" => Expr::name(self.module),
            Expr::Name(_) | Expr::Literal(_) => expr.clone(),
            Expr::Slot(name) => match (self.slot)(name)? {
                Filling::One(expr) => expr,
                Filling::Many(items) => Expr::Tuple(items),
            },
            Expr::Unary(operator, x) => Expr::Unary(operator, self.boxed(x)?),
            Expr::Binary(x, operator, y) => Expr::Binary(self.boxed(x)?, operator, self.boxed(y)?),
            Expr::Attribute(x, name) => Expr::Attribute(self.boxed(x)?, name.clone()),
            Expr::Call(x, args) => composed(Expr::Call(self.boxed(x)?, self.arguments(args)?)),
            Expr::Index(x, items) => Expr::Index(self.boxed(x)?, self.items(items)?),
            Expr::Tuple(items) => Expr::Tuple(self.items(items)?),
            Expr::List(items) => Expr::List(self.items(items)?),
            Expr::Starred(x) => Expr::Starred(self.boxed(x)?),
            Expr::Range(_) | Expr::Dict(_) | Expr::Lambda(..) => expr.clone(),
        })
    }

    fn items(&mut self, items: &[Expr]) -> Result<Vec<Expr>, E> {
        let mut filled = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Expr::Slot(name) => match (self.slot)(name)? {
                    Filling::One(expr) => filled.push(expr),
                    Filling::Many(more) => filled.extend(more),
                },
                _ => filled.push(self.expr(item)?),
            }
        }
        Ok(filled)
    }

    fn arguments(&mut self, args: &[Argument]) -> Result<Vec<Argument>, E> {
        let mut filled = Vec::with_capacity(args.len());
        for arg in args {
            let whole = |a: &&Argument| arg.segment.is_some() && a.segment == arg.segment;
            let mut dropped = arg.segment.is_some();
            for part in args.iter().filter(whole) {
                part.value.visit(&mut |e| {
                    if let Expr::Slot(name) = e {
                        dropped &= (self.default)(name);
                    }
                });
            }
            if dropped {
                continue;
            }
            match (&arg.keyword, &arg.value) {
                (None, Expr::Slot(name)) => match (self.slot)(name)? {
                    Filling::One(expr) => filled.push(Argument::plain(expr)),
                    Filling::Many(more) => filled.extend(more.into_iter().map(Argument::plain)),
                },
                (keyword, value) => filled.push(Argument {
                    keyword: keyword.clone(),
                    value: self.expr(value)?,
                    segment: None,
                }),
            }
        }
        Ok(filled)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    segments: u32,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        match self.eat(token) {
            true => Ok(()),
            false => Err(self.error(&format!("`{token}`"))),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.skip();
        match self.rest() {
            "" => Ok(()),
            _ => Err(self.error("the end")),
        }
    }

    fn error(&self, expected: &str) -> String {
        match self.rest() {
            "" => format!("`{}`: {expected} is expected at the end", self.text),
            rest => format!("`{}`: {expected} is expected at `{rest}`", self.text),
        }
    }

    fn word(&mut self) -> Option<String> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')
            .unwrap_or(rest.len());
        let word = rest[..end].to_string();
        self.at += end;
        (end > 0).then_some(word)
    }

    fn expression(&mut self, least: Strength) -> Result<Expr, String> {
        let mut left = self.operand()?;
        loop {
            self.skip();
            let rest = self.rest();
            let Some((operator, own)) = OPERATORS.iter().find(|(o, _)| rest.starts_with(o)) else {
                return Ok(left);
            };
            if *own < least {
                return Ok(left);
            }
            self.at += operator.len();
            let right = self.expression(operand_strengths(operator).1)?;
            left = left.binary(operator, right);
        }
    }

    fn operand(&mut self) -> Result<Expr, String> {
        self.skip();
        for sign in ["-", "~"] {
            if self.eat(sign) {
                let x = self.expression(UNARY)?;
                return Ok(match x {
                    Expr::Literal(text) if sign == "-" => Expr::Literal(format!("-{text}")),
                    x => Expr::Unary(sign, Box::new(x)),
                });
            }
        }
        if self.eat("*") {
            let x = self.expression(strength("|"))?;
            return Ok(Expr::Starred(Box::new(x)));
        }
        let atom = self.atom()?;
        self.postfix(atom)
    }

    fn atom(&mut self) -> Result<Expr, String> {
        if self.eat("{") {
            let name = self.word().ok_or_else(|| self.error("a name"))?;
            self.expect("}")?;
            return Ok(Expr::Slot(name));
        }
        if self.eat("...") {
            return Ok(Expr::name("..."));
        }
        if self.eat("@") {
            return self.dotted("@.");
        }
        if self.eat("\"") {
            let end = self.rest().find('"').ok_or_else(|| self.error("`\"`"))?;
            let text = format!("\"{}\"", &self.rest()[..end]);
            self.at += end + 1;
            return Ok(Expr::Literal(text));
        }
        if self.eat("(") {
            return self.parenthesis();
        }
        if self.eat("[") {
            let (items, _) = self.list("]")?;
            return Ok(Expr::List(items));
        }
        match self.rest().chars().next() {
            Some(c) if c.is_ascii_digit() => Ok(Expr::Literal(self.word().unwrap_or_default())),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.dotted(""),
            _ => Err(self.error("an operand")),
        }
    }

    /// A name with attributes: `np.linalg.norm`.
    fn dotted(&mut self, front: &str) -> Result<Expr, String> {
        let word = self.word().ok_or_else(|| self.error("a name"))?;
        let path = format!("{front}{word}");
        let mut parts = path.split('.');
        let first = Expr::name(parts.next().unwrap_or_default());
        Ok(parts.fold(first, |e, part| e.attribute(part)))
    }

    fn parenthesis(&mut self) -> Result<Expr, String> {
        let (mut items, comma) = self.list(")")?;
        match (items.len(), comma) {
            (1, false) => Ok(items.remove(0)),
            _ => Ok(Expr::Tuple(items)),
        }
    }

    /// Expressions up to `close`, and whether a comma came last.
    fn list(&mut self, close: &str) -> Result<(Vec<Expr>, bool), String> {
        let mut items = Vec::new();
        let mut comma = false;
        while !self.eat(close) {
            items.push(match self.eat(":") {
                true => Expr::Range([None, None, None]),
                false => self.expression(0)?,
            });
            comma = self.eat(",");
            if !comma {
                self.expect(close)?;
                break;
            }
        }
        Ok((items, comma))
    }

    fn postfix(&mut self, mut expr: Expr) -> Result<Expr, String> {
        loop {
            if self.rest().starts_with('.') {
                self.at += 1;
                let names = self.word().ok_or_else(|| self.error("a name"))?;
                expr = names.split('.').fold(expr, |e, name| e.attribute(name));
            } else if self.rest().starts_with('(') {
                self.at += 1;
                expr = expr.call(self.arguments()?);
            } else if self.rest().starts_with('[') && !self.rest().starts_with("[, ") {
                self.at += 1;
                expr = expr.index(self.list("]")?.0);
            } else {
                return Ok(expr);
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Argument>, String> {
        let mut args = Vec::new();
        let mut segment = None;
        loop {
            if segment.is_none() && self.eat(")") {
                return Ok(args);
            }
            if self.eat("[, ") {
                self.segments += 1;
                segment = Some(self.segments);
            }
            args.push(self.argument(segment)?);
            if segment.is_some() && self.eat("]") {
                segment = None;
            }
            let next = self.rest().starts_with(")") || self.rest().starts_with("[, ");
            if !self.eat(", ") && !next {
                return Err(self.error("`,` or `)`"));
            }
        }
    }

    fn argument(&mut self, segment: Option<u32>) -> Result<Argument, String> {
        self.skip();
        let rest = self.rest();
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let keyword = word.filter(|&end| {
            end > 0 && rest[end..].starts_with('=') && !rest[end..].starts_with("==")
        });
        let keyword = keyword.map(|end| rest[..end].to_string());
        self.at += keyword.as_ref().map_or(0, |k| k.len() + 1);
        Ok(Argument { keyword, value: self.expression(0)?, segment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::BACKENDS;

    /// A parsed template prints as it was written.
    #[test]
    fn templates_print_as_written() {
        for text in [
            "{x} + {y}",
            "@sum({x}, axis={axes}, keepdims={keepdim})",
            "{x} * _sigmoid({x})",
            "@where({x} > 0, {x}, {slope} * {x})",
            "F.layer_norm({x}, ({x.last},), eps={epsilon})",
            "@sort({x}, dim={axis}, stable=True).values",
            "@fft.fft({x} + 1j * {y}).real.astype({dtype})",
            "{x}[:, 0].T",
            "-{x} ** {y}",
            "({x} - {y}) ** 2",
            "~({a} & {b} | {c})",
        ] {
            let printed = parse(text).unwrap()[0].expr.to_string();
            assert_eq!(printed, text.replace('@', "@."));
        }
    }

    /// Every template of the table parses, and its last alternative has no condition, so that an
    /// operation with a template can always be written.
    #[test]
    fn last_alternatives_have_no_condition() {
        for op in mithril_ir::op::table() {
            for text in BACKENDS.iter().map(|backend| backend.spelling(op)) {
                if text.is_empty() {
                    continue;
                }
                let parsed = parse(text).unwrap_or_else(|e| panic!("{}: {e}", op.name));
                let last = parsed.last().map_or(0, |a| a.guards.len());
                assert_eq!(last, 0, "{}: {text}", op.name);
            }
        }
    }

    #[test]
    fn conditions_and_optional_segments_are_parsed() {
        let parsed = parse("{x}.T if permutation == (1, 0) and x is matrix; @f({x}[, a={b}, {c}])");
        let parsed = parsed.unwrap();
        assert_eq!(parsed[0].guards.len(), 2);
        assert_eq!(parsed[0].guards[0].test, Test::Equals("(1, 0)".into()));
        let Expr::Call(_, args) = &parsed[1].expr else {
            panic!("a call");
        };
        assert_eq!(args[1].segment, args[2].segment);
        assert!(args[0].segment.is_none() && args[1].segment.is_some());
    }
}
