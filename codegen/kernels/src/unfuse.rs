//! Loop code for machines that multiply and add in two steps: [`Inst::Fma`] spelled out.
//!
//! Series count on a product that is not rounded before something is added to it. In f32 the sum is
//! taken in f64; in f64 what the product and the sum lose is worked out and added (Dekker, Knuth).
//! Both are within little more than half a unit of the exact result.

use mithril_ir::dtype::DType;

use crate::code::{Binary, Cmp, Code, Inst, Region, Stmt, Ty, Unary, V};

/// The sign, the exponent and the upper half of the fraction of an f64.
const UPPER: u64 = !0 << 27;
/// Half of the last bit of that.
const HALF: u64 = 1 << 26;
/// A product from here on may round to infinity where the sum is finite: 2¹⁰²⁰.
const LARGE: u64 = (1020 + 1023) << 52;
/// 2⁻⁶⁰ and 2⁶⁰: what such a sum is scaled by, and back.
const DOWN: u64 = (1023 - 60) << 52;
const UP: u64 = (1023 + 60) << 52;

/// Replaces all fused operations.
pub fn unfuse(code: &mut Code) {
    respell(code, &|steps, stmt| {
        let Inst::Fma(x, y, z) = stmt.inst else { return false };
        let result = stmt.results[0];
        match steps.ty(result).dtype {
            DType::F64 => steps.double([x, y, z], result),
            _ => steps.single([x, y, z], result),
        }
        true
    });
}

/// Adds the steps that do what a statement does; gives whether there are such.
pub(crate) type Spell = dyn Fn(&mut Steps, &Stmt) -> bool;

/// Replaces each statement that `spell` has steps for.
pub(crate) fn respell(code: &mut Code, spell: &Spell) {
    let body = std::mem::take(&mut code.body);
    code.body = respelled(&mut code.types, body, spell);
    code.functions.iter_mut().for_each(|function| inside(&mut code.types, function, spell));
}

fn respelled(types: &mut Vec<Ty>, body: Vec<Stmt>, spell: &Spell) -> Vec<Stmt> {
    let mut steps = Steps { types, out: Vec::with_capacity(body.len()) };
    for mut stmt in body {
        if spell(&mut steps, &stmt) {
            continue;
        }
        match &mut stmt.inst {
            Inst::For { region, .. } => inside(steps.types, region, spell),
            Inst::If { yes, no, .. } => {
                inside(steps.types, yes, spell);
                inside(steps.types, no, spell);
            }
            _ => {}
        }
        steps.out.push(stmt);
    }
    steps.out
}

fn inside(types: &mut Vec<Ty>, region: &mut Region, spell: &Spell) {
    let body = std::mem::take(&mut region.body);
    region.body = respelled(types, body, spell);
}

/// Statements, and the types of their values.
pub(crate) struct Steps<'a> {
    types: &'a mut Vec<Ty>,
    out: Vec<Stmt>,
}

impl Steps<'_> {
    pub(crate) fn ty(&self, v: V) -> Ty {
        self.types[v.0 as usize]
    }

    pub(crate) fn value(&mut self, ty: Ty, inst: Inst) -> V {
        let v = V(self.types.len() as u32);
        self.types.push(ty);
        self.out.push(Stmt { results: vec![v], inst });
        v
    }

    /// The statement that gives a value there already is a type of.
    pub(crate) fn give(&mut self, result: V, inst: Inst) {
        self.out.push(Stmt { results: vec![result], inst });
    }

    pub(crate) fn binary(&mut self, op: Binary, x: V, y: V) -> V {
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
        let [large, down, up, one] =
            [LARGE, DOWN, UP, 1f64.to_bits()].map(|bits| self.value(ty, Inst::Const(bits)));
        let size = self.value(ty, Inst::Unary(Unary::Abs, product));
        let is_large = self.value(ty.with(DType::Bool), Inst::Compare(Cmp::Gt, size, large));
        let down = self.value(ty, Inst::Select(is_large, down, one));
        let up = self.value(ty, Inst::Select(is_large, up, one));
        let [x, z] = [x, z].map(|v| self.binary(Binary::Mul, v, down));
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
        // Where the sum is not finite, it is right by itself.
        let right = self.value(ty.with(DType::Bool), Inst::Compare(Cmp::Eq, exact, exact));
        let sum = self.value(ty, Inst::Select(right, exact, sum));
        self.give(result, Inst::Binary(Binary::Mul, sum, up));
    }

    /// A number as the sum of two of half its bits, whose products are exact.
    fn halves(&mut self, x: V) -> (V, V) {
        let ty = self.types[x.0 as usize];
        let bits = self.value(ty.with(DType::U64), Inst::Bitcast(x));
        let [half, upper] =
            [HALF, UPPER].map(|bits| self.value(ty.with(DType::U64), Inst::Const(bits)));
        // To the nearest, so that the lower part has no more bits than the upper one.
        let rounded = self.binary(Binary::Add, bits, half);
        let upper = self.binary(Binary::And, rounded, upper);
        let high = self.value(ty, Inst::Bitcast(upper));
        (high, self.binary(Binary::Sub, x, high))
    }
}
