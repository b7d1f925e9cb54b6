//! What would end the process in LLVM is an error of one kernel: the next one compiles, on the same
//! thread and on others.

use std::thread;

use mithril_native::ffi::{Bytes, mithril_native_compile};
use mithril_native::{Options, Stage, compile};

/// A multiplication by powers of two that processors of this level have not.
const OF_ANOTHER_LEVEL: &str = r#"
llvm.func @kernel(%to: !llvm.ptr, %x: vector<16xf32>, %n: vector<16xf32>) {
  %ones = llvm.mlir.constant(-1 : i16) : i16
  %round = llvm.mlir.constant(4 : i32) : i32
  %y = llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"(%x, %n, %x, %ones, %round)
    : (vector<16xf32>, vector<16xf32>, vector<16xf32>, i16, i32) -> vector<16xf32>
  llvm.store %y, %to : vector<16xf32>, !llvm.ptr
  llvm.return
}"#;

/// Assembly that no assembler takes.
const BAD_ASSEMBLY: &str = r#"
llvm.func @kernel() {
  llvm.inline_asm has_side_effects "no_such_instruction", "" : () -> ()
  llvm.return
}"#;

const GOOD: &str = "func.func @kernel(%x: index) -> index { return %x : index }";

fn options() -> Options {
    Options { cpu: "x86-64-v3".into(), features: String::new(), ..Options::default() }
}

fn error(text: &str) -> String {
    compile(text, &options(), Stage::Object).expect_err("LLVM cannot compile it")
}

fn works() {
    let made = compile(GOOD, &options(), Stage::Object).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(&made[..4], b"\x7fELF");
}

#[test]
fn fatal_errors_are_errors() {
    for _ in 0..3 {
        let said = error(OF_ANOTHER_LEVEL);
        assert!(said.contains("LLVM ended with a fatal error: "), "{said}");
        assert!(said.contains("split") || said.contains("select"), "{said}");
        works();
    }
}

#[test]
fn errors_that_make_llvm_exit_are_returned() {
    let said = error(BAD_ASSEMBLY);
    assert!(said.contains("invalid instruction mnemonic"), "{said}");
    works();
}

#[test]
fn many_threads_at_once() {
    let each = |number: usize| {
        for turn in 0..8 {
            match (number + turn) % 3 {
                0 => assert!(error(OF_ANOTHER_LEVEL).contains("fatal error")),
                1 => assert!(error(BAD_ASSEMBLY).contains("mnemonic")),
                _ => works(),
            }
        }
    };
    thread::scope(|scope| (0..8).for_each(|number| drop(scope.spawn(move || each(number)))));
}

/// A module whose attribute nests so many arrays: MLIR recurses over them.
fn nested(depth: usize) -> String {
    let (open, close) = ("[".repeat(depth), "]".repeat(depth));
    format!("module attributes {{a.a = {open}{close}}} {{\n{GOOD}\n}}")
}

#[test]
fn threads_may_have_little_stack() {
    let run = || compile(&nested(5_000), &options(), Stage::Object).map(|_| ());
    let thread = thread::Builder::new().stack_size(256 << 10).spawn(run).expect("a thread");
    thread.join().expect("it ends").unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn stack_overflow_is_an_error() {
    for _ in 0..2 {
        let said = error(&nested(2_000_000));
        assert!(said.contains("LLVM crashed: SIGSEGV"), "{said}");
        works();
    }
}

#[test]
fn errors_cross_the_c_interface() {
    unsafe extern "C" fn take(sink: *mut u8, bytes: Bytes) {
        // SAFETY: the sink is a string, and the bytes can be read.
        unsafe {
            let bytes = std::slice::from_raw_parts(bytes.data, bytes.len);
            *sink.cast::<String>() = String::from_utf8_lossy(bytes).into_owned();
        }
    }
    let mut said = String::new();
    let texts = [OF_ANOTHER_LEVEL, "", "x86-64-v3", ""].map(|text| Bytes::of(text.as_bytes()));
    let [text, triple, cpu, features] = texts;
    let stage = Stage::ALL.iter().position(|stage| *stage == Stage::Object).expect("a stage");
    // SAFETY: the texts live, and `take` is given a string.
    let code = unsafe {
        mithril_native_compile(
            text,
            triple,
            cpu,
            features,
            stage as u32,
            take,
            (&raw mut said).cast(),
        )
    };
    assert_eq!(code, 1);
    assert!(said.contains("fatal error"), "{said}");
}

/// A handler of ours is there only while a kernel is compiled.
#[test]
fn signal_handlers_are_restored() {
    let handler = || {
        let mut there = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: nothing is changed, and what is read was written.
        unsafe {
            libc::sigaction(libc::SIGFPE, std::ptr::null(), there.as_mut_ptr());
            there.assume_init().sa_sigaction
        }
    };
    extern "C" fn own(_: i32) {}
    let own = own as extern "C" fn(i32) as libc::sighandler_t;
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGFPE, own) };
    error(OF_ANOTHER_LEVEL);
    works();
    // Other tests of this process may compile meanwhile.
    let given_back = (0..6000).any(|_| {
        thread::sleep(std::time::Duration::from_millis(10));
        handler() == own
    });
    assert!(given_back);
}
