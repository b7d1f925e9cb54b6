//! Legalizes loop code: expands instructions that the processor lacks.

pub mod f16;
pub mod fma;

use crate::code::{Binary, Code, Inst, Region, Stmt, Ty, V};
use crate::isa::Isa;

/// Expands the instructions that the processor lacks.
pub fn legalize(code: &mut Code, isa: &Isa) {
    if !isa.fma {
        fma::expand_fma(code);
    }
    if !isa.f16 {
        f16::expand_f16(code);
    }
}

/// Appends the statements that replace a statement. Returns false if the statement is kept.
type Rule = dyn Fn(&mut Steps, &Stmt) -> bool;

/// Applies `rule` to each statement, at any depth.
fn replace(code: &mut Code, rule: &Rule) {
    let body = std::mem::take(&mut code.body);
    code.body = replaced(&mut code.types, body, rule);
    code.functions.iter_mut().for_each(|function| inside(&mut code.types, function, rule));
}

fn replaced(types: &mut Vec<Ty>, body: Vec<Stmt>, rule: &Rule) -> Vec<Stmt> {
    let mut steps = Steps { types, out: Vec::with_capacity(body.len()) };
    for mut stmt in body {
        if rule(&mut steps, &stmt) {
            continue;
        }
        match &mut stmt.inst {
            Inst::For { region, .. } => inside(steps.types, region, rule),
            Inst::If { yes, no, .. } => {
                inside(steps.types, yes, rule);
                inside(steps.types, no, rule);
            }
            _ => {}
        }
        steps.out.push(stmt);
    }
    steps.out
}

fn inside(types: &mut Vec<Ty>, region: &mut Region, rule: &Rule) {
    let body = std::mem::take(&mut region.body);
    region.body = replaced(types, body, rule);
}

/// The statements of a region being rewritten, and the types of the code's values.
struct Steps<'a> {
    types: &'a mut Vec<Ty>,
    out: Vec<Stmt>,
}

impl Steps<'_> {
    fn ty(&self, v: V) -> Ty {
        self.types[v.0 as usize]
    }

    fn value(&mut self, ty: Ty, inst: Inst) -> V {
        let v = V(self.types.len() as u32);
        self.types.push(ty);
        self.out.push(Stmt { results: vec![v], inst });
        v
    }

    /// Appends a statement that defines the result of the replaced statement.
    fn define(&mut self, result: V, inst: Inst) {
        self.out.push(Stmt { results: vec![result], inst });
    }

    fn binary(&mut self, op: Binary, x: V, y: V) -> V {
        self.value(self.types[x.0 as usize], Inst::Binary(op, x, y))
    }
}
