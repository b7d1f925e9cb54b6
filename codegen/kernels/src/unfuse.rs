//! Loop code for machines that multiply and add in two steps: [`Inst::Fma`] spelled out.
//!
//! Series count on a product that is not rounded before something is added to it. In f32 the sum is
//! taken in f64; in f64 what the product and the sum lose is worked out and added (Dekker, Knuth).
//! Both are within little more than half a unit of the exact result.

use mithril_ir::dtype::DType;

use crate::code::{Binary, Cmp, Code, Inst, Region, Stmt, Ty, V};

/// 2²⁷ + 1: it cuts a number into two parts whose products are exact.
const SPLITTER: f64 = 134217729.0;

/// Replaces all fused operations.
pub fn unfuse(code: &mut Code) {
    let body = std::mem::take(&mut code.body);
    code.body = unfused(&mut code.types, body);
}

fn unfused(types: &mut Vec<Ty>, body: Vec<Stmt>) -> Vec<Stmt> {
    let mut steps = Steps { types, out: Vec::with_capacity(body.len()) };
    for mut stmt in body {
        match &mut stmt.inst {
            Inst::Fma(x, y, z) => {
                let (args, result) = ([*x, *y, *z], stmt.results[0]);
                match steps.types[result.0 as usize].dtype {
                    DType::F64 => steps.double(args, result),
                    _ => steps.single(args, result),
                }
                continue;
            }
            Inst::For { region, .. } => inside(steps.types, region),
            Inst::If { yes, no, .. } => {
                inside(steps.types, yes);
                inside(steps.types, no);
            }
            _ => {}
        }
        steps.out.push(stmt);
    }
    steps.out
}

fn inside(types: &mut Vec<Ty>, region: &mut Region) {
    let body = std::mem::take(&mut region.body);
    region.body = unfused(types, body);
}

/// Statements, and the types of their values.
struct Steps<'a> {
    types: &'a mut Vec<Ty>,
    out: Vec<Stmt>,
}

impl Steps<'_> {
    fn value(&mut self, ty: Ty, inst: Inst) -> V {
        let v = V(self.types.len() as u32);
        self.types.push(ty);
        self.out.push(Stmt { results: vec![v], inst });
        v
    }

    fn binary(&mut self, op: Binary, x: V, y: V) -> V {
        self.value(self.types[x.0 as usize], Inst::Binary(op, x, y))
    }

    /// In f64, which holds the product of numbers in f32.
    fn single(&mut self, args: [V; 3], result: V) {
        let wide = self.types[result.0 as usize].with(DType::F64);
        let [x, y, z] = args.map(|arg| self.value(wide, Inst::Convert(arg)));
        let product = self.binary(Binary::Mul, x, y);
        let sum = self.binary(Binary::Add, product, z);
        self.out.push(Stmt { results: vec![result], inst: Inst::Convert(sum) });
    }

    fn double(&mut self, [x, y, z]: [V; 3], result: V) {
        let ty = self.types[result.0 as usize];
        let product = self.binary(Binary::Mul, x, y);
        let ((xh, xl), (yh, yl)) = (self.halves(x), self.halves(y));
        // What the product lost.
        let mut lost = self.binary(Binary::Mul, xh, yh);
        lost = self.binary(Binary::Sub, lost, product);
        for (a, b) in [(xh, yl), (xl, yh), (xl, yl)] {
            let part = self.binary(Binary::Mul, a, b);
            lost = self.binary(Binary::Add, lost, part);
        }
        // What the sum lost.
        let sum = self.binary(Binary::Add, product, z);
        let added = self.binary(Binary::Sub, sum, product);
        let kept = self.binary(Binary::Sub, sum, added);
        let first = self.binary(Binary::Sub, product, kept);
        let second = self.binary(Binary::Sub, z, added);
        let cut = self.binary(Binary::Add, first, second);
        let rest = self.binary(Binary::Add, cut, lost);
        let exact = self.binary(Binary::Add, sum, rest);
        // Where the sum is not finite, or a number was too large to be cut, it is right by itself.
        let right = self.value(ty.with(DType::Bool), Inst::Compare(Cmp::Eq, exact, exact));
        self.out.push(Stmt { results: vec![result], inst: Inst::Select(right, exact, sum) });
    }

    /// A number as the sum of two of half its bits.
    fn halves(&mut self, x: V) -> (V, V) {
        let ty = self.types[x.0 as usize];
        let splitter = self.value(ty, Inst::Const(SPLITTER.to_bits()));
        let scaled = self.binary(Binary::Mul, x, splitter);
        let rest = self.binary(Binary::Sub, scaled, x);
        let high = self.binary(Binary::Sub, scaled, rest);
        (high, self.binary(Binary::Sub, x, high))
    }
}
