//! Every spec that TOML can say, an annotated struct can say, and both mean the same.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::str::FromStr as _;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use scratchpool_planner::error::{Error, Spelling};
use scratchpool_planner::expr::Expr;
use scratchpool_planner::plan::{Plan, plan};
use scratchpool_planner::spec::{
    Buffer, ColumnSource, DType, Dim, DimValue, Group, Launch, Name, Spanned, Spec, Step, Target,
};
use scratchpool_planner::toml_spec;

use super::random::Random;
use super::root;
use crate::api::identifier;
use crate::parse;

fn word(name: &str) -> Ident {
    identifier(name, Span::call_site())
}

fn name(name: &Name) -> Ident {
    word(&name.value)
}

fn expr(expr: &Expr) -> TokenStream {
    TokenStream::from_str(&expr.to_string()).unwrap()
}

fn integer(value: i64) -> TokenStream {
    TokenStream::from_str(&value.to_string()).unwrap()
}

fn list(values: &[i64]) -> TokenStream {
    let values = values.iter().map(|value| integer(*value));
    quote!([#(#values),*])
}

fn targets(targets: &[Target]) -> impl Iterator<Item = TokenStream> {
    targets.iter().map(|Target { group, buffer, .. }| {
        let group = word(group);
        match buffer.as_ref().map(|buffer| word(buffer)) {
            Some(buffer) => quote!(#group.#buffer),
            None => quote!(#group),
        }
    })
}

fn step(step: &Step) -> TokenStream {
    let Step { name: step_name, stream, when, after, launch, writes, reads } = step;
    let step_name = name(step_name);
    let stream = stream.iter().map(name);
    let when = when.iter().map(expr);
    let after = after.iter().map(|after| {
        let (step, prev) = (word(&after.step), after.prev.then(|| quote!(prev.)));
        quote!(#prev #step)
    });
    let launch = (*launch != Launch::Full).then(|| word(launch.as_str())).into_iter();
    let (writes, reads) = (targets(writes), targets(reads));
    quote! {
        #[step(
            #step_name, #(on = #stream,)* #(when = #when,)* after(#(#after),*),
            #(launch = #launch,)* writes(#(#writes),*), reads(#(#reads),*)
        )]
    }
}

fn fields(group: &Group, count: &mut usize) -> TokenStream {
    let group_name = name(&group.name);
    let fields = group.buffers.iter().map(|Buffer { name: buffer, dtype, shape, align }| {
        *count += 1;
        let (field, buffer) = (format_ident!("field_{count}"), name(buffer));
        let (dtype, shape) = (word(dtype.value.as_str()), shape.iter().map(expr));
        let align = align.iter().map(|align| integer(align.value));
        quote! {
            #[group(#group_name.#buffer)]
            #[shape(#(#shape),*)]
            #(#[align(#align)])*
            #field: #dtype,
        }
    });
    fields.collect()
}

/// A spec as arguments and item of the macro.
fn declaration(spec: &Spec, config: Option<&str>) -> (TokenStream, TokenStream) {
    let dims = spec.dims.iter().map(|Dim { name: dim, value }| {
        let dim = name(dim);
        match value {
            DimValue::Expr(value) => {
                let value = expr(value);
                quote!(#dim = #value)
            }
            DimValue::List(values) => {
                let values = list(values);
                quote!(#dim = #values)
            }
            DimValue::Runtime { nominal, .. } => {
                let nominal = integer(*nominal);
                quote!(#dim: runtime(#nominal))
            }
        }
    });
    let count = spec.layers.count.iter().map(expr);
    let columns = spec.layers.columns.iter().map(|column| {
        let attribute = name(&column.name);
        let source = match &column.source {
            ColumnSource::Name(source) => {
                let source = name(source);
                quote!(#source)
            }
            ColumnSource::List(values) => list(&values.value),
            ColumnSource::Texts(values) => {
                let values = &values.value;
                quote!([#(#values),*])
            }
        };
        quote!(#attribute = #source)
    });
    let number = |key: &str, value: Option<Spanned<i64>>| {
        let (key, value) = (word(key), integer(value?.value));
        Some(quote!(#key = #value,))
    };
    let (align, ubatches) = (number("align", spec.align), number("ubatches", spec.ubatches));
    let rows = spec.rows.iter().map(name);
    let config = config.map(Literal::string).into_iter();
    let exclusive = spec.exclusive.iter().map(name);
    let arguments = quote! {
        #(config = #config,)* #align #ubatches #(rows = #rows,)* dims(#(#dims),*),
        layers(#(count = #count,)* #(#columns),*), exclusive(#(#exclusive),*)
    };
    let steps = spec.steps.iter().map(step);
    let groups = spec.groups.iter().map(|Group { name: group, when, condition, .. }| {
        let (group, when) = (name(group), when.iter().map(expr));
        let condition = condition.iter().map(expr);
        quote!(#[group(#group, #(when = #when,)* #(if = #condition)*)])
    });
    let mut position = 0;
    let fields = spec.groups.iter().map(|group| fields(group, &mut position));
    let pool = name(&spec.name);
    let item = quote! {
        #(#steps)* #(#groups)*
        struct #pool { #(#fields)* }
    };
    (arguments, item)
}

/// All that fixes the bytes and the order, or all that is wrong.
fn meaning(planned: &Result<Plan, Vec<Error>>) -> String {
    let mut text = String::new();
    match planned {
        Ok(plan) => {
            let _ = writeln!(text, "{:#?}", plan.layout);
            let _ = writeln!(text, "{:?} {:?}", plan.interference, plan.structure.streams);
            let _ = writeln!(text, "{:?}", plan.explain().issue_plan());
        }
        Err(errors) => {
            let mut lines: Vec<String> = errors
                .iter()
                .map(|error| {
                    // Help may be worded for a spelling; the rest may not.
                    let help = error.help_in(Spelling::Toml);
                    let rest = (error.notes(), error.trace().to_vec(), help);
                    format!("{} {} {rest:?}", error.code(), error.message())
                })
                .collect();
            // Errors come in the order of the text, which differs.
            lines.sort();
            text.push_str(&lines.join("\n"));
        }
    }
    text
}

/// Plans a TOML spec, and the struct that says the same; both must mean the same.
fn assert_equal(text: &str, folder: &Path) -> Result<Plan, Vec<Error>> {
    let spec = toml_spec::read(text, folder).whole().unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let config = text.lines().find_map(|line| line.strip_prefix("config = \""));
    let config = config.map(|rest| rest.trim_end_matches('"'));
    let (arguments, item) = declaration(&spec, config);
    let shown = format!("{arguments}\n{item}");
    let declared = parse::parse(arguments, item, folder).unwrap_or_else(|e| panic!("{e}\n{shown}"));
    assert_eq!(declared.errors, [], "{shown}");
    let (ours, theirs) = (plan(&declared.spec), plan(&spec));
    assert_eq!(meaning(&ours), meaning(&theirs), "{text}\n{shown}");
    ours
}

/// The TOML specs beside the tests: between them, all that a spec can say.
fn specs() -> Vec<(String, String)> {
    let folder = fs::read_dir(root().join("tests/specs")).unwrap();
    let mut specs: Vec<(String, String)> = folder
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    specs.sort();
    specs
}

#[test]
fn each_spec_means_the_same_as_toml_and_as_struct() {
    let specs = specs();
    assert!(specs.len() >= 15);
    for (name, text) in specs {
        let planned = assert_equal(&text, &root().join("tests/specs"));
        // The first line of a spec in error names the codes.
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# errors: "));
        let mut codes: Vec<&str> = match &planned {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(|error| error.code().as_str()).collect(),
        };
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.join(" "), expected.unwrap_or(""), "{name}");
    }
}

#[test]
fn the_specs_use_every_key_dtype_launch_and_operator() {
    let all: String = specs().into_iter().map(|(_, text)| text).collect();
    let words = [
        "config =",
        "align =",
        "exclusive =",
        "rows =",
        "ubatches =",
        "[dims]",
        "runtime =",
        "[layers]",
        "count =",
        "[[step]]",
        "stream =",
        "when =",
        "after =",
        "\"prev.",
        "launch =",
        "writes =",
        "reads =",
        "[[group]]",
        "if =",
        "[[group.buffer]]",
        "shape =",
        "dtype =",
    ];
    let operators = [
        " + ",
        " - ",
        " * ",
        " / ",
        " % ",
        " == ",
        " != ",
        " < ",
        " <= ",
        " > ",
        " >= ",
        " && ",
        " || ",
        "!",
        "\"-",
        "(",
        "min(",
        "max(",
        "ceil_div(",
        "align_up(",
    ];
    for word in words.into_iter().chain(operators) {
        assert!(all.contains(word), "{word}");
    }
    let quoted = DType::ALL.iter().map(|d| d.as_str()).chain(Launch::ALL.map(Launch::as_str));
    for word in quoted {
        assert!(all.contains(&format!("\"{word}\"")), "{word}");
    }
}

#[test]
fn random_specs_mean_the_same_as_toml_and_as_struct() {
    let (mut sound, mut refused) = (0, 0);
    for seed in 0..400 {
        let text = Random::new(seed).spec();
        match assert_equal(&text, Path::new(".")) {
            Ok(_) => sound += 1,
            Err(_) => refused += 1,
        }
    }
    // Neither side of the test is empty.
    assert!(sound >= 50 && refused >= 50, "{sound} sound, {refused} refused");
}
