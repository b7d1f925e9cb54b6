//! How often values are used, and what is written.

use rustc_hash::FxHashSet;

use crate::code::{Code, Inst, Mem, Place, Region, Stmt, V};

/// What is used by statements that are not themselves for nothing.
pub struct Usage {
    /// How often, by value.
    pub values: Vec<u32>,
    pub memories: FxHashSet<Mem>,
}

/// `results` are used behind the code's end.
pub fn usage(code: &Code, results: &[V]) -> Usage {
    let mut usage = Usage { values: vec![0; code.types.len()], memories: FxHashSet::default() };
    for memory in &code.memories {
        if let Place::Scratch(offset) = memory.place {
            usage.values[offset.0 as usize] += 2;
        }
    }
    results.iter().for_each(|&v| usage.note(v));
    usage.block(&code.body);
    usage
}

impl Usage {
    /// From the last statement to the first, so that uses are known before what is used.
    fn block(&mut self, body: &[Stmt]) {
        for stmt in body.iter().rev() {
            let needed = || stmt.results.iter().any(|v| self.values[v.0 as usize] > 0);
            if is_pure(&stmt.inst) && !needed() {
                continue;
            }
            for region in regions(&stmt.inst) {
                region.yields.iter().for_each(|&v| self.note(v));
                self.block(&region.body);
            }
            operands(&stmt.inst).into_iter().for_each(|v| self.note(v));
            match &stmt.inst {
                Inst::Load { mem, .. }
                | Inst::Gather { mem, .. }
                | Inst::Store { mem, .. }
                | Inst::Scatter { mem, .. } => {
                    self.memories.insert(*mem);
                }
                _ => {}
            }
        }
    }

    fn note(&mut self, v: V) {
        self.values[v.0 as usize] += 1;
    }
}

fn is_pure(inst: &Inst) -> bool {
    !matches!(
        inst,
        Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::For { .. }
            | Inst::If { .. }
    )
}

fn regions(inst: &Inst) -> Vec<&Region> {
    match inst {
        Inst::For { region, .. } => vec![region],
        Inst::If { yes, no, .. } => vec![yes, no],
        _ => vec![],
    }
}

fn operands(inst: &Inst) -> Vec<V> {
    match inst {
        Inst::Const(_) | Inst::Iota | Inst::Dim(_) | Inst::First | Inst::Last => vec![],
        Inst::Unary(_, x) | Inst::Convert(x) | Inst::Bitcast(x) | Inst::Splat(x) => vec![*x],
        Inst::Extract(x, _) | Inst::Fold(_, x) => vec![*x],
        Inst::Binary(_, x, y) | Inst::Compare(_, x, y) | Inst::Shuffle(x, y, _) => vec![*x, *y],
        Inst::Scale(x, n) => vec![*x, *n],
        Inst::Fma(x, y, z)
        | Inst::MulAdd(x, y, z)
        | Inst::DotPairs(x, y, z)
        | Inst::Select(x, y, z) => vec![*x, *y, *z],
        Inst::Call(_, args) => args.to_vec(),
        Inst::Load { at, mask, .. } | Inst::Gather { at, mask, .. } => {
            [Some(*at), *mask].into_iter().flatten().collect()
        }
        Inst::Store { at, value, mask, .. } | Inst::Scatter { at, value, mask, .. } => {
            [Some(*at), Some(*value), *mask].into_iter().flatten().collect()
        }
        Inst::Prefetch { at, .. } => vec![*at],
        Inst::For { from, to, step, carried, .. } => [&[*from, *to, *step], &carried[..]].concat(),
        Inst::If { condition, .. } => vec![*condition],
    }
}

/// The memories that are written.
pub fn writes(code: &Code) -> FxHashSet<Mem> {
    fn note(body: &[Stmt], written: &mut FxHashSet<Mem>) {
        for stmt in body {
            match &stmt.inst {
                Inst::Store { mem, .. } | Inst::Scatter { mem, .. } => {
                    written.insert(*mem);
                }
                inst => regions(inst).iter().for_each(|region| note(&region.body, written)),
            }
        }
    }
    let mut written = FxHashSet::default();
    note(&code.body, &mut written);
    written
}
