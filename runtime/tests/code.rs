//! Objects of the C compiler, whole, damaged and unsuitable.

use mithril_runtime::code::{Code, Error, check};
use mithril_runtime::execute::Executable;
use mithril_runtime::program::{Buffer, Launch, Place, Program};
use mithril_runtime::size::Size;
use mithril_runtime::threads::Pool;
use proptest::prelude::*;
use std::mem::transmute;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};
use std::{fs, process};

/// Compiles C to an object.
fn compile(name: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    let dir = std::env::temp_dir().join(format!("mithril-code-{}-{name}", process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    let (from, to) = (dir.join("kernel.c"), dir.join("kernel.o"));
    fs::write(&from, source).expect("a file");
    let mut cc = Command::new("cc");
    cc.args(["-c", "-O2"]).args(flags).arg(&from).arg("-o").arg(&to);
    assert!(cc.status().expect("cc runs").success());
    let object = fs::read(&to).expect("an object");
    fs::remove_dir_all(&dir).expect("a directory");
    object
}

/// Constants, tables of pointers to data and to functions, data, zeroes, calls out and within.
const SOURCE: &str = r#"
#include <string.h>
static const double weights[4] = {0.5, 1.5, 2.5, 3.5};
static const char *const names[3] = {"zero", "one", "two"};
static long twice(long x) { return 2 * x; }
static long thrice(long x) { return 3 * x; }
static long (*const table[2])(long) = {twice, thrice};
long counter = 41;
static long zeroes[1000];
double weight(long i) { return weights[i] * 1.25; }
char letter(long i) { return names[i][0]; }
long call(long i, long x) { return table[i](x); }
long count(void) { zeroes[counter % 1000] += 1; return ++counter + zeroes[999]; }
void fill(char *to, const char *from, long n) {
    memcpy(to, from, n); memset(to + n, 7, n); memmove(to + 1, to, n);
}
"#;

fn whole() -> &'static [u8] {
    static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
    OBJECT.get_or_init(|| compile("whole", SOURCE, &["-fPIC", "-fno-builtin"]))
}

/// A function of an object, of the type that is asked for.
macro_rules! function {
    ($code:expr, $name:literal, $type:ty) => {{
        let address = $code.symbol($name).expect("a symbol");
        // SAFETY: the C source says so.
        unsafe { transmute::<*const u8, $type>(address) }
    }};
}

#[test]
fn code_runs() {
    let code = Code::load(whole()).expect("an object");
    let weight = function!(code, "weight", extern "C" fn(i64) -> f64);
    assert_eq!([weight(0), weight(3)], [0.625, 4.375]);
    let letter = function!(code, "letter", extern "C" fn(i64) -> u8);
    assert_eq!([letter(0), letter(1), letter(2)], *b"zot");
    let call = function!(code, "call", extern "C" fn(i64, i64) -> i64);
    assert_eq!([call(0, 5), call(1, 5)], [10, 15]);
    let count = function!(code, "count", extern "C" fn() -> i64);
    assert_eq!([count(), count()], [42, 43]);
    let fill = function!(code, "fill", extern "C" fn(*mut u8, *const u8, i64));
    let mut to = [0u8; 8];
    fill(to.as_mut_ptr(), b"abcd".as_ptr(), 4);
    assert_eq!(to, *b"aabcd\x07\x07\x07");
}

#[test]
fn loads_keep_their_own_data() {
    let (one, two) = (Code::load(whole()).expect("one"), Code::load(whole()).expect("two"));
    let count = |code: &Code| function!(code, "count", extern "C" fn() -> i64)();
    assert_eq!([count(&one), count(&one), count(&two)], [42, 43, 42]);
    drop(one);
    assert_eq!(count(&two), 43);
}

#[test]
fn kernels_are_functions() {
    let code = Code::load(whole()).expect("an object");
    assert!(code.kernel("fill").is_some());
    assert!(code.kernel("counter").is_none(), "it is data");
    assert!(code.symbol("counter").is_some());
    assert!(code.kernel("twice").is_none(), "it is static");
    assert!(code.symbol("missing").is_none());
}

#[test]
fn single_functions_are_loaded() {
    // It returns.
    let code = Code::of_function("nothing", &[0xc3]).expect("memory");
    let kernel = code.kernel("nothing").expect("a kernel");
    // SAFETY: it touches nothing.
    unsafe { kernel(null_mut(), null(), null(), 0, 1) };
    assert!(code.kernel("another").is_none());
    assert_eq!(permissions(code.symbol("nothing").expect("an address")), "r-xp");
}

#[test]
fn programs_keep_their_kernels_alive() {
    let source = "void square(char *scratch, float **at, const long *dims, long lo, long hi) {
        for (long i = lo; i < hi; i++) at[1][i] = at[0][i] * at[0][i];
    }";
    let code = Arc::new(Code::load(&compile("square", source, &["-fPIC"])).expect("an object"));
    let kernel = code.kernel("square").expect("a kernel");
    let buffer = |place| Buffer { bytes: Size::Symbol(0) * 4, place };
    let launch = Launch {
        kernel: 0,
        buffers: vec![0, 1],
        dims: vec![],
        tasks: Size::Symbol(0),
        grain: Size::Const(1),
        scratch: Size::Const(0),
    };
    let program = Program {
        symbols: 1,
        args: 1,
        results: 1,
        buffers: vec![buffer(Place::Argument(0)), buffer(Place::Result(0))],
        launches: vec![launch],
        ..Program::default()
    };
    let program = Executable::new(program, vec![kernel], vec![code], vec![]).expect("a program");
    let (from, mut to) = ([1f32, 2.0, 3.0], [0f32; 3]);
    let (args, results) = ([from.as_ptr().cast()], [to.as_mut_ptr().cast()]);
    // SAFETY: arrays of three numbers for buffers of three.
    unsafe { program.run(&args, &[3], &results, &Pool::new(2)) }.expect("a run");
    assert_eq!(to, [1.0, 4.0, 9.0]);
}

/// The permissions of the pages that an address lies in.
fn permissions(address: *const u8) -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let within = |line: &&str| {
        let (range, _) = line.split_once(' ').expect("a range");
        let (from, to) = range.split_once('-').expect("two ends");
        let address_of = |text| usize::from_str_radix(text, 16).expect("an address");
        (address_of(from)..address_of(to)).contains(&address.addr())
    };
    let line = maps.lines().find(within).expect("a mapping");
    line.split(' ').nth(1).expect("permissions").to_owned()
}

#[test]
fn no_page_is_writable_and_executable() {
    let code = Code::load(whole()).expect("an object");
    assert_eq!(permissions(code.symbol("fill").expect("code")), "r-xp");
    assert_eq!(permissions(code.symbol("counter").expect("data")), "rw-p");
    let source = "const long fixed[2] = {1, 2}; const long *const at[1] = {fixed};";
    let code = Code::load(&compile("fixed", source, &["-fPIC"])).expect("an object");
    assert_eq!(permissions(code.symbol("fixed").expect("a constant")), "r--p");
    assert_eq!(permissions(code.symbol("at").expect("a relocated constant")), "r--p");
}

#[test]
fn every_kind_of_position_independent_code_is_loaded() {
    // Without -fPIC data is reached by distance; without PLT functions by the table of addresses.
    for flags in [&["-fPIE"][..], &["-fPIC", "-fno-plt"], &["-fPIC", "-ffunction-sections"]] {
        let source = "#include <string.h>
            long value = 3; long get(void) { return value; }
            void zero(char *to, long n) { memset(to, 0, n); }";
        let code = Code::load(&compile(&flags.concat(), source, flags)).expect("an object");
        assert_eq!(function!(code, "get", extern "C" fn() -> i64)(), 3);
        let mut bytes = [1u8; 3];
        function!(code, "zero", extern "C" fn(*mut u8, i64))(bytes.as_mut_ptr(), 2);
        assert_eq!(bytes, [0, 0, 1]);
    }
}

#[test]
fn unsupported_objects_are_described() {
    let error = |name: &str, source: &str, flags: &[&str]| {
        Code::load(&compile(name, source, flags)).err().expect("an error").to_string()
    };
    let undefined = "double sin(double); double f(double x) { return sin(x); }";
    assert_eq!(
        error("undefined", undefined, &["-fPIC"]),
        "undefined symbol sin: an object may use memcpy, memmove, memset only"
    );
    let thread = "static _Thread_local int x; int f(void) { return x++; }";
    assert!(error("thread", thread, &["-fPIC"]).starts_with("unsupported object: "));
    let start = "static int x; __attribute__((constructor)) void f(void) { x = 1; }";
    assert_eq!(error("start", start, &["-fPIC"]), "unsupported object: section .init_array");
    let fixed = "int x[9]; int f(long i) { return x[i]; }";
    let message = error("fixed", fixed, &["-fno-pic", "-mcmodel=small"]);
    assert!(message.starts_with("the address of x does not fit at .text + 0x"), "{message}");
    let library = fs::read(std::env::current_exe().expect("a path")).expect("a file");
    let error = Code::load(&library).err();
    assert_eq!(error, Some(Error::Unsupported("it is not relocatable".into())));
    assert!(matches!(Code::load(b"").err(), Some(Error::Damaged(_))));
}

#[test]
fn objects_are_checked_without_loading() {
    assert_eq!(check(whole()), Ok(()));
    let undefined = "double sin(double); double f(double x) { return sin(x); }";
    let error = check(&compile("unloaded", undefined, &["-fPIC"]));
    assert_eq!(error, Err(Error::Undefined("sin".into())));
    assert!(matches!(check(b""), Err(Error::Damaged(_))));
}

#[test]
fn truncated_objects_are_errors() {
    let object = whole();
    for length in (0..object.len()).step_by(97) {
        assert!(Code::load(&object[..length]).is_err(), "{length} of {} bytes", object.len());
    }
}

#[test]
fn objects_may_be_unaligned() {
    let mut bytes = vec![0];
    bytes.extend(whole());
    let code = Code::load(&bytes[1..]).expect("an object");
    assert_eq!(function!(code, "count", extern "C" fn() -> i64)(), 42);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    /// Whatever a byte, or eight, is changed to, an object is loaded or refused.
    #[test]
    fn corrupted_objects_do_not_crash(at in 0usize..1 << 20, value: u64, wide: bool) {
        let mut object = whole().to_vec();
        let at = at % (object.len() - 8);
        let bytes = if wide { 8 } else { 1 };
        object[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        let _ = Code::load(&object);
    }
}
