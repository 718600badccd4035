//! The attribute macro `#[scratch_pool]`: a declared schedule in, proven offsets and a typed pool
//! out. Users get it through the crate `scratchpool`, which documents it.
//!
//! Four stages, each in its own file, each taking what the one before returned:
//!
//! | stage | file | what it does |
//! | --- | --- | --- |
//! | parse | `parse` | the struct and its attributes become a planner spec, with places |
//! | analyze | `expand` | the planner checks, proves and packs; its errors get their places |
//! | model | `api`, `meant` | which step hands out which views, and where they may be absent |
//! | codegen | `codegen` | layout, schedule, pool, guards, documentation |

mod api;
mod codegen;
mod expand;
mod meant;
mod parse;
mod places;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

/// Declares a scratch pool: proves which buffers are never live together, packs those onto the same
/// bytes, and generates a typed pool whose guards issue the order that the proof relies on.
///
/// ```
/// use scratchpool::{Host, scratch_pool};
///
/// /// Two values of a layer that are never needed at the same time.
/// #[scratch_pool(
///     rows = max_tokens,
///     dims(max_tokens = 1024, width = 64),
///     layers(count = 2),
///     exclusive(hidden, gate), // proved, or this does not compile
/// )]
/// #[step(project, writes(hidden))]
/// #[step(mix, reads(hidden))]
/// #[step(route, writes(gate))]
/// #[step(select, reads(gate))]
/// pub struct Scratch {
///     #[group(hidden)]
///     #[shape(max_tokens, width)]
///     pub hidden: f32,
///     #[group(gate)]
///     #[shape(max_tokens)]
///     pub gate: f32,
/// }
///
/// assert_eq!(scratch::layout::TOTAL_BYTES, 1024 * 64 * 4);
/// let mut pool = Scratch::allocate(&Host::in_order())?;
/// let mut pass = pool.begin(3)?;
/// let mut layer = pass.layer(0)?;
/// let mut step = layer.project()?;
/// let stream = step.stream();
/// stream.launch(step.buffers().hidden, |mut hidden| hidden.fill(1.0))?;
/// # Ok::<(), scratchpool::Error>(())
/// ```
///
/// # On the struct
///
/// | attribute | what it says |
/// | --- | --- |
/// | `scratch_pool(align = 256, …)` | alignment of all offsets and sizes in bytes, a power of two; 256 if absent |
/// | `config = "config.json"` | a Hugging Face configuration, relative to the manifest: its integers and lists of integers become names |
/// | `dims(n = 8192, m = n / 2, list = [0, 4])` | further names: integers, expressions over other names in any order, lists |
/// | `dims(n: runtime)`, `n: runtime(4096)` | known only at start-up (typically 4096): `allocate` then takes `Dims` |
/// | `rows = n` | the dim that `begin` cuts: a leading extent that mentions it shrinks to the rows of a pass |
/// | `layers(count = 43, ratio = ratios)` | number of layers, and attributes of each; one layer if absent |
/// | `exclusive(a, b, …)` | a claim that these groups are never live together: proved, or an error |
/// | `ubatches = 2` | micro-batches in flight: `split` instead of `begin`, each with its own copy and streams |
/// | `crate = path` | where the crate `scratchpool` is, if renamed |
/// | `#[step(name, …)]` | one piece of work of a layer, in the order in which you issue them |
/// | ` on = stream` | its stream; `main` if absent |
/// | ` when = expr` | the layers in which it runs, by their attributes and `layer`, the index |
/// | ` after(step, prev.step)` | events it waits for: of the same layer, or of the latest earlier layer that ran it |
/// | ` writes(group, group.buffer)`, ` reads(…)` | all that it touches |
/// | ` launch = full` | or `dependent`, `early`: programmatic dependent launch, which weakens the order of a stream |
/// | `#[group(name, when = expr, if = expr)]` | the layers in which a group exists; whether it exists at all |
///
/// # On a field
///
/// The type is the element type: `bool u8 i8 f8e4m3 f8e5m2 e8m0 u16 i16 f16 bf16 u32 i32 f32 u64 i64
/// f64`.
///
/// | attribute | what it says |
/// | --- | --- |
/// | `#[group(name)]`, `#[group(name.buffer)]` | its group, and its name there; the field's if absent |
/// | `#[shape(n, 64, m / 2)]` | extents, row-major |
/// | `#[align(1024)]` | alignment in bytes, at least the pool's |
///
/// Expressions are integers, names, `+ - * / %`, comparisons, `&& || !`, parentheses and `min max
/// ceil_div align_up`, on 64-bit integers. `/` must divide exactly, and an overflow is an error.
///
/// # What is generated
///
/// The struct with a device parameter, and beside it a module of the same name in snake case, with
/// `layout` (the numbers, and assertions on them), `LAYOUT` and `SCHEDULE` (the same as tables, also
/// of the struct, to be read or printed), and the guards `Pass`, `Layer` and one for each step. With a dim
/// known at start-up the numbers are those of `Plan::new(dims)?`, in place of `layout` and `LAYOUT`. In
/// use, a pass borrows the pool, a layer the pass, a step the layer, and views the step. Warnings come
/// in the words of a deprecation, since a macro has no other way to warn.
///
/// | method | what it does |
/// | --- | --- |
/// | `Name::allocate(&device)` | one arena; with a dim known at start-up, `allocate(&device, Dims { … })` |
/// | `pool.begin(num_tokens)` | one pass of as many rows; without `rows`, `begin()` takes no argument |
/// | `pool.split()` | in place of `begin` with `ubatches`: the micro-batches, each with `begin` |
/// | `pass.layer(index)` | one layer; in increasing order |
/// | `layer.step()` | a step, by its name; an `Option` where it does not run in every layer |
/// | `step.buffers()`, `step.stream()` | the views of what it writes and reads; the stream it runs on |
#[proc_macro_attribute]
pub fn scratch_pool(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    // The configuration is named relative to the manifest of the crate that declares the pool.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    expand::expand(arguments.into(), &item.into(), &root).into()
}
