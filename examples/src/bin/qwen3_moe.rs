//! A pool from nothing, for a model that is not DeepSeek: the scratch of Qwen3-235B-A22B, a
//! mixture of 128 experts, 8 for each token.
//!
//! Read it from top to bottom: the model's sizes come from its configuration; each `#[step]` says
//! on which stream a piece of work runs, what it waits for, and what it writes and reads; each field
//! is one buffer. Which buffers can share bytes follows from that, and the compiler finds it out.

use std::process::ExitCode;

use scratchpool::{Device, Error, Host, scratch_pool};
use scratchpool_examples::check::{Findings, Tag, write};

/// Scratch of one layer, shared by all 94.
#[scratch_pool(
    config = "configs/qwen3-235b-a22b.json",
    rows = max_num_tokens,
    dims(
        max_num_tokens = 8192,
        qkv_heads = num_attention_heads + 2 * num_key_value_heads,
        max_expert_rows = max_num_tokens * num_experts_per_tok,
    ),
    layers(count = num_hidden_layers),
    // Proved, or this does not compile: attention and experts never hold scratch at the same time.
    exclusive(attention, experts),
)]
#[step(qkv_proj, writes(attention.qkv))]
#[step(kv_store, on = copy, after(qkv_proj), reads(attention.qkv))]
#[step(attend, reads(attention.qkv), writes(attention.out))]
#[step(o_proj, reads(attention.out))]
#[step(route, writes(routing))]
#[step(dispatch, after(kv_store), reads(routing), writes(experts.gathered))]
#[step(gate_up, reads(experts.gathered), writes(experts.gate_up))]
#[step(silu_mul, reads(experts.gate_up), writes(experts.activated))]
#[step(down, reads(experts.activated), writes(experts.down))]
#[step(combine, reads(experts.down, routing))]
pub struct MoeScratch {
    /// Queries, keys and values of all heads.
    #[group(attention)]
    #[shape(max_num_tokens, qkv_heads, head_dim)]
    pub qkv: bf16,
    /// Attention output before its projection.
    #[group(attention.out)]
    #[shape(max_num_tokens, num_attention_heads, head_dim)]
    pub attended: bf16,

    /// The experts of each token.
    #[group(routing)]
    #[shape(max_num_tokens, num_experts_per_tok)]
    pub expert_ids: i32,
    /// Their weights.
    #[group(routing)]
    #[shape(max_num_tokens, num_experts_per_tok)]
    pub expert_weights: f32,

    /// Hidden states in the order of the experts, one row for each token and expert.
    #[group(experts)]
    #[shape(max_expert_rows, hidden_size)]
    pub gathered: bf16,
    /// Gate and up projections.
    #[group(experts)]
    #[shape(max_expert_rows, 2 * moe_intermediate_size)]
    pub gate_up: bf16,
    /// SiLU of the gate, times up.
    #[group(experts)]
    #[shape(max_expert_rows, moe_intermediate_size)]
    pub activated: bf16,
    /// Down projection.
    #[group(experts)]
    #[shape(max_expert_rows, hidden_size)]
    pub down: bf16,
}

fn main() -> ExitCode {
    let layout = moe_scratch::LAYOUT;
    println!("{} at 8192 tokens", layout.pool);
    for buffer in layout.buffers {
        println!("  {:>10}  {:>10}  {}", buffer.offset, buffer.bytes, buffer.name);
    }
    let saved = layout.sum_bytes - layout.total_bytes;
    println!("{} bytes instead of {}: {saved} saved", layout.total_bytes, layout.sum_bytes);

    // The layout is constant, so the compiler can be asked about it.
    const { assert!(moe_scratch::layout::TOTAL_BYTES < moe_scratch::layout::SUM_BYTES) };

    for seed in 0..4 {
        match pass(&Host::random(seed), 3) {
            Ok(findings) if findings.wrong() == 0 => {
                println!("order of seed {seed}: {} reads as written", findings.reads());
            }
            Ok(findings) => {
                eprintln!("error: wrong values, the first at {:?}", findings.first_wrong());
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// One forward pass of `num_tokens` rows on the host, in a random order that streams and events
/// allow.
fn pass(host: &Host, num_tokens: usize) -> Result<Findings, Error> {
    let findings = Findings::default();
    let mut pool = MoeScratch::allocate(host)?;
    let mut scratch = pool.begin(num_tokens)?;
    for index in 0..moe_scratch::SCHEDULE.layers.len() {
        let tag = move |buffer| Tag { pass: 0, layer: index as u64, buffer };
        let mut layer = scratch.layer(index)?;

        let mut step = layer.qkv_proj()?;
        let stream = step.stream();
        stream.launch(step.buffers().qkv, move |mut qkv| write(&mut qkv, tag(0)))?;
        drop(step); // or end the block: the next step takes the layer

        let mut step = layer.kv_store()?;
        let (stream, found) = (step.stream(), findings.clone());
        stream.launch(step.buffers().qkv, move |qkv| found.read(&qkv, tag(0), 0))?;
        drop(step);

        let mut step = layer.attend()?;
        let (stream, found, views) = (step.stream(), findings.clone(), step.buffers());
        stream.launch((views.qkv, views.attended), move |(qkv, mut out)| {
            found.read(&qkv, tag(0), 0);
            write(&mut out, tag(1));
        })?;
        drop(step);

        let mut step = layer.o_proj()?;
        let (stream, found) = (step.stream(), findings.clone());
        stream.launch(step.buffers().attended, move |out| found.read(&out, tag(1), 0))?;
        drop(step);

        let mut step = layer.route()?;
        let (stream, views) = (step.stream(), step.buffers());
        stream.launch(
            (views.expert_ids, views.expert_weights),
            move |(mut ids, mut weights)| {
                write(&mut ids, tag(2));
                write(&mut weights, tag(3));
            },
        )?;
        drop(step);

        let mut step = layer.dispatch()?;
        let (stream, found, views) = (step.stream(), findings.clone(), step.buffers());
        stream.launch((views.expert_ids, views.gathered), move |(ids, mut gathered)| {
            found.read(&ids, tag(2), 0);
            write(&mut gathered, tag(4));
        })?;
        drop(step);

        let mut step = layer.gate_up()?;
        let (stream, found, views) = (step.stream(), findings.clone(), step.buffers());
        stream.launch((views.gathered, views.gate_up), move |(gathered, mut gate_up)| {
            found.read(&gathered, tag(4), 0);
            write(&mut gate_up, tag(5));
        })?;
        drop(step);

        let mut step = layer.silu_mul()?;
        let (stream, found, views) = (step.stream(), findings.clone(), step.buffers());
        stream.launch((views.gate_up, views.activated), move |(gate_up, mut activated)| {
            found.read(&gate_up, tag(5), 0);
            write(&mut activated, tag(6));
        })?;
        drop(step);

        let mut step = layer.down()?;
        let (stream, found, views) = (step.stream(), findings.clone(), step.buffers());
        stream.launch((views.activated, views.down), move |(activated, mut down)| {
            found.read(&activated, tag(6), 0);
            write(&mut down, tag(7));
        })?;
        drop(step);

        let mut step = layer.combine()?;
        let (stream, found, views) = (step.stream(), findings.clone(), step.buffers());
        stream.launch((views.down, views.expert_weights), move |(down, weights)| {
            found.read(&down, tag(7), 0);
            found.read(&weights, tag(3), 0);
        })?;
    }
    drop(scratch);
    host.synchronize()?;
    Ok(findings)
}
