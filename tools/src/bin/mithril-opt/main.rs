//! `mithril-opt`: runs passes on a `.mir` file and prints the result.

mod emit;
mod expected;
mod report;
mod split;

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use mithril_driver::targets;
use mithril_ir::diagnostic::Diagnostic;
use mithril_ir::{text, verify};
use mithril_passes::driver::{Driver, Moment, Report};
use mithril_passes::pipeline::Pipeline;
use mithril_passes::registry;

use emit::Emit;
use report::ReportOptions;
use split::Chunk;

/// Run passes over Mithril IR and print the result.
#[derive(Parser)]
#[command(name = "mithril-opt", version = mithril_driver::VERSION, after_help = passes_help())]
struct Options {
    /// A .mir file; standard input if it is `-` or omitted.
    file: Option<PathBuf>,

    /// The passes to run: `canonicalize,inline{limit=all},cse`.
    #[arg(short, long = "passes", value_name = "PIPELINE", default_value = "")]
    pipeline: String,

    /// The file to write; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// Print another form of the module.
    #[arg(long, value_name = "FORM", help = emit::help())]
    emit: Option<Emit>,

    /// The processor for native code: native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4 or arm64.
    /// Defaults to the environment variable MITHRIL_CPU, or native.
    #[arg(long, value_name = "CPU")]
    cpu: Option<String>,

    /// Split the input at lines `// -----` and process each part separately.
    #[arg(long)]
    split_input_file: bool,

    /// Check that the errors match the comments `// expected-error {{…}}`. An error is expected on
    /// the line of its comment, on a nearby line with `@+1` or `@-1`, on no line with `@unknown`.
    #[arg(long)]
    verify_diagnostics: bool,

    /// Do not verify the module after each pass.
    #[arg(long)]
    no_verify: bool,

    #[command(flatten)]
    report: ReportOptions,

    /// Print the passes with their options and exit.
    #[arg(long)]
    list_passes: bool,
}

fn passes_help() -> String {
    format!("Passes, with their options:\n{}", registry::help())
}

impl Options {
    /// Extends the pipeline so that its result is legal for `--emit`.
    fn legal(&self, pipeline: Pipeline) -> Pipeline {
        match self.emit {
            Some(emit) => emit.legal(pipeline),
            None => pipeline,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list_passes {
        return exit(print(registry::help().as_bytes()).map(|()| true));
    }
    if options.file.is_none() && io::stdin().is_terminal() {
        // Standard input is a terminal, so no module is piped in: prints the help instead.
        let printed = Options::command().print_help();
        return printed.map_or(ExitCode::FAILURE, |()| ExitCode::from(2));
    }
    let pipeline = match Pipeline::parse(&options.pipeline, targets::of_passes()) {
        Ok(pipeline) => options.legal(pipeline),
        Err(error) => {
            eprint!("{}", error.render("--passes", &options.pipeline));
            return ExitCode::from(2);
        }
    };
    exit(run(&options, &pipeline))
}

fn exit(ended: Result<bool, (String, io::Error)>) -> ExitCode {
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err((what, error)) => {
            eprintln!("mithril-opt: {what}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the pipeline on each module and prints errors of the input. False if there were any.
/// Errors: the name of a file that cannot be read or written, and the reason.
fn run(options: &Options, pipeline: &Pipeline) -> Result<bool, (String, io::Error)> {
    let (name, source) = read(options)?;
    let chunks =
        if options.split_input_file { split::chunks(&source) } else { vec![Chunk::whole(&source)] };
    let mut outputs = Vec::new();
    let mut good = true;
    for chunk in &chunks {
        let result = process(options, pipeline, chunk);
        let error = result.as_ref().err();
        if options.verify_diagnostics {
            let problems = expected::check(&chunk.text, error.map(|e| &**e));
            good &= problems.is_empty();
            problems.iter().for_each(|p| eprintln!("{name}:{p}"));
        } else if let Some(error) = error {
            good = false;
            eprint!("{}", error.render(&name, &chunk.text));
        }
        outputs.extend(result);
    }
    write(options, &outputs.join(&b"\n// -----\n\n"[..]))?;
    Ok(good)
}

/// Runs the pipeline on one module.
/// Errors: the first error of the parser, of the verifier or of a pass.
fn process(
    options: &Options,
    pipeline: &Pipeline,
    chunk: &Chunk,
) -> Result<Vec<u8>, Box<Diagnostic>> {
    let module = text::parse(&chunk.text)?;
    text::check_targets(&chunk.text, &targets::names())?;
    let driver = Driver { verify: !options.no_verify };
    if driver.verify {
        verify::verify(&module)?;
    }
    let report_options = &options.report;
    let mut observer = |pass: &dyn mithril_passes::pass::Pass, moment: Moment, module: &_| {
        report_options.module(pass.name(), moment, module);
    };
    let (module, report): (_, Report) = driver.run_observed(pipeline, &module, &mut observer)?;
    report_options.report(&report);
    match options.emit {
        Some(emit) => emit.emit(&module, options.cpu.as_deref()),
        None => Ok(text::print(&module).into_bytes()),
    }
}

fn read(options: &Options) -> Result<(String, String), (String, io::Error)> {
    match &options.file {
        Some(path) if path.as_os_str() != "-" => {
            let name = path.display().to_string();
            let text = fs::read_to_string(path);
            text.map(|text| (name.clone(), text)).map_err(|error| (name, error))
        }
        _ => {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            let name = "<stdin>".to_string();
            read.map(|_| (name.clone(), text)).map_err(|error| (name, error))
        }
    }
}

fn write(options: &Options, bytes: &[u8]) -> Result<(), (String, io::Error)> {
    let name = options.output.display().to_string();
    if name != "-" {
        return fs::write(&options.output, bytes).map_err(|error| (name, error));
    }
    print(bytes)
}

fn print(bytes: &[u8]) -> Result<(), (String, io::Error)> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        // The reader has closed the pipe, which is not an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| ("<stdout>".to_string(), error)),
    }
}
