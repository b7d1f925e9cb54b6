//! Parses the text of scalar expressions, with Python's operators and precedence.

use super::Prim;
use super::node::Node;
use std::collections::HashMap;

/// The column (from 0) and the problem there.
type Error = (usize, String);

/// The maximum nesting depth, so that recursion cannot exhaust the stack.
const MAX_DEPTH: usize = 100;

/// Binary operators, from the loosest level. Those of a level are left-associative, but comparisons
/// do not chain. `**`, which binds tightest and is right-associative, and unary operators are
/// parsed separately.
const LEVELS: &[&[(&str, Prim)]] = &[
    &[
        ("<", Prim::Lt),
        ("<=", Prim::Le),
        (">", Prim::Gt),
        (">=", Prim::Ge),
        ("==", Prim::Eq),
        ("!=", Prim::Ne),
    ],
    &[("|", Prim::Or)],
    &[("^", Prim::Xor)],
    &[("&", Prim::And)],
    &[("<<", Prim::ShiftLeft), (">>", Prim::ShiftRight)],
    &[("+", Prim::Add), ("-", Prim::Sub)],
    &[("*", Prim::Mul), ("/", Prim::Div), ("//", Prim::FloorDiv), ("%", Prim::Mod)],
];

const CONSTANTS: &[(&str, f64)] = &[
    ("inf", f64::INFINITY),
    ("nan", f64::NAN),
    ("pi", std::f64::consts::PI),
    ("e", std::f64::consts::E),
];

/// Longer symbols come first.
const SYMBOLS: &[&str] = &[
    "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "<", ">", "=", "+", "-", "*", "/", "%", "&",
    "|", "^", "~", "(", ")", ",", ";",
];

#[derive(Clone, Copy, PartialEq, Debug)]
enum Token<'a> {
    Number(f64),
    Name(&'a str),
    Symbol(&'static str),
    End,
}

/// The nodes of `text` in SSA order without duplicates; the root is last.
pub fn parse(text: &str, operands: &[&str], attrs: &[&str]) -> Result<Vec<Node>, Error> {
    let tokens = tokenize(text)?;
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
        operands,
        attrs,
        bindings: HashMap::new(),
        nodes: vec![],
        known: HashMap::new(),
    };
    let body_end = parser.read_bindings()?;
    let root = parser.expression(0)?;
    if parser.at != body_end {
        return Err(parser.unexpected("an operator"));
    }
    let unused = parser.bindings.iter().filter(|(_, b)| b.value.is_none());
    if let Some((name, binding)) = unused.min_by_key(|(_, b)| b.start) {
        return Err((parser.tokens[binding.start].0, format!("`{name}` is not used")));
    }
    Ok(reachable(&parser.nodes, root))
}

fn tokenize(text: &str) -> Result<Vec<(usize, Token<'_>)>, Error> {
    let bytes = text.as_bytes();
    let run = |from: usize, ok: fn(&u8) -> bool| {
        from + bytes[from..].iter().take_while(|b| ok(b)).count()
    };
    let mut tokens = vec![];
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let token = match bytes[at] {
            b' ' | b'\n' => {
                at += 1;
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                at = run(at, |b| b.is_ascii_alphanumeric() || *b == b'_');
                Token::Name(&text[start..at])
            }
            b'0'..=b'9' | b'.' => {
                at = run(at, |b| b.is_ascii_digit() || *b == b'.');
                if matches!(bytes.get(at), Some(b'e')) {
                    let sign = matches!(bytes.get(at + 1), Some(b'+' | b'-')) as usize;
                    at = run(at + 1 + sign, u8::is_ascii_digit);
                }
                let digits = &text[start..at];
                let bad = |_| (start, format!("`{digits}` is not a number"));
                Token::Number(digits.parse().map_err(bad)?)
            }
            _ => {
                let symbol = SYMBOLS.iter().find(|s| text[at..].starts_with(**s));
                let other = || text[at..].chars().next().unwrap_or(' ');
                let symbol = symbol.ok_or_else(|| (at, format!("unexpected `{}`", other())))?;
                at += symbol.len();
                Token::Symbol(symbol)
            }
        };
        tokens.push((start, token));
    }
    tokens.push((text.len(), Token::End));
    Ok(tokens)
}

/// A name bound after `where`.
struct Binding {
    /// The index of the first token of its expression.
    start: usize,
    /// Set while the binding is being parsed, to detect cycles.
    open: bool,
    value: Option<u16>,
}

struct Parser<'a> {
    tokens: Vec<(usize, Token<'a>)>,
    at: usize,
    depth: usize,
    operands: &'a [&'a str],
    attrs: &'a [&'a str],
    bindings: HashMap<&'a str, Binding>,
    nodes: Vec<Node>,
    /// Finds existing nodes. The key of a constant is its bits.
    known: HashMap<(Option<Prim>, u64, [u16; 3]), u16>,
}

impl<'a> Parser<'a> {
    /// Finds `where` and records where each binding starts. Returns the index of the token at which
    /// the body ends.
    fn read_bindings(&mut self) -> Result<usize, Error> {
        let is_where = |t: &(usize, Token)| t.1 == Token::Name("where");
        let Some(body_end) = self.tokens.iter().position(is_where) else {
            return Ok(self.tokens.len() - 1);
        };
        let mut at = body_end;
        while at < self.tokens.len() - 1 {
            let (column, Token::Name(name)) = self.tokens[at + 1] else {
                return Err((self.tokens[at + 1].0, "a name to bind is missing".into()));
            };
            if self.tokens[at + 2].1 != Token::Symbol("=") {
                return Err((self.tokens[at + 2].0, format!("`=` is missing after `{name}`")));
            }
            let binding = Binding { start: at + 3, open: false, value: None };
            if self.bindings.insert(name, binding).is_some() || self.operands.contains(&name) {
                return Err((column, format!("`{name}` is bound twice")));
            }
            let ends = |t: &(usize, Token)| matches!(t.1, Token::Symbol(";") | Token::End);
            at += 3;
            at += self.tokens[at..].iter().position(ends).unwrap_or(0);
        }
        Ok(body_end)
    }

    fn peek(&self) -> Token<'a> {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        // Never moves past the last token, `End`.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let (column, token) = self.tokens[self.at];
        let got = match token {
            Token::Number(x) => format!("{x}"),
            Token::Name(name) => format!("`{name}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end".into(),
        };
        (column, format!("{wanted} is missing, got {got}"))
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), Error> {
        if self.peek() != Token::Symbol(symbol) {
            return Err(self.unexpected(&format!("`{symbol}`")));
        }
        self.next();
        Ok(())
    }

    fn push(&mut self, node: Node) -> Result<u16, Error> {
        let key = match node {
            Node::Const(x) => (None, x.to_bits(), [0; 3]),
            Node::Var(v) => (None, v.into(), [1; 3]),
            Node::Attr(a) => (None, a.into(), [2; 3]),
            Node::Prim(prim, args) => (Some(prim), 0, args),
        };
        if let Some(&i) = self.known.get(&key) {
            return Ok(i);
        }
        let too_long = |_| (self.tokens[self.at].0, "the expression is too long".to_string());
        let i = u16::try_from(self.nodes.len()).map_err(too_long)?;
        self.nodes.push(node);
        self.known.insert(key, i);
        Ok(i)
    }

    fn expression(&mut self, level: usize) -> Result<u16, Error> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.expression(level + 1)?;
        let mut compared = false;
        loop {
            let Token::Symbol(symbol) = self.peek() else {
                return Ok(left);
            };
            let Some((_, prim)) = operators.iter().find(|(s, _)| *s == symbol) else {
                return Ok(left);
            };
            if compared {
                let what = "comparisons do not chain; write `(a < b) & (b < c)`";
                return Err((self.tokens[self.at].0, what.into()));
            }
            compared = level == 0;
            self.next();
            let right = self.expression(level + 1)?;
            left = self.push(Node::Prim(*prim, [left, right, 0]))?;
        }
    }

    fn unary(&mut self) -> Result<u16, Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err((self.tokens[self.at].0, "the expression is nested too deep".into()));
        }
        let prim = match self.peek() {
            Token::Symbol("-") => Some(Prim::Neg),
            Token::Symbol("~") => Some(Prim::Not),
            _ => None,
        };
        let result = if let Some(prim) = prim {
            self.next();
            let x = self.unary()?;
            match (prim, self.nodes[x as usize]) {
                (Prim::Neg, Node::Const(c)) => self.push(Node::Const(-c)),
                _ => self.push(Node::Prim(prim, [x, 0, 0])),
            }
        } else {
            self.power()
        };
        self.depth -= 1;
        result
    }

    fn power(&mut self) -> Result<u16, Error> {
        let base = self.atom()?;
        if self.peek() != Token::Symbol("**") {
            return Ok(base);
        }
        self.next();
        let exponent = self.unary()?;
        self.push(Node::Prim(Prim::Pow, [base, exponent, 0]))
    }

    fn atom(&mut self) -> Result<u16, Error> {
        match self.peek() {
            Token::Number(x) => {
                self.next();
                self.push(Node::Const(x))
            }
            Token::Symbol("(") => {
                self.next();
                let inner = self.expression(0)?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Name(name) if name != "where" => {
                let column = self.tokens[self.at].0;
                self.next();
                match self.peek() {
                    Token::Symbol("(") => self.call(name, column),
                    _ => self.name(name, column),
                }
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    fn call(&mut self, name: &str, column: usize) -> Result<u16, Error> {
        let prim = Prim::from_name(name)
            .ok_or_else(|| (column, format!("there is no primitive `{name}`")))?;
        let mut args = vec![];
        let mut more = true;
        while more {
            // Skips the parenthesis or comma.
            self.next();
            args.push(self.expression(0)?);
            more = self.peek() == Token::Symbol(",");
        }
        self.expect(")")?;
        if args.len() != prim.arity() {
            let (want, got) = (prim.arity(), args.len());
            return Err((column, format!("`{name}` takes {want} operands, got {got}")));
        }
        args.resize(3, 0);
        self.push(Node::Prim(prim, [args[0], args[1], args[2]]))
    }

    fn name(&mut self, name: &str, column: usize) -> Result<u16, Error> {
        let find = |names: &[&str]| names.iter().position(|n| *n == name);
        if self.bindings.contains_key(name) {
            return self.bound(name, column);
        }
        if let Some(i) = find(self.operands) {
            return self.push(Node::Var(i as u8));
        }
        if let Some(i) = find(self.attrs) {
            return self.push(Node::Attr(i as u8));
        }
        match CONSTANTS.iter().find(|(n, _)| *n == name) {
            Some((_, x)) => self.push(Node::Const(*x)),
            None => Err((column, format!("unknown name `{name}`"))),
        }
    }

    /// Parses a binding at its first use, so that bindings may be in any order.
    fn bound(&mut self, name: &str, column: usize) -> Result<u16, Error> {
        let Some(binding) = self.bindings.get_mut(name) else {
            return Ok(0);
        };
        if let Some(value) = binding.value {
            return Ok(value);
        }
        if binding.open {
            return Err((column, format!("`{name}` depends on itself")));
        }
        binding.open = true;
        let back = std::mem::replace(&mut self.at, binding.start);
        let value = self.expression(0)?;
        if !matches!(self.peek(), Token::Symbol(";") | Token::End) {
            return Err(self.unexpected("`;`"));
        }
        self.at = back;
        if let Some(binding) = self.bindings.get_mut(name) {
            binding.value = Some(value);
        }
        Ok(value)
    }
}

/// The nodes that `root` uses, in the same order; `root` is last.
fn reachable(nodes: &[Node], root: u16) -> Vec<Node> {
    let mut used = vec![false; nodes.len()];
    used[root as usize] = true;
    for (i, node) in nodes.iter().enumerate().rev() {
        if let (true, Node::Prim(prim, args)) = (used[i], node) {
            args[..prim.arity()].iter().for_each(|&a| used[a as usize] = true);
        }
    }
    let mut place = vec![0; nodes.len()];
    let mut kept = vec![];
    for (i, &node) in nodes.iter().enumerate() {
        if !used[i] {
            continue;
        }
        place[i] = kept.len() as u16;
        kept.push(match node {
            Node::Prim(prim, mut args) => {
                args[..prim.arity()].iter_mut().for_each(|a| *a = place[*a as usize]);
                Node::Prim(prim, args)
            }
            leaf => leaf,
        });
    }
    kept
}
