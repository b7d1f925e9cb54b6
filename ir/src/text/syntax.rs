//! Parses text into a tree; names are not resolved and types not checked yet.

use std::sync::Arc;

use smallvec::SmallVec;

use super::attrs::Reader;
use super::cursor::Span;
use super::version;
use crate::attr::Attr;
use crate::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use crate::dtype::DType;
use crate::external::TargetBody;
use crate::graph::{Argument, Bound, Constraint, Role};
use crate::loc::Loc;
use crate::op::infer::complete_attrs;
use crate::op::{self, Op};
use crate::shape::{Guard, Type};

/// A name in the text and its span.
#[derive(Clone)]
pub(super) struct Label<'s> {
    pub name: &'s str,
    pub span: Span,
}

pub(super) struct FunctionTree<'s> {
    pub name: Arc<str>,
    pub span: Span,
    /// Whether it is marked `entry`, that is, called from outside.
    pub entry: bool,
    pub external: bool,
    pub args: Vec<(Label<'s>, Argument, Type)>,
    pub results: Vec<ResultTree>,
    pub constraints: Vec<Constraint>,
    pub guards: Vec<Guard>,
    pub bodies: Vec<(TargetBody, Span)>,
    pub computes: Option<Arc<str>>,
    pub ops: Vec<OpTree<'s>>,
    /// The returned values, and the span of `return`.
    pub returned: Option<(Vec<Label<'s>>, Span)>,
}

pub(super) struct ResultTree {
    pub name: Arc<str>,
    pub ty: Type,
    pub ty_span: Span,
    pub state: Option<Arc<str>>,
}

pub(super) struct OpTree<'s> {
    pub results: SmallVec<[Label<'s>; 1]>,
    pub op: Op,
    pub operands: SmallVec<[Label<'s>; 3]>,
    /// All attributes, in the order of the table.
    pub attrs: SmallVec<[Attr; 2]>,
    /// The spans of the attributes that were given.
    pub attr_spans: Named<Span>,
    pub types: Option<SmallVec<[(Type, Span); 1]>>,
    pub loc: Loc,
    pub span: Span,
}

/// A map by attribute name.
type Named<T> = SmallVec<[(&'static str, T); 2]>;

/// Parses the functions of a text in the current version. The dtype `float` stands for the given
/// one.
/// Errors: the first syntax error, or an unknown operation or attribute.
pub(super) fn parse(source: &str, float: Option<DType>) -> Result<Vec<FunctionTree<'_>>> {
    let mut reader = Reader::new(source, float);
    version::read(&mut reader.cursor)?;
    let mut functions = Vec::new();
    while !reader.cursor.is_done() {
        functions.push(reader.function()?);
    }
    Ok(functions)
}

impl<'s> Reader<'s> {
    fn function(&mut self) -> Result<FunctionTree<'s>> {
        let start = self.cursor.start();
        let entry = self.cursor.eat_word("entry");
        let external = !entry && self.cursor.eat_word("extern");
        if !self.cursor.eat_word("func") {
            return self.cursor.expected("`func`, `entry func` or `extern func`");
        }
        let (name, _) = self.function_name()?;
        let span = self.cursor.since(start);
        let args = self.list(Self::argument)?;
        self.cursor.expect("->")?;
        let mut function = FunctionTree {
            name,
            span,
            entry,
            external,
            args,
            results: self.list(Self::result)?,
            constraints: self.constraints()?,
            computes: self.computes()?,
            guards: Vec::new(),
            bodies: Vec::new(),
            ops: Vec::new(),
            returned: None,
        };
        if !external || self.cursor.peek() == Some('{') {
            self.cursor.expect("{")?;
            while !self.cursor.eat("}") {
                self.statement(&mut function)?;
            }
        }
        Ok(function)
    }

    /// A list in parentheses, separated by commas.
    fn list<T>(&mut self, item: fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.cursor.expect("(")?;
        let mut items = Vec::new();
        while !self.cursor.eat(")") {
            items.push(item(self)?);
            if !self.cursor.eat(",") && self.cursor.peek() != Some(')') {
                return self.cursor.expected("`,` or `)`");
            }
        }
        Ok(items)
    }

    fn label(&mut self) -> Result<Label<'s>> {
        let (name, span) = self.cursor.label()?;
        Ok(Label { name, span })
    }

    fn argument(&mut self) -> Result<(Label<'s>, Argument, Type)> {
        let label = self.label()?;
        self.cursor.expect(":")?;
        let (ty, _) = self.ty()?;
        let mut argument = Argument { name: label.name.into(), role: Role::Data, donated: false };
        loop {
            let role = Role::ALL.into_iter().find(|role| self.cursor.eat_word(role.name()));
            if let Some(role) = role {
                argument.role = role;
            } else if self.cursor.peek() == Some('"') {
                argument.name = self.cursor.string("a name")?.0.into();
            } else if self.cursor.eat_word("donated") {
                argument.donated = true;
            } else {
                return Ok((label, argument, ty));
            }
        }
    }

    fn result(&mut self) -> Result<ResultTree> {
        let name = match self.cursor.peek() {
            Some('"') => self.cursor.string("a name")?.0.into(),
            _ => self.cursor.identifier("the name of a result")?.0.into(),
        };
        self.cursor.expect(":")?;
        let (ty, ty_span) = self.ty()?;
        let state = match self.cursor.eat_word("state") {
            true => Some(self.cursor.string("the name of a state argument")?.0.into()),
            false => None,
        };
        Ok(ResultTree { name, ty, ty_span, state })
    }

    fn constraints(&mut self) -> Result<Vec<Constraint>> {
        let mut constraints = Vec::new();
        let mut more = self.cursor.eat_word("where");
        while more {
            let left = self.cursor.dim_of_line()?;
            let relations = [("==", Bound::Equal), ("<=", Bound::AtMost), (">=", Bound::AtLeast)];
            let Some((_, relation)) = relations.into_iter().find(|(text, _)| self.cursor.eat(text))
            else {
                return self.cursor.expected("`==`, `<=` or `>=`");
            };
            let right = self.cursor.dim_of_line()?;
            constraints.push(Constraint { left, relation, right });
            more = self.cursor.eat(",");
        }
        Ok(constraints)
    }

    fn computes(&mut self) -> Result<Option<Arc<str>>> {
        match self.cursor.eat_word("computes") {
            true => Ok(Some(self.cursor.string("the name of a standard function")?.0.into())),
            false => Ok(None),
        }
    }

    fn statement(&mut self, function: &mut FunctionTree<'s>) -> Result<()> {
        if let Some((_, span)) = &function.returned {
            if self.cursor.is_done() {
                return self.cursor.expected("`}`");
            }
            if !self.cursor.eat_word("guard") {
                return Diagnostic::new("only guards may follow `return`").span(span.clone()).err();
            }
            function.guards.push(self.guard()?);
            return Ok(());
        }
        let start = self.cursor.start();
        if self.cursor.eat_word("guard") {
            function.guards.push(self.guard()?);
        } else if self.cursor.eat_word("body") {
            let body = self.body()?;
            function.bodies.push((body, self.cursor.since(start)));
        } else if function.external {
            return self.cursor.expected("`body`, `guard` or `}`");
        } else if self.cursor.eat_word("return") {
            let mut values = Vec::new();
            while self.cursor.peek() == Some('%') {
                values.push(self.label()?);
                if !self.cursor.eat(",") {
                    break;
                }
            }
            function.returned = Some((values, self.cursor.since(start)));
        } else {
            let op = self.operation(start)?;
            function.ops.push(op);
        }
        Ok(())
    }

    fn guard(&mut self) -> Result<Guard> {
        let left = self.cursor.dim_of_line()?;
        self.cursor.expect("==")?;
        let right = self.cursor.dim_of_line()?;
        Ok(Guard { left, right, loc: self.loc()? })
    }

    /// A target's name and the lines of its body.
    fn body(&mut self) -> Result<TargetBody> {
        let (target, _) = self.cursor.identifier("the name of a target")?;
        let (mut text, _) = self.cursor.string("the lines of the body in quotes")?;
        while self.cursor.peek() == Some('"') {
            text.push('\n');
            text.push_str(&self.cursor.string("a line in quotes")?.0);
        }
        Ok(TargetBody { target: target.into(), text: text.into() })
    }

    fn operation(&mut self, start: usize) -> Result<OpTree<'s>> {
        let mut results = SmallVec::new();
        if self.cursor.peek() == Some('%') {
            results.push(self.label()?);
            while self.cursor.eat(",") {
                results.push(self.label()?);
            }
            self.cursor.expect("=")?;
        }
        let (name, name_span) = self.cursor.identifier("an operation, `guard` or `return`")?;
        let Some(op) = op::find(name) else {
            let mut error =
                Diagnostic::new(format!("there is no operation `{name}`")).span(name_span);
            error.hint = did_you_mean(name, op::table().map(|op| op.0.name));
            return error.err();
        };
        let operands = self.list(Self::label)?.into();
        let (given, attr_spans) = self.attrs(op)?;
        let attrs = complete_attrs(op, &given).map_err(|error| Box::new(error.span(name_span)))?;
        let types = match self.cursor.eat(":") {
            true => Some(self.types()?),
            false => None,
        };
        // The underlined span of an error leaves out the location.
        let span = self.cursor.since(start);
        let loc = self.loc()?;
        Ok(OpTree { results, op, operands, attrs, attr_spans, types, loc, span })
    }

    fn attrs(&mut self, op: Op) -> Result<(Named<Attr>, Named<Span>)> {
        let (mut given, mut spans) = (Named::new(), Named::new());
        if !self.cursor.eat("{") {
            return Ok((given, spans));
        }
        while !self.cursor.eat("}") {
            let start = self.cursor.start();
            let (name, span) = self.cursor.identifier("the name of an attribute")?;
            let Some(at) = op.attr_index(name) else {
                let mut error =
                    Diagnostic::new(format!("`{}` has no attribute `{name}`", op.name)).span(span);
                error.hint = did_you_mean(name, op.attrs.iter().map(|a| a.name));
                return error.err();
            };
            let def = &op.attrs[at];
            if given.iter().any(|(name, _)| *name == def.name) {
                return Diagnostic::of(
                    ErrorKind::Setting,
                    format!("the attribute `{name}` is given twice"),
                )
                .span(span)
                .err();
            }
            self.cursor.expect("=")?;
            given.push((def.name, self.attr(def)?));
            spans.push((def.name, self.cursor.since(start)));
            if !self.cursor.eat(",") && self.cursor.peek() != Some('}') {
                return self.cursor.expected("`,` or `}`");
            }
        }
        Ok((given, spans))
    }

    fn types(&mut self) -> Result<SmallVec<[(Type, Span); 1]>> {
        let mut types = SmallVec::from_iter([self.ty()?]);
        while self.cursor.eat(",") {
            types.push(self.ty()?);
        }
        Ok(types)
    }

    fn loc(&mut self) -> Result<Loc> {
        let mut loc = Loc::unknown();
        let mut more = self.cursor.eat("@");
        while more {
            let (path, _) = self.cursor.string("a block path in quotes")?;
            loc.merge(&Loc::path(path));
            more = self.cursor.eat(",");
        }
        Ok(loc)
    }
}
