//! Prints the checks of indices.

use std::fmt::Write;

use mithril_runtime::size::Size;

use super::{Printer, Status, line};
use crate::entry::{Entry, Indices};

impl Printer<'_> {
    /// Prints code that returns an error if an element is out of range. `pointers` are the
    /// arguments' pointers.
    pub(super) fn check_indices(&mut self, entry: &Entry, pointers: &[String]) {
        for own in &entry.indices {
            let dtype = entry.arguments[own.argument].ty.dtype;
            let element = Element { bits: 8 * dtype.bytes(), signed: !dtype.is_unsigned_int() };
            let first = self.size(&own.first);
            self.each_index(own, &pointers[own.argument], &own.loops, first, element);
        }
    }

    /// Prints the loops over the elements from offset `place` on.
    fn each_index(
        &mut self,
        own: &Indices,
        pointer: &str,
        loops: &[(Size, Size)],
        place: String,
        element: Element,
    ) {
        let Some(((count, stride), inner)) = loops.split_first() else {
            return self.check_index(own, pointer, &place, element);
        };
        let (zero, one) = (self.int(0), self.int(1));
        let (count, stride) = (self.size(count), self.size(stride));
        let (head, body, end, done) = (self.label(), self.label(), self.label(), self.fresh());
        line!(self, "llvm.br {head}({zero} : i64)\n{head}({done}: i64):");
        let more = self.compare("slt", &done, &count);
        line!(self, "llvm.cond_br {more}, {body}, {end}\n{body}:");
        let offset = self.binary("mul", &done, &stride);
        let inside = self.binary("add", &place, &offset);
        self.each_index(own, pointer, inner, inside, element);
        let next = self.binary("add", &done, &one);
        line!(self, "llvm.br {head}({next} : i64)\n{end}:");
    }

    fn check_index(&mut self, own: &Indices, pointer: &str, place: &str, element: Element) {
        let Element { bits, signed } = element;
        let address = self.value(format_args!(
            "llvm.getelementptr {pointer}[{place}] : (!llvm.ptr, i64) -> !llvm.ptr, i{bits}"
        ));
        let mut index = self.value(format_args!("llvm.load {address} : !llvm.ptr -> i{bits}"));
        if bits < 64 {
            let widen = if signed { "sext" } else { "zext" };
            index = self.value(format_args!("llvm.{widen} {index} : i{bits} to i64"));
        }
        let (zero, extent) = (self.int(0), self.size(&own.extent));
        let lowest = if own.from_end { self.binary("sub", &zero, &extent) } else { zero };
        let (low, high) =
            (self.compare("slt", &index, &lowest), self.compare("sge", &index, &extent));
        let mut wrong = self.value(format_args!("llvm.or {low}, {high} : i1"));
        for value in &own.ignored {
            let value = self.int(*value);
            let counts = self.compare("ne", &index, &value);
            wrong = self.value(format_args!("llvm.and {wrong}, {counts} : i1"));
        }
        self.fail_if(&wrong, Status::Index as i64, "i32");
    }
}

/// The format of an element in memory.
#[derive(Clone, Copy)]
struct Element {
    bits: usize,
    signed: bool,
}
