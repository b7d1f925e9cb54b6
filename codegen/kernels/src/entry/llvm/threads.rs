//! Prints calls with threads. The tasks of a step are divided among the threads, each of which has
//! its own scratch memory. Results do not depend on the division.

use std::fmt::Write;

use super::{Printer, line};
use crate::entry::{Entry, Parameter};

/// The maximum number of threads of a call.
const MAX_THREADS: i64 = 4096;
/// The number of pieces of a step per thread. It is more than one for load balancing.
const PIECES_PER_THREAD: i64 = 4;
/// The struct that a part receives: the kernel, scratch memory, buffers and dims, the bytes of
/// scratch memory per thread, and the numbers of tasks, pieces and parts.
const ARGUMENT: &str = "!llvm.struct<(ptr, ptr, ptr, ptr, i64, i64, i64, i64)>";
const KERNEL: &str = "!llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64) -> ()";

/// The parameters of an entry function, and their types.
pub fn parameters(entry: &Entry) -> impl Iterator<Item = (String, &'static str)> {
    entry.parameters().into_iter().map(|parameter| match parameter {
        Parameter::Symbol(at) => (format!("%s{at}"), "i64"),
        Parameter::Argument(at) => (format!("%a{at}"), "!llvm.ptr"),
        Parameter::Result(at) => (format!("%r{at}"), "!llvm.ptr"),
        Parameter::Record(at) => (format!("%p{at}"), "!llvm.ptr"),
        Parameter::Workspace => ("%workspace".to_string(), "!llvm.ptr"),
    })
}

impl Printer<'_> {
    /// The name of the function that runs a step on several threads.
    pub fn share_name(&self) -> String {
        format!("mithril_{}_share", self.library.interface.model)
    }

    /// Prints the entry function without threads.
    pub fn single_threaded(&mut self, entry: &Entry) {
        let (names, types): (Vec<_>, Vec<_>) = parameters(entry).unzip();
        let own = names.iter().zip(&types).map(|(name, ty)| format!("{name}: {ty}"));
        let own: Vec<String> = own.collect();
        line!(self, "llvm.func @{}({}) -> i32 {{", entry.name, own.join(", "));
        let null = self.value("llvm.mlir.zero : !llvm.ptr");
        let result = self.value(format_args!(
            "llvm.call @{}_parallel({}, {null}) : ({}, !llvm.ptr) -> i32",
            entry.name,
            names.join(", "),
            types.join(", ")
        ));
        line!(self, "llvm.return {result} : i32\n}}");
    }

    pub fn parallel_workspace_bytes(&mut self, entry: &Entry) {
        let symbols = Self::symbols(entry);
        line!(
            self,
            "llvm.func @{}_parallel_workspace_bytes({symbols}%count: i64) -> i64 {{",
            entry.name
        );
        self.check_dims(entry, -1, "i64");
        let most = self.int(MAX_THREADS);
        let wrong = self.compare("ugt", "%count", &most);
        self.fail_if(&wrong, -1, "i64");
        let (scratch, own) = (self.size(&entry.workspace.scratch), self.size(&entry.workspace.own));
        let one = self.int(1);
        let count = self.value(format_args!("llvm.intr.smax(%count, {one}) : (i64, i64) -> i64"));
        let all = self.binary("mul", &own, &count);
        let bytes = self.binary("add", &scratch, &all);
        self.finish(&bytes, "i64");
    }

    /// Prints the functions that run a step on several threads: the one that the entry function
    /// calls, and the one that each thread runs.
    pub fn sharing(&mut self) {
        self.share();
        self.part();
    }

    fn share(&mut self) {
        let share = self.share_name();
        line!(
            self,
            "llvm.func internal @{share}(%kernel: !llvm.ptr, %scratch: !llvm.ptr, %own: i64, \
             %buffers: !llvm.ptr, %dims: !llvm.ptr, %tasks: i64, %grain: i64, %threads: !llvm.ptr) \
             attributes {{passthrough = [\"noinline\"]}} {{"
        );
        let argument = self.code(1, "i64");
        let argument =
            self.value(format_args!("llvm.alloca {argument} x {ARGUMENT} : (i64) -> !llvm.ptr"));
        let (null, zero) = (self.value("llvm.mlir.zero : !llvm.ptr"), self.int(0));
        let missing = self.value(format_args!("llvm.icmp \"eq\" %threads, {null} : !llvm.ptr"));
        let (lent, many) = (self.label(), self.label());
        line!(self, "llvm.cond_br {missing}, ^alone, {lent}\n{lent}:");
        let (one, four) = (self.int(1), self.int(PIECES_PER_THREAD));
        let max_parts = self.binary("sdiv", "%tasks", "%grain");
        let count = self.value("llvm.load %threads : !llvm.ptr -> i64");
        let parts =
            self.value(format_args!("llvm.intr.smin({count}, {max_parts}) : (i64, i64) -> i64"));
        let several = self.compare("sgt", &parts, &one);
        line!(self, "llvm.cond_br {several}, {many}, ^alone\n{many}:");
        let pieces = self.binary("mul", &parts, &four);
        let pieces =
            self.value(format_args!("llvm.intr.smin({pieces}, {max_parts}) : (i64, i64) -> i64"));
        for (at, pointer) in ["%kernel", "%scratch", "%buffers", "%dims"].iter().enumerate() {
            self.store(pointer, "!llvm.ptr", &argument, at);
        }
        for (at, number) in ["%own", "%tasks", &pieces, &parts].iter().enumerate() {
            self.store(number, "i64", &argument, 4 + at);
        }
        let (run, context) = (self.load_pointer("%threads", 1), self.load_pointer("%threads", 2));
        let part = self.value(format_args!("llvm.mlir.addressof @{share}_part : !llvm.ptr"));
        line!(
            self,
            "llvm.call {run}({context}, {parts}, {part}, {argument}) : !llvm.ptr, (!llvm.ptr, i64, \
             !llvm.ptr, !llvm.ptr) -> ()\nllvm.return\n^alone:"
        );
        line!(
            self,
            "llvm.call %kernel(%scratch, %buffers, %dims, {zero}, %tasks) : {KERNEL}\n\
             llvm.return\n}}"
        );
    }

    /// Prints the function that each thread runs. Of n parts, part `index` runs every n-th piece
    /// from number `index` on.
    fn part(&mut self) {
        let share = self.share_name();
        line!(self, "llvm.func internal @{share}_part(%argument: !llvm.ptr, %index: i64) {{");
        let pointers = [0, 1, 2, 3].map(|at| self.load_pointer("%argument", at));
        let [own, tasks, pieces, parts] = [4, 5, 6, 7].map(|at| {
            let address = self.element("%argument", at);
            self.value(format_args!("llvm.load {address} : !llvm.ptr -> i64"))
        });
        let [kernel, scratch, buffers, dims] = pointers;
        let offset = self.binary("mul", "%index", &own);
        let scratch = self.value(format_args!(
            "llvm.getelementptr {scratch}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
        ));
        let one = self.int(1);
        line!(self, "llvm.br ^head(%index : i64)\n^head(%piece: i64):");
        let more = self.compare("slt", "%piece", &pieces);
        line!(self, "llvm.cond_br {more}, ^body, ^end\n^body:");
        let next = self.binary("add", "%piece", &one);
        let [first, last] = ["%piece", &next].map(|piece| {
            let share = self.binary("mul", &tasks, piece);
            self.binary("sdiv", &share, &pieces)
        });
        line!(self, "llvm.call {kernel}({scratch}, {buffers}, {dims}, {first}, {last}) : {KERNEL}");
        let next_piece = self.binary("add", "%piece", &parts);
        line!(self, "llvm.br ^head({next_piece} : i64)\n^end:\nllvm.return\n}}");
    }
}
