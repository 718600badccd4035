// The global top-k map and the combined indices of prefill. A warp takes a token.

struct TopkMapParams {
    const i32* topk;
    const i32* token_to_req;
    const i32* block_table;
    const u8* valid;
    i32* indices;
    i32* lens;
    u32 tokens, width, requests, table_stride, columns, block_size;
    u32 shift;  // of a block size that is a power of two; 32 otherwise
};

INLINE i32 map_slot(const TopkMapParams& p, const i32* blocks, i32 local) {
    if (local < 0 || !blocks) return -1;
    u32 column, within;
    if (p.shift < 32) {
        column = (u32)local >> p.shift;
        within = (u32)local & (p.block_size - 1);
    } else {
        column = (u32)local / p.block_size;
        within = (u32)local - column * p.block_size;
    }
    if (column >= p.columns) return -1;
    const i32 block = __ldg(blocks + column);
    const u64 slot = (u64)(u32)block * p.block_size + within;
    return block < 0 || slot > 0x7fffffffu ? -1 : (i32)slot;
}

INLINE const i32* blocks_of(const TopkMapParams& p, u32 token) {
    const u32 request = (u32)p.token_to_req[token];
    return request < p.requests ? p.block_table + (u64)request * p.table_stride : nullptr;
}

// In place, rows of a multiple of 4 columns at 16-byte addresses.
extern "C" __global__ void __launch_bounds__(128) topk_map_vector(const TopkMapParams p) {
    begin();
    const u32 lane = threadIdx.x & 31, token = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (token >= p.tokens) return;
    const uint4* from = (const uint4*)(p.topk + (u64)token * p.width);
    uint4* to = (uint4*)(p.indices + (u64)token * p.width);
    const u32 quads = p.width / 4;
    const bool valid = p.valid[token] != 0;
    const i32* blocks = blocks_of(p, token);
    u32 count = 0;
    for (u32 base = 0; base < quads; base += 128) {
        uint4 local[4];
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            const u32 at = base + 32 * i + lane;
            local[i] = at < quads ? load16(from + at) : make_uint4(FULL, FULL, FULL, FULL);
        }
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            local[i].x = (u32)map_slot(p, blocks, (i32)local[i].x);
            local[i].y = (u32)map_slot(p, blocks, (i32)local[i].y);
            local[i].z = (u32)map_slot(p, blocks, (i32)local[i].z);
            local[i].w = (u32)map_slot(p, blocks, (i32)local[i].w);
            count += ((i32)local[i].x >= 0) + ((i32)local[i].y >= 0) + ((i32)local[i].z >= 0) +
                     ((i32)local[i].w >= 0);
        }
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            const u32 at = base + 32 * i + lane;
            if (at < quads) store16(to + at, local[i]);
        }
    }
    count = __reduce_add_sync(FULL, count);
    if (lane == 0) p.lens[token] = valid ? (i32)count : 0;
}

// Any width and address, in place or packed to the left.
template <bool PACKED>
INLINE void topk_map_scalar(const TopkMapParams& p) {
    begin();
    const u32 lane = threadIdx.x & 31, token = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (token >= p.tokens) return;
    const i32* from = p.topk + (u64)token * p.width;
    i32* to = p.indices + (u64)token * p.width;
    const i32* blocks = blocks_of(p, token);
    u32 count = 0;
    for (u32 base = 0; base < p.width; base += 32) {
        const u32 at = base + lane;
        const i32 slot = at < p.width ? map_slot(p, blocks, from[at]) : -1;
        const u32 found = __ballot_sync(FULL, slot >= 0);
        if (PACKED) {
            if (slot >= 0) to[count + __popc(found & ((1u << lane) - 1))] = slot;
        } else if (at < p.width) {
            to[at] = slot;
        }
        count += __popc(found);
    }
    if (PACKED) {
        for (u32 at = count + lane; at < p.width; at += 32) to[at] = -1;
    }
    if (lane == 0) p.lens[token] = p.valid[token] != 0 ? (i32)count : 0;
}

extern "C" __global__ void __launch_bounds__(128) topk_map_in_place(const TopkMapParams p) {
    topk_map_scalar<false>(p);
}
extern "C" __global__ void __launch_bounds__(128) topk_map_packed(const TopkMapParams p) {
    topk_map_scalar<true>(p);
}

struct CombineParams {
    const i32* topk;  // null takes all finished entries
    const i32* token_to_req;
    const i64* positions;
    const i32* seq_lens;
    const i32* gather_lens;
    i32* indices;
    i32* lens;
    u32 tokens, requests, most, width, ratio, window, workspace_rows, compressed_rows;
};

extern "C" __global__ void __launch_bounds__(128) combine_indices(const CombineParams p) {
    begin();
    const u32 lane = threadIdx.x & 31, token = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (token >= p.tokens) return;
    i32* row = p.indices + (u64)token * p.width;
    const i64 position = p.positions[token];
    const u32 request = (u32)p.token_to_req[token];
    if (position < 0 || request >= p.requests) {
        for (u32 at = lane; at < p.width; at += 32) row[at] = -1;
        if (lane == 0) p.lens[token] = 0;
        return;
    }
    const i64 gather_start = (i64)p.seq_lens[request] - p.gather_lens[request];
    // The largest position has no successor; the definition saturates.
    const i64 seen = position == 0x7fffffffffffffffLL ? position : position + 1;
    const i64 done = seen / p.ratio;
    const u32 n1 = done < p.most ? (u32)done : p.most;
    const u32 n2 = seen < p.window ? (u32)seen : p.window;
    const i64 base = (i64)p.workspace_rows * request;
    for (u32 at = lane; at < p.width; at += 32) {
        i64 entry = -1;
        if (at < n1) {
            const i64 local = p.topk ? (i64)p.topk[(u64)token * p.most + at] : (i64)at;
            if (local >= 0 && local < p.compressed_rows) entry = base + local;
        } else if (at < n1 + n2) {
            const i64 within = (i64)p.compressed_rows + (position - n2 + 1 + (at - n1)) - gather_start;
            if (within >= p.compressed_rows && within < p.workspace_rows) entry = base + within;
        }
        row[at] = (i32)entry;
    }
    if (lane == 0) p.lens[token] = (i32)(n1 + n2);
}
