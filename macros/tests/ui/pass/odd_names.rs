//! Names that mean something to Rust, to the generated code, or to both.
#![deny(unused)]

use scratchpool::{Error, Host, scratch_pool};

#[scratch_pool(
    rows = rows,
    dims(rows = 16, plan = 2, dims = 3, self_ = 1),
    layers(r#match = [1, 0]),
    exclusive(r#type, r#struct),
)]
#[step(pass, when = r#match == 1, writes(r#type))]
#[step(layer, when = r#match == 1, reads(r#type))]
#[step(buffers, writes(r#struct))]
#[step(drop, reads(r#struct))]
#[step(core, on = r#static)]
#[step(r#yield, on = default, after(prev.r#yield, core))]
#[step(begin)]
#[step(step, launch = full)]
#[step(stream)]
#[step(num_tokens)]
#[step(fmt)]
#[step(_1)]
#[step(__)]
#[step(index_q)]
#[step(index__q)]
#[step(größe, writes(other))]
#[group(r#type, when = r#match == 1)]
struct EagerScratch {
    #[group(r#type)]
    #[shape(rows, plan)]
    core: u8,
    #[group(r#type)]
    #[shape(rows)]
    rows: u16,
    #[group(r#type.r#fn)]
    #[shape(dims)]
    plan: u32,
    #[group(r#struct)]
    #[shape(rows)]
    r#type: u64,
    #[group(r#struct)]
    #[shape(rows)]
    layout: i64,
    // The arena has constants of these names.
    #[group(other)]
    #[shape(self_)]
    total: bool,
    #[group(other)]
    #[shape(self_)]
    sum: bool,
    #[group(other)]
    #[shape(self_)]
    lower_bound: bool,
    #[group(other)]
    #[shape(rows)]
    nothing: bool,
    #[group(other)]
    #[shape(rows)]
    f: bool,
    #[group(other)]
    #[shape(rows)]
    debug: bool,
}

#[scratch_pool]
#[step(plan, writes(a))]
struct Plan {
    #[group(a)]
    #[shape(16)]
    unused_: u8,
}

#[scratch_pool]
#[step(fill, writes(a))]
struct Type {
    #[group(a)]
    #[shape(16)]
    same: u8,
    #[group(a)]
    #[shape(16)]
    same_: u8,
}

#[allow(non_camel_case_types)]
#[scratch_pool]
#[step(fill, writes(a))]
struct small {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() -> Result<(), Error> {
    let device = Host::in_order();
    let mut pool = EagerScratch::allocate(&device)?;
    let mut pass = pool.begin(7)?;
    let mut layer = pass.layer(0)?;
    if let Some(mut step) = layer.pass()? {
        let buffers = step.buffers();
        assert_eq!((buffers.core.shape(), buffers.rows.shape()), ([7, 2], [7]));
        assert_eq!(buffers.plan.shape(), [3]);
        assert!(!format!("{buffers:?}").is_empty());
    }
    layer.layer()?;
    assert_eq!(layer.buffers()?.buffers().r#type.shape(), [7]);
    layer.drop()?;
    layer.core()?;
    layer.r#yield()?;
    layer.begin()?;
    layer.step()?;
    layer.stream()?;
    layer.num_tokens()?;
    layer.fmt()?;
    layer._1()?;
    layer.__()?;
    layer.index_q()?;
    layer.index__q()?;
    layer.größe()?.buffers().total.rows();
    assert_eq!(eager_scratch::LAYOUT.buffers[2].name, "type.fn");
    assert!(eager_scratch::layout::TOTAL__BYTES < eager_scratch::layout::TOTAL_BYTES);

    Plan::allocate(&device)?.begin()?.layer(0)?.plan()?;
    Type::allocate(&device)?.begin()?.layer(0)?.fill()?;
    small::allocate(&device)?.begin()?.layer(0)?.fill()?;
    assert_eq!(small_::layout::TOTAL_BYTES, 256);
    Ok(())
}
