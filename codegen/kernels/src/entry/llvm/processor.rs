//! Selects the variant for the processor. `cpuid` is executed once, and the result is cached in a
//! variable.

use std::fmt::Write;

use super::{Printer, line};

/// A processor that code is compiled for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processor {
    /// `x86-64-v3`.
    pub name: String,
    /// The `cpuid` bits that it requires.
    pub bits: Vec<CpuidBits>,
    /// The XCR0 bits that the operating system must have set, one for each set of registers that it
    /// saves.
    pub xcr0: u32,
}

/// Bits that must be set in the result of `cpuid`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuidBits {
    pub leaf: u32,
    pub subleaf: u32,
    /// 0 to 3 for EAX, EBX, ECX, EDX.
    pub register: usize,
    pub mask: u32,
}

/// The result of detection, as names of MLIR values.
pub struct Detected {
    /// The number of the variant, of type `i32`.
    pub number: String,
    /// Whether no variant matches.
    pub none: String,
}

/// The arguments of the Linux system call that requests permission to use AMX tiles:
/// ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA. The system call is `arch_prctl`, number 158.
pub const REQUEST: i64 = 0x1023;
pub const TILE_DATA: i64 = 18;
const ARCH_PRCTL: i64 = 158;

/// The first extended leaf. Extended leaves have a maximum of their own.
const EXTENDED: u32 = 0x8000_0000;
/// The OSXSAVE bit: whether XCR0 can be read.
const XSAVE: CpuidBits = CpuidBits { leaf: 1, subleaf: 0, register: 2, mask: 1 << 27 };

impl Processor {
    /// Whether the processor must be checked, because some processors do not match.
    pub fn needs_check(&self) -> bool {
        !self.bits.is_empty()
    }

    /// The value of the cache variable for a variant. 0 means not yet detected; -1 means that no
    /// variant matches.
    pub fn number(variant: usize) -> i64 {
        variant as i64 + 1
    }
}

impl Printer<'_> {
    fn variable(&self) -> String {
        format!("mithril_{}_processor", self.library.interface.model)
    }

    /// Prints a call of the function that `detection` prints.
    pub(super) fn detected(&mut self) -> Detected {
        let function = format!("@{}_detect", self.variable());
        let number = self.value(format_args!("llvm.call {function}() : () -> i32"));
        let zero = self.code(0, "i32");
        let none = self.value(format_args!("llvm.icmp \"slt\" {number}, {zero} : i32"));
        Detected { number, none }
    }

    /// Prints the function that returns the variant's number, and the variable that caches it.
    /// Several threads may run the detection at the same time, with the same result.
    pub(super) fn detection(&mut self) {
        let variable = self.variable();
        line!(
            self,
            "llvm.mlir.global internal @{variable}(0 : i32) {{alignment = 4 : i64}} : i32\n\
             llvm.func internal @{variable}_detect() -> i32 {{\n\
             %variable = llvm.mlir.addressof @{variable} : !llvm.ptr\n\
             %known = llvm.load %variable atomic monotonic {{alignment = 4 : i64}} : !llvm.ptr -> i32"
        );
        let zero = self.code(0, "i32");
        let fresh = self.value(format_args!("llvm.icmp \"eq\" %known, {zero} : i32"));
        line!(self, "llvm.cond_br {fresh}, ^ask, ^done(%known : i32)\n^ask:");
        let processors = self.library.processors;
        let results = self.cpuid_results(processors);
        let xcr0 = self.xcr0(&results);
        let mut answer = self.code(-1, "i32");
        for (variant, processor) in processors.iter().enumerate().rev() {
            let mut fits = self.fits(processor, &results, &xcr0);
            if processor.xcr0 >> TILE_DATA & 1 == 1 {
                fits = self.granted(&fits, variant);
            }
            let number = self.code(Processor::number(variant), "i32");
            answer = self.value(format_args!("llvm.select {fits}, {number}, {answer} : i1, i32"));
        }
        line!(
            self,
            "llvm.store {answer}, %variable atomic monotonic {{alignment = 4 : i64}} : i32, !llvm.ptr\n\
             llvm.br ^done({answer} : i32)\n\
             ^done(%number: i32):\nllvm.return %number : i32\n}}"
        );
    }

    /// Prints `cpuid` for all needed leaves. Each leaf is read once, because `cpuid` is slow in
    /// virtual machines.
    fn cpuid_results(&mut self, processors: &[Processor]) -> CpuidResults {
        let needed_leaves = processors.iter().flat_map(|processor| &processor.bits).chain([&XSAVE]);
        let mut results = CpuidResults::default();
        for (leaf, subleaf) in
            needed_leaves.flat_map(|bits| [(bits.leaf & EXTENDED, 0), (bits.leaf, bits.subleaf)])
        {
            if !results.0.iter().any(|(own, _)| *own == (leaf, subleaf)) {
                let all = self.cpuid(leaf, subleaf);
                results.0.push(((leaf, subleaf), all));
            }
        }
        results
    }

    /// Prints the read of XCR0, which lists the registers that the operating system saves. Its
    /// value is 0 if it cannot be read.
    fn xcr0(&mut self, results: &CpuidResults) -> String {
        let readable = self.has(&XSAVE, results);
        let zero = self.code(0, "i32");
        line!(self, "llvm.cond_br {readable}, ^read, ^kept({zero} : i32)\n^read:");
        let pair = self.value(format_args!(
            "llvm.inline_asm has_side_effects asm_dialect = att \"xgetbv\", \
             \"={{ax}},={{dx}},{{cx}},~{{dirflag}},~{{fpsr}},~{{flags}}\" {zero} : (i32) -> \
             !llvm.struct<(i32, i32)>"
        ));
        let low =
            self.value(format_args!("llvm.extractvalue {pair}[0] : !llvm.struct<(i32, i32)>"));
        line!(self, "llvm.br ^kept({low} : i32)\n^kept(%xcr0: i32):");
        "%xcr0".to_string()
    }

    fn fits(&mut self, processor: &Processor, results: &CpuidResults, xcr0: &str) -> String {
        let mut fits = self.all_set(xcr0, processor.xcr0);
        for bits in &processor.bits {
            let has = self.has(bits, results);
            fits = self.value(format_args!("llvm.and {fits}, {has} : i1"));
        }
        fits
    }

    /// Prints the request for permission to use AMX tiles. It is made only if everything else
    /// matches.
    fn granted(&mut self, fits: &str, variant: usize) -> String {
        let none = self.code(0, "i1");
        line!(self, "llvm.cond_br {fits}, ^request{variant}, ^granted{variant}({none} : i1)");
        line!(self, "^request{variant}:");
        let [call, request, data] =
            [ARCH_PRCTL, REQUEST, TILE_DATA].map(|number| self.code(number, "i64"));
        let refused = self.value(format_args!(
            "llvm.inline_asm has_side_effects asm_dialect = att \"syscall\", \
             \"={{ax}},{{ax}},{{di}},{{si}},~{{rcx}},~{{r11}},~{{memory}},~{{dirflag}},~{{fpsr}},~{{flags}}\" \
             {call}, {request}, {data} : (i64, i64, i64) -> i64"
        ));
        let zero = self.code(0, "i64");
        let granted = self.value(format_args!("llvm.icmp \"eq\" {refused}, {zero} : i64"));
        line!(self, "llvm.br ^granted{variant}({granted} : i1)");
        line!(self, "^granted{variant}(%granted{variant}: i1):");
        format!("%granted{variant}")
    }

    /// Whether the processor has the leaf, and the bits are set in it.
    fn has(&mut self, bits: &CpuidBits, results: &CpuidResults) -> String {
        let last = self.register(results.of(bits.leaf & EXTENDED, 0), 0);
        let leaf = self.code(i64::from(bits.leaf as i32), "i32");
        let there = self.value(format_args!("llvm.icmp \"uge\" {last}, {leaf} : i32"));
        let register = self.register(results.of(bits.leaf, bits.subleaf), bits.register);
        let set = self.all_set(&register, bits.mask);
        self.value(format_args!("llvm.and {there}, {set} : i1"))
    }

    fn all_set(&mut self, value: &str, mask: u32) -> String {
        let mask = self.code(i64::from(mask as i32), "i32");
        let both = self.value(format_args!("llvm.and {value}, {mask} : i32"));
        self.value(format_args!("llvm.icmp \"eq\" {both}, {mask} : i32"))
    }

    fn cpuid(&mut self, leaf: u32, subleaf: u32) -> String {
        let [leaf, subleaf] = [leaf, subleaf].map(|n| self.code(i64::from(n as i32), "i32"));
        self.value(format_args!(
            "llvm.inline_asm has_side_effects asm_dialect = att \"cpuid\", \
             \"={{ax}},={{bx}},={{cx}},={{dx}},{{ax}},{{cx}},~{{dirflag}},~{{fpsr}},~{{flags}}\" \
             {leaf}, {subleaf} : (i32, i32) -> {REGISTERS}"
        ))
    }

    fn register(&mut self, all: &str, register: usize) -> String {
        self.value(format_args!("llvm.extractvalue {all}[{register}] : {REGISTERS}"))
    }
}

/// The MLIR type of a result of `cpuid`.
const REGISTERS: &str = "!llvm.struct<(i32, i32, i32, i32)>";

/// The results of `cpuid`, by leaf and subleaf, as names of MLIR values.
#[derive(Default)]
struct CpuidResults(Vec<((u32, u32), String)>);

impl CpuidResults {
    fn of(&self, leaf: u32, subleaf: u32) -> &str {
        let found = self.0.iter().find(|(own, _)| *own == (leaf, subleaf));
        found.map_or("", |(_, name)| name)
    }
}
