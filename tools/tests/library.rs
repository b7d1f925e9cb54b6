//! A library that `mithril compile` makes, loaded and called from Rust.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

use libloading::Library;

/// Two products, so that there is something in between; the rows of the second sum to that of w.
const SOURCE: &str = "\
mithril 1

func @main(%x: tensor<n x 4 x f32>, %w: tensor<4 x 40 x f32> param) -> (y: tensor<n x 4 x f32>) {
  %0 = matmul(%x, %w)
  %1 = transpose(%w) {permutation = [1, 0]}
  %y = matmul(%0, %1)
  return %y
}
";

#[repr(C)]
struct Params {
    w: *const f32,
}

type Bytes = unsafe extern "C" fn(n: i64) -> usize;
type Call = unsafe extern "C" fn(
    n: i64,
    x: *const f32,
    params: *const Params,
    y: *mut f32,
    workspace: *mut u8,
) -> i32;

/// Memory of a cache line's alignment.
#[repr(align(64))]
#[derive(Clone)]
struct Line(#[allow(dead_code)] [u8; 64]);

/// Where the code generator is, if it was built.
fn native() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../frontend/python/mithril/_native.so")
}

fn compile(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("gram.mir"), folder.join("libgram.so"));
    fs::create_dir_all(folder).expect("a folder");
    fs::write(&source, SOURCE).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mithril"));
    command.arg("compile").arg(&source).arg("-o").arg(&library).args(["--cpu", "v2,v3"]);
    command.env("MITHRIL_CACHE", "").env("MITHRIL_NATIVE", native());
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

fn value(i: usize) -> f32 {
    ((i * 7 + 3) % 11) as f32 - 5.0
}

/// x wwᵀ, of whole numbers that are exact in any order.
fn expected(x: &[f32], w: &[f32], n: usize) -> Vec<f32> {
    let gram = |i: usize, j: usize| (0..40).map(|k| w[i * 40 + k] * w[j * 40 + k]).sum::<f32>();
    let element = |at: usize| (0..4).map(|k| x[at / 4 * 4 + k] * gram(k, at % 4)).sum();
    (0..n * 4).map(element).collect()
}

#[test]
fn threads_call_with_separate_workspaces() {
    if !native().exists() {
        eprintln!("built without native code");
        return;
    }
    let folder = env::temp_dir().join(format!("mithril-library-{}", std::process::id()));
    // SAFETY: the library runs nothing when it is loaded.
    let library = unsafe { Library::new(compile(&folder)) }.expect("it loads");
    // SAFETY: the header declares them so.
    let bytes =
        *unsafe { library.get::<Bytes>(b"mithril_gram_workspace_bytes") }.expect("it is there");
    // SAFETY: as above.
    let call = *unsafe { library.get::<Call>(b"mithril_gram") }.expect("it is there");
    let w: Vec<f32> = (0..160).map(value).collect();
    thread::scope(|scope| {
        for n in [1, 5, 64, 0] {
            let w = &w;
            scope.spawn(move || {
                let x: Vec<f32> = (0..n * 4).map(value).collect();
                // SAFETY: it takes any number.
                let length = unsafe { bytes(n as i64) };
                let mut workspace = vec![Line([0; 64]); length.div_ceil(64)];
                for _ in 0..100 {
                    let mut y = vec![f32::NAN; n * 4];
                    let params = Params { w: w.as_ptr() };
                    let workspace = workspace.as_mut_ptr().cast();
                    // SAFETY: the arrays are as long as the header says.
                    let status =
                        unsafe { call(n as i64, x.as_ptr(), &params, y.as_mut_ptr(), workspace) };
                    assert_eq!(status, 0);
                    assert_eq!(y, expected(&x, w, n));
                }
            });
        }
    });
    // SAFETY: both take any number; nothing is read or written for a wrong one.
    unsafe {
        assert_eq!(bytes(-1), usize::MAX);
        let null = std::ptr::null();
        assert_eq!(call(-1, null, null.cast(), null.cast_mut(), null.cast_mut().cast()), 1);
        assert_eq!(call(1, null, null.cast(), null.cast_mut(), null.cast_mut().cast()), 2);
    }
    drop(library);
    fs::remove_dir_all(&folder).expect("the folder goes");
}
