//! The parameters of kernels, laid out as the CUDA sources declare them: pointers first.

use scratchpool::cuda::cudarc::driver::DeviceRepr;

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub(super) struct $name {
            $(pub(super) $field: $ty,)*
        }

        // SAFETY: plain numbers in C's layout, as the source of the same name declares.
        unsafe impl DeviceRepr for $name {}
    )*};
}

params! {
    QInsertParams {
        q_in: u64,
        q_out: u64,
        kv: u64,
        kv_norm: u64,
        positions: u64,
        slots: u64,
        rope: u64,
        cache: u64,
        stride: u64,
        tokens: u32,
        heads: u32,
        padded_heads: u32,
        inserted: u32,
        max_pos: u32,
        blocks: u32,
        block_size: u32,
        norm: u32,
        eps: f32,
        q_inverse: f32,
        kv_inverse: f32,
        units: u32,
    }
    IndexerQParams {
        q: u64,
        positions: u64,
        rope: u64,
        weights: u64,
        values: u64,
        scales: u64,
        weights_out: u64,
        rows: u32,
        heads: u32,
        max_pos: u32,
        rope_is_bf16: u32,
        weights_are_bf16: u32,
        softmax_scale: f32,
        head_scale: f32,
        token_factor: u32,
        token_shift: u32,
    }
    TopkMapParams {
        topk: u64,
        token_to_req: u64,
        block_table: u64,
        valid: u64,
        indices: u64,
        lens: u64,
        tokens: u32,
        width: u32,
        requests: u32,
        table_stride: u32,
        columns: u32,
        block_size: u32,
        shift: u32,
        most_block: u32,
        vector: u32,
    }
    CombineParams {
        topk: u64,
        token_to_req: u64,
        positions: u64,
        seq_lens: u64,
        gather_lens: u64,
        indices: u64,
        lens: u64,
        tokens: u32,
        requests: u32,
        most: u32,
        width: u32,
        ratio: u32,
        window: u32,
        workspace_rows: u32,
        compressed_rows: u32,
    }
    GatherParams {
        cache: u64,
        block_table: u64,
        seq_lens: u64,
        gather_lens: u64,
        out: u64,
        stride: u64,
        requests: u32,
        columns: u32,
        blocks: u32,
        block_size: u32,
        ratio: u32,
        workspace_rows: u32,
        first_row: u32,
        most_rows: u32,
    }
    SaveParams {
        kv_score: u64,
        ape: u64,
        positions: u64,
        slots: u64,
        state: u64,
        state_rows: u64,
        tokens: u32,
        width: u32,
        ratio: u32,
    }
    StatesParams {
        state: u64,
        block_table: u64,
        token_to_req: u64,
        positions: u64,
        slots: u64,
        tokens: u32,
        pages: u32,
        page_tokens: u32,
        requests: u32,
        columns: u32,
        chunk: u32,
    }
    StoreParams {
        slots: u64,
        norm_weight: u64,
        rope: u64,
        cache: u64,
        stride: u64,
        blocks: u32,
        block_size: u32,
        max_pos: u32,
        eps: f32,
    }
    PooledParams {
        scratch: u64,
        positions: u64,
        state_slots: u64,
        tokens: u32,
        chunk: u32,
    }
    LogitsParams {
        q: u64,
        q_scales: u64,
        weights: u64,
        cache: u64,
        block_table: u64,
        token_to_req: u64,
        positions: u64,
        logits: u64,
        stride: u64,
        tokens: u32,
        heads: u32,
        columns: u32,
        blocks: u32,
        block_size: u32,
        requests: u32,
        table_columns: u32,
        ratio: u32,
    }
    ChoiceParams {
        logits: u64,
        indices: u64,
        tokens: u32,
        columns: u32,
        topk: u32,
    }
    /// `Source` in the CUDA source.
    SourceParams {
        entries: u64,
        indices: u64,
        lens: u64,
        stride: u64,
        blocks: u32,
        block_size: u32,
        width: u32,
        paged: u32,
    }
    AttentionParams {
        q: u64,
        sinks: u64,
        out: u64,
        sources: [SourceParams; 2],
        tokens: u32,
        heads: u32,
        scale_log2: f32,
        unused: u32,
    }
}
