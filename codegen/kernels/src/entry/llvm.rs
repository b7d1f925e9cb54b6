//! Prints the entry functions of an ahead-of-time library as an MLIR module in the LLVM dialect.
//! The code checks the arguments, selects the variant for the processor, and launches its kernels.

mod indices;
mod processor;
mod run;
mod threads;

use std::fmt::Write;

use mithril_ir::graph::Bound;
use mithril_runtime::size::Size;

use super::{Array, Entry, Interface};
pub use processor::{CpuidBits, Processor, REQUEST, TILE_DATA};
use threads::parameters;

/// The library to print, and the linker symbols of its kernels and constants.
#[derive(Clone, Debug)]
pub struct Library<'a> {
    pub interface: &'a Interface,
    /// The processor of each variant. The first variant whose processor matches is used.
    pub processors: &'a [Processor],
    pub kernels: Symbols,
    pub constants: Symbols,
}

/// The symbols of kernels or constants: by entry, by variant, and by number in the plan.
pub type Symbols = Vec<Vec<Vec<String>>>;

/// The values that functions return, as documented in the header.
#[derive(Clone, Copy)]
enum Status {
    Ok = 0,
    Dims = 1,
    Null = 2,
    Alignment = 3,
    Cpu = 4,
    Index = 5,
}

macro_rules! line {
    ($printer:expr, $($arg:tt)*) => {{
        // Writing to a string does not fail.
        let _ = writeln!($printer.text, $($arg)*);
    }};
}
use line;

/// Prints the module. It defines the entry functions, and declares the kernels, the constants and
/// `memcpy`.
pub fn llvm(library: &Library) -> String {
    let mut printer = Printer { library, text: String::new(), fresh: 0 };
    printer.declarations();
    if printer.detects_processor() {
        printer.detection();
    }
    printer.sharing();
    for (at, entry) in library.interface.entries.iter().enumerate() {
        printer.workspace_bytes(entry);
        printer.parallel_workspace_bytes(entry);
        for variant in 0..entry.variants.len() {
            printer.run(at, variant);
        }
        printer.entry(entry);
        printer.single_threaded(entry);
    }
    printer.text
}

struct Printer<'a> {
    library: &'a Library<'a>,
    text: String,
    fresh: u32,
}

impl Printer<'_> {
    fn declarations(&mut self) {
        let mut known: Vec<&str> = Vec::new();
        for kernel in self.library.kernels.iter().flatten().flatten() {
            if !known.contains(&kernel.as_str()) {
                known.push(kernel);
                line!(
                    self,
                    "llvm.func hidden @{kernel}(!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64)"
                );
            }
        }
        for constant in self.library.constants.iter().flatten().flatten() {
            if !known.contains(&constant.as_str()) {
                known.push(constant);
                line!(
                    self,
                    "llvm.mlir.global external hidden constant @{constant}() {{addr_space = 0 : i32, \
                     alignment = 64 : i64}} : !llvm.array<0 x i8>"
                );
            }
        }
    }

    /// Whether the library must detect the processor: it has several variants, or its variant does
    /// not run on all processors.
    fn detects_processor(&self) -> bool {
        let processors = self.library.processors;
        processors.len() > 1 || processors.iter().any(Processor::needs_check)
    }

    fn fresh(&mut self) -> String {
        self.fresh += 1;
        format!("%t{}", self.fresh)
    }

    /// Prints an operation with a result. Returns the result's name.
    fn value(&mut self, code: impl std::fmt::Display) -> String {
        let name = self.fresh();
        line!(self, "{name} = {code}");
        name
    }

    fn int(&mut self, value: i64) -> String {
        self.value(format_args!("llvm.mlir.constant({value} : i64) : i64"))
    }

    fn code(&mut self, value: i64, ty: &str) -> String {
        self.value(format_args!("llvm.mlir.constant({value} : {ty}) : {ty}"))
    }

    fn binary(&mut self, op: &str, a: &str, b: &str) -> String {
        self.value(format_args!("llvm.{op} {a}, {b} : i64"))
    }

    fn compare(&mut self, relation: &str, a: &str, b: &str) -> String {
        self.value(format_args!("llvm.icmp \"{relation}\" {a}, {b} : i64"))
    }

    /// A new block label.
    fn label(&mut self) -> String {
        self.fresh += 1;
        format!("^b{}", self.fresh)
    }

    /// Prints a branch that returns `code`, of type `ty`, if a condition holds.
    fn fail_if(&mut self, condition: &str, code: i64, ty: &str) {
        let (code, next) = (self.code(code, ty), self.label());
        line!(self, "llvm.cond_br {condition}, ^fail({code} : {ty}), {next}");
        line!(self, "{next}:");
    }

    fn finish(&mut self, result: &str, ty: &str) {
        line!(self, "llvm.return {result} : {ty}");
        line!(self, "^fail(%code: {ty}):\nllvm.return %code : {ty}\n}}");
    }

    fn array(&mut self, length: usize, element: &str) -> String {
        let one = self.int(1);
        let length = length.max(1);
        self.value(format_args!(
            "llvm.alloca {one} x !llvm.array<{length} x {element}> {{alignment = 16 : i64}} : (i64) \
             -> !llvm.ptr"
        ))
    }

    /// Returns the address of the 8-byte element `at` of an array.
    fn element(&mut self, array: &str, at: usize) -> String {
        self.value(format_args!("llvm.getelementptr {array}[{at}] : (!llvm.ptr) -> !llvm.ptr, i64"))
    }

    fn load_pointer(&mut self, array: &str, at: usize) -> String {
        let address = self.element(array, at);
        self.value(format_args!("llvm.load {address} : !llvm.ptr -> !llvm.ptr"))
    }

    fn store(&mut self, value: &str, ty: &str, array: &str, at: usize) {
        let address = self.element(array, at);
        line!(self, "llvm.store {value}, {address} : {ty}, !llvm.ptr");
    }

    fn offset_pointer(&mut self, pointer: &str, offset: &Size) -> String {
        if *offset == Size::Const(0) {
            return pointer.to_string();
        }
        let offset = self.size(offset);
        self.value(format_args!(
            "llvm.getelementptr {pointer}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
        ))
    }

    /// Computes a size, whose divisors are positive.
    fn size(&mut self, size: &Size) -> String {
        match size {
            Size::Const(value) => self.int(*value),
            Size::Symbol(at) => format!("%s{at}"),
            Size::Sum(of) => self.chain("add", of),
            Size::Product(of) => self.chain("mul", of),
            Size::Min(of) => self.pair("intr.smin", of),
            Size::Max(of) => self.pair("intr.smax", of),
            Size::Mod(of) => {
                let (a, b) = (self.size(&of.0), self.size(&of.1));
                self.modulo(&a, &b)
            }
            Size::FloorDiv(of) => {
                let (a, b) = (self.size(&of.0), self.size(&of.1));
                let rest = self.modulo(&a, &b);
                let whole = self.binary("sub", &a, &rest);
                self.binary("sdiv", &whole, &b)
            }
        }
    }

    fn chain(&mut self, op: &str, of: &[Size]) -> String {
        let parts: Vec<String> = of.iter().map(|part| self.size(part)).collect();
        let (first, rest) = parts.split_first().expect("sums and products have parts");
        rest.iter().fold(first.clone(), |all, part| self.binary(op, &all, part))
    }

    fn pair(&mut self, intrinsic: &str, of: &(Size, Size)) -> String {
        let (a, b) = (self.size(&of.0), self.size(&of.1));
        self.value(format_args!("llvm.{intrinsic}({a}, {b}) : (i64, i64) -> i64"))
    }

    fn modulo(&mut self, a: &str, b: &str) -> String {
        let rest = self.binary("srem", a, b);
        let (zero, more) = (self.int(0), self.binary("add", &rest, b));
        let negative = self.compare("slt", &rest, &zero);
        self.value(format_args!("llvm.select {negative}, {more}, {rest} : i1, i64"))
    }

    fn symbols(entry: &Entry) -> String {
        (0..entry.symbols.len()).map(|at| format!("%s{at}: i64, ")).collect()
    }

    /// Returns `code` if the symbols are out of range or break a check.
    fn check_dims(&mut self, entry: &Entry, code: i64, ty: &str) {
        for at in 0..entry.symbols.len() {
            let limit = self.int(entry.limit);
            // Compares as unsigned, so that negative numbers are above the limit.
            let wrong = self.compare("ugt", &format!("%s{at}"), &limit);
            self.fail_if(&wrong, code, ty);
        }
        for check in &entry.checks {
            let (left, right) = (self.size(&check.left), self.size(&check.right));
            let opposite = match check.relation {
                Bound::Equal => "ne",
                Bound::AtMost => "sgt",
                Bound::AtLeast => "slt",
            };
            let wrong = self.compare(opposite, &left, &right);
            self.fail_if(&wrong, code, ty);
        }
    }

    fn workspace_bytes(&mut self, entry: &Entry) {
        let symbols = Self::symbols(entry);
        let symbols = symbols.trim_end_matches(", ");
        line!(self, "llvm.func @{}_workspace_bytes({symbols}) -> i64 {{", entry.name);
        self.check_dims(entry, -1, "i64");
        let bytes = self.size(&entry.workspace.bytes);
        self.finish(&bytes, "i64");
    }

    fn entry(&mut self, entry: &Entry) {
        let parameters: String =
            parameters(entry).map(|(name, ty)| format!("{name}: {ty}, ")).collect();
        let name = &entry.name;
        line!(self, "llvm.func @{name}_parallel({parameters}%threads: !llvm.ptr) -> i32 {{");
        // The array is allocated in the entry block, so that LLVM treats it as a fixed stack slot.
        let table = self.array(entry.arguments.len() + entry.results.len(), "ptr");
        self.check_dims(entry, Status::Dims as i64, "i32");
        let records = (0..entry.records.len()).map(|at| format!("%p{at}"));
        self.check_pointers(&records.collect::<Vec<_>>());
        let mut pointers = self.pointers(entry);
        let (optional, needed): (Vec<usize>, Vec<usize>) = (0..pointers.len())
            .partition(|&at| entry.arguments.get(at).is_some_and(Array::is_optional));
        let needed = needed.into_iter().map(|at| pointers[at].clone());
        self.check_pointers(&needed.collect::<Vec<_>>());
        self.check_workspace(entry);
        self.check_indices(entry, &pointers);
        self.replace_missing(entry, &optional, &mut pointers);
        for (at, pointer) in pointers.iter().enumerate() {
            self.store(pointer, "!llvm.ptr", &table, at);
        }
        self.dispatch(entry, &table);
        let ok = self.code(Status::Ok as i64, "i32");
        self.finish(&ok, "i32");
    }

    /// Returns the pointers of all arguments, then of all results.
    fn pointers(&mut self, entry: &Entry) -> Vec<String> {
        let arguments = entry.arguments.iter().enumerate().map(|(at, a)| (a.group, at, 'a'));
        let results = entry.results.iter().enumerate().map(|(at, r)| (r.group, at, 'r'));
        let all = arguments.chain(results).map(|(group, at, sort)| match entry.field(group, at) {
            Some((record, field)) => self.load_pointer(&format!("%p{record}"), field),
            None => format!("%{sort}{at}"),
        });
        all.collect()
    }

    fn check_pointers(&mut self, pointers: &[String]) {
        let null = self.value("llvm.mlir.zero : !llvm.ptr");
        let tests = pointers.iter().map(|pointer| {
            self.value(format_args!("llvm.icmp \"eq\" {pointer}, {null} : !llvm.ptr"))
        });
        let tests: Vec<String> = tests.collect();
        let Some((first, rest)) = tests.split_first() else { return };
        let any = rest.iter().fold(first.clone(), |any, test| {
            self.value(format_args!("llvm.or {any}, {test} : i1"))
        });
        self.fail_if(&any, Status::Null as i64, "i32");
    }

    /// Replaces NULL arguments by a pointer to zeros.
    fn replace_missing(&mut self, entry: &Entry, optional: &[usize], pointers: &mut [String]) {
        if optional.is_empty() {
            return;
        }
        let zeros = self.offset_pointer("%workspace", &entry.workspace.zeros);
        let (null, byte) = (self.value("llvm.mlir.zero : !llvm.ptr"), self.code(0, "i8"));
        let bytes = self.size(&entry.workspace.zeroed);
        for &at in optional {
            let given = pointers[at].clone();
            let missing = self.value(format_args!("llvm.icmp \"eq\" {given}, {null} : !llvm.ptr"));
            pointers[at] =
                self.value(format_args!("llvm.select {missing}, {zeros}, {given} : i1, !llvm.ptr"));
            let (fill, next) = (self.label(), self.label());
            line!(self, "llvm.cond_br {missing}, {fill}, {next}\n{fill}:");
            line!(
                self,
                "\"llvm.intr.memset\"({zeros}, {byte}, {bytes}) <{{isVolatile = false}}> : \
                 (!llvm.ptr, i8, i64) -> ()\nllvm.br {next}\n{next}:"
            );
        }
    }

    fn check_workspace(&mut self, entry: &Entry) {
        if entry.workspace.bytes == Size::Const(0) {
            return;
        }
        let (bytes, zero) = (self.size(&entry.workspace.bytes), self.int(0));
        let address = self.value("llvm.ptrtoint %workspace : !llvm.ptr to i64");
        let null = self.compare("eq", &address, &zero);
        let needed = self.compare("ne", &bytes, &zero);
        let missing = self.value(format_args!("llvm.and {null}, {needed} : i1"));
        self.fail_if(&missing, Status::Null as i64, "i32");
        let mask = self.int(63);
        let rest = self.binary("and", &address, &mask);
        let uneven = self.compare("ne", &rest, &zero);
        self.fail_if(&uneven, Status::Alignment as i64, "i32");
    }

    /// Calls the variant for the processor.
    fn dispatch(&mut self, entry: &Entry, table: &str) {
        let symbols: String = (0..entry.symbols.len()).map(|at| format!("%s{at}, ")).collect();
        let types = "i64, ".repeat(entry.symbols.len());
        let call = |variant: usize| {
            format!(
                "llvm.call @{}_run_{variant}({symbols}{table}, %workspace, %threads) : \
                 ({types}!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()",
                entry.name
            )
        };
        if !self.detects_processor() {
            return line!(self, "{}", call(0));
        }
        let chosen = self.detected();
        self.fail_if(&chosen.none, Status::Cpu as i64, "i32");
        let done = self.label();
        for variant in 0..entry.variants.len() {
            let (own, next) = (self.label(), self.label());
            let number = self.code(Processor::number(variant), "i32");
            let fits =
                self.value(format_args!("llvm.icmp \"eq\" {}, {number} : i32", chosen.number));
            line!(self, "llvm.cond_br {fits}, {own}, {next}");
            line!(self, "{own}:\n{}\nllvm.br {done}\n{next}:", call(variant));
        }
        line!(self, "llvm.br {done}\n{done}:");
    }
}
