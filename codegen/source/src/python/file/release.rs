//! Deletes variables after their last use. Eager frameworks allocate memory for each result, which
//! a variable would keep alive until the function returns.

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashSet};

use super::{Expr, Statement};
use crate::python::prelude::words;

/// Finds the section in which each variable is read last. A section is the statements under one
/// comment.
struct LastReads<'a> {
    names: &'a FxHashSet<String>,
    section: usize,
    read: IndexMap<&'a str, usize, FxBuildHasher>,
}

impl LastReads<'_> {
    fn read(&mut self, expr: &Expr) {
        expr.visit(&mut |part| {
            if let Expr::Name(text) = part {
                self.read_words(text);
            }
        });
    }

    fn read_words(&mut self, text: &str) {
        for name in words(text).filter_map(|word| self.names.get(word)) {
            self.read.insert(name, self.section);
        }
    }

    fn visit(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Comment(_) => self.section += 1,
                Statement::Line(prefix, expr) => {
                    self.read_words(prefix);
                    self.read(expr);
                }
                Statement::Assert(test, _) => self.read(test),
                Statement::Loop(variables, over, inside) => {
                    self.read_words(variables);
                    self.read(over);
                    self.visit(inside);
                }
                Statement::While(test, inside) => {
                    self.read(test);
                    self.visit(inside);
                }
                Statement::If(test, then, otherwise) => {
                    self.read(test);
                    self.visit(then);
                    self.visit(otherwise);
                }
                Statement::Delete(_) => {}
            }
        }
    }

    /// The variables whose last read is in each section.
    fn by_section(&self) -> Vec<Vec<Expr>> {
        let mut sections = vec![Vec::new(); self.section + 1];
        for (name, last) in &self.read {
            sections[*last].push(Expr::name(*name));
        }
        sections
    }
}

/// Ends each section except the last by a `del` of the variables in `names` that are not read
/// afterwards. Variables that the expressions of `at_end` read are kept.
pub fn release(parts: &mut [&mut Vec<Statement>], names: &FxHashSet<String>, at_end: &[&Expr]) {
    let mut last = LastReads { names, section: 0, read: IndexMap::default() };
    for part in parts.iter() {
        last.visit(part);
        last.section += 1;
    }
    at_end.iter().for_each(|expr| last.read(expr));
    let mut deleted = last.by_section();
    let mut in_section = |section: usize| {
        let names = std::mem::take(&mut deleted[section]);
        (!names.is_empty()).then_some(Statement::Delete(names))
    };
    let mut section = 0;
    for part in parts {
        let mut written = Vec::with_capacity(part.len());
        for statement in part.drain(..) {
            if matches!(statement, Statement::Comment(_)) {
                written.extend(in_section(section));
                section += 1;
            }
            written.push(statement);
        }
        if section + 1 < last.section {
            written.extend(in_section(section));
        }
        section += 1;
        **part = written;
    }
}
