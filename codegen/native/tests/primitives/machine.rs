//! Kernels that apply scalar code to arrays, compiled and loaded.

#[path = "../instant/mod.rs"]
mod instant;

use std::ffi::{CString, c_char, c_int, c_void};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process, ptr};

use instant::{difference, instant};
use mithril_ir::dtype::DType;
use mithril_kernels::builder::Builder;
use mithril_kernels::code::V;
use mithril_kernels::host;
use mithril_kernels::legalize::legalize;
use mithril_kernels::loops::Loops;
use mithril_kernels::{mlir, scalar};
use mithril_native::{Options, Stage, compile};
use mithril_runtime::code::Code;

type Entry = unsafe extern "C" fn(*mut u8, *const *mut u8, *const i64, i64, i64);

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A kernel: arrays in, arrays out, all of one length.
pub struct Kernel {
    entry: Entry,
    /// The same by Cranelift.
    instant: Code,
    results: Vec<DType>,
}

/// What a kernel does to each group of lanes: a value for each of `args`.
pub type Body<'a> = &'a dyn Fn(&mut Builder, &[V]) -> V;

impl Kernel {
    /// Every body is applied to the same operands, in a loop of its own.
    pub fn new(args: &[DType], bodies: &[(DType, Body)], lanes: u32) -> Kernel {
        // The processor that MITHRIL_CPU names, or this machine's.
        let host = host::chosen(None).unwrap_or_else(|e| panic!("{e}"));
        let b = Builder::new(args.len() + bodies.len(), 1);
        let mut b = b.for_isa(&host.isa);
        let options =
            Options { cpu: host.level.cpu.into(), features: host.features, ..Options::default() };
        let inputs: Vec<_> =
            args.iter().enumerate().map(|(i, &d)| b.buffer(i, scalar::stored(d), true)).collect();
        let (zero, n) = (b.index(0), b.dim(0));
        for (i, (dtype, body)) in bodies.iter().enumerate() {
            let output = b.buffer(args.len() + i, scalar::stored(*dtype), false);
            b.each(zero, n, lanes.into(), |b, at| {
                let load = |b: &mut Builder, (&mem, &dtype)| {
                    let loaded = b.load(mem, at, lanes, None);
                    scalar::from_memory(b, loaded, dtype)
                };
                let values =
                    inputs.iter().zip(args).map(|input| load(b, input)).collect::<Vec<V>>();
                let result = body(b, &values);
                let result = scalar::to_memory(b, result, *dtype);
                b.store(output, at, result, None);
            });
        }
        let mut code = b.finish();
        legalize(&mut code, &host.isa);
        let text = mlir::print(&code);
        let object = compile(&text, &options, Stage::Object);
        let object = object.unwrap_or_else(|e| panic!("{e}"));
        let results = bodies.iter().map(|(d, _)| *d).collect();
        Kernel { entry: load(&object), instant: instant(&code, &options.cpu), results }
    }

    /// The results on the `n` elements of each of `inputs`.
    pub fn run(&self, inputs: &[&[u8]], n: usize) -> Vec<Vec<u8>> {
        let mut outputs = self.outputs(n);
        self.run_into(inputs, &mut outputs, n);
        let mut others = self.outputs(n);
        run_into(self.instant.kernel("kernel").expect("the kernel"), inputs, &mut others, n);
        let all = outputs.iter().zip(&others).zip(&self.results).enumerate();
        for (at, ((llvm, instant), dtype)) in all {
            if let Some(what) = difference(*dtype, llvm, instant) {
                panic!("result {at} by LLVM and Cranelift: {what}");
            }
        }
        outputs
    }

    /// Room for `n` elements of each result.
    pub fn outputs(&self, n: usize) -> Vec<Vec<u8>> {
        self.results.iter().map(|dtype| vec![0; n * dtype.bytes()]).collect()
    }

    pub fn run_into(&self, inputs: &[&[u8]], outputs: &mut [Vec<u8>], n: usize) {
        run_into(self.entry, inputs, outputs, n);
    }
}

fn run_into(entry: Entry, inputs: &[&[u8]], outputs: &mut [Vec<u8>], n: usize) {
    let inputs = inputs.iter().map(|bytes| bytes.as_ptr().cast_mut());
    let buffers: Vec<*mut u8> = inputs.chain(outputs.iter_mut().map(|o| o.as_mut_ptr())).collect();
    // SAFETY: the kernel reads and writes `n` elements of each buffer.
    unsafe { entry(ptr::null_mut(), buffers.as_ptr(), [n as i64].as_ptr(), 0, 1) };
}

/// Links an object without libraries but libc, so that a call of libm is an error, and opens it.
fn load(object: &[u8]) -> Entry {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let stem = env::temp_dir().join(format!("mithril-scalar-{}-{count}", process::id()));
    let (from, to) = (stem.with_extension("o"), stem.with_extension("so"));
    fs::write(&from, object).expect("the object is written");
    let linked = Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,-z,defs", "-o"])
        .args([&to, &from])
        .arg("-lc")
        .status();
    assert!(linked.expect("cc runs").success(), "the object needs more than libc");
    let path = CString::new(to.to_str().expect("a path of text")).expect("no zero byte");
    // SAFETY: the library runs nothing when it is opened, and `kernel` has this signature.
    let entry = unsafe {
        let library = dlopen(path.as_ptr(), 2);
        assert!(!library.is_null(), "the library opens");
        std::mem::transmute::<*mut c_void, Entry>(dlsym(library, c"kernel".as_ptr()))
    };
    for path in [from, to] {
        let _ = fs::remove_file(path);
    }
    entry
}
