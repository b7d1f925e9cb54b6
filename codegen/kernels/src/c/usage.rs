//! Counts the uses of values, and finds the memories that are written.

use rustc_hash::FxHashSet;

use crate::code::{Code, Inst, Mem, Place, Stmt, V};

/// The uses of values and memories by statements that are not dead code.
pub struct Usage {
    /// The number of uses of each value.
    pub values: Vec<u32>,
    pub memories: FxHashSet<Mem>,
}

/// Counts the uses. `results` are used after the end of the code.
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
    /// Counts the uses in a block, from the last statement to the first, so that all uses of a
    /// value are counted before its definition.
    fn block(&mut self, body: &[Stmt]) {
        for stmt in body.iter().rev() {
            if !self.needs(stmt) {
                continue;
            }
            for region in stmt.inst.regions() {
                region.yields.iter().for_each(|&v| self.note(v));
                self.block(&region.body);
            }
            stmt.inst.operands().into_iter().for_each(|v| self.note(v));
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

    /// Whether a statement is not dead code. All later statements must have been counted.
    pub fn needs(&self, stmt: &Stmt) -> bool {
        !is_pure(&stmt.inst) || stmt.results.iter().any(|v| self.values[v.0 as usize] > 0)
    }

    fn note(&mut self, v: V) {
        self.values[v.0 as usize] += 1;
    }
}

/// Whether an instruction writes nothing. Prefetches are not printed in C, so they count as pure.
fn is_pure(inst: &Inst) -> bool {
    let writes = matches!(inst, Inst::Store { .. } | Inst::Scatter { .. });
    let mut inner = inst.regions().into_iter().flat_map(|region| &region.body);
    !writes && inner.all(|stmt| is_pure(&stmt.inst))
}

/// Returns the memories that the code writes.
pub fn writes(code: &Code) -> FxHashSet<Mem> {
    fn note(body: &[Stmt], written: &mut FxHashSet<Mem>) {
        for stmt in body {
            match &stmt.inst {
                Inst::Store { mem, .. } | Inst::Scatter { mem, .. } => {
                    written.insert(*mem);
                }
                inst => inst.regions().iter().for_each(|region| note(&region.body, written)),
            }
        }
    }
    let mut written = FxHashSet::default();
    note(&code.body, &mut written);
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::c::kernel::{Names, print};
    use crate::code::Ty;
    use crate::isa::Isa;
    use crate::loops::Loops;
    use mithril_ir::dtype::DType;

    /// Prints a kernel that sums `x` in a loop, and stores the sum if `written`, otherwise 0.
    fn sum(written: bool) -> String {
        let mut b = Builder::new(2, 1).for_isa(&Isa::PORTABLE);
        let (x, y) = (b.buffer(0, DType::F32, true), b.buffer(1, DType::F32, false));
        let (first, n, none) = (b.index(0), b.dim(0), b.number(Ty::scalar(DType::F32), 0.0));
        let sums = b.repeat(first, n, 1, &[none], |b, i, sums| {
            let element = b.load(x, i, 1, None);
            vec![b.add(sums[0], element)]
        });
        b.store(y, first, if written { sums[0] } else { none }, None);
        let names = Names {
            kernel: "sum".into(),
            buffers: vec!["x".into(), "y".into()],
            dims: vec!["n".into()],
        };
        print(&b.finish(), &names, &mut FxHashSet::default()).text
    }

    #[test]
    fn loops_that_write_nothing_are_left_out() {
        assert!(sum(true).contains("for (int64_t i = 0; i < n; i++)"), "{}", sum(true));
        assert_eq!(sum(false), "static void sum(float *restrict y) {\n  y[0] = 0.0f;\n}\n");
    }
}
