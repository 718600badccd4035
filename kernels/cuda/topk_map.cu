// The global top-k map and the combined indices of prefill.

struct TopkMapParams {
    const i32* topk;
    const i32* token_to_req;
    const i32* block_table;
    const u8* valid;
    i32* indices;
    i32* lens;
    u32 tokens, width, requests, table_stride, columns, block_size;
    u32 shift;       // of a block size that is a power of two; 32 otherwise
    u32 most_block;  // the largest block whose first slot is an i32
    u32 vector;      // whether rows can be accessed 16 bytes at a time
};

// The blocks of a token's request, or null.
INLINE const i32* blocks_of(const TopkMapParams& p, u32 token) {
    const u32 request = (u32)p.token_to_req[token];
    return request < p.requests && p.columns ? p.block_table + (u64)request * p.table_stride : nullptr;
}

// Maps N indices; the table is read for all of them before the first is used, from column 0 where
// an index has none.
template <i32 N>
INLINE void map_slots(const TopkMapParams& p, const i32* blocks, i32 (&index)[N]) {
    if (!blocks) {
#pragma unroll
        for (i32 i = 0; i < N; i++) index[i] = -1;
        return;
    }
    u32 within[N];
    i32 block[N];
#pragma unroll
    for (i32 i = 0; i < N; i++) {
        const u32 local = (u32)index[i];
        const u32 column = p.shift < 32 ? local >> p.shift : local / p.block_size;
        within[i] = p.shift < 32 ? local & (p.block_size - 1) : local - column * p.block_size;
        const bool there = index[i] >= 0 && column < p.columns;
        block[i] = __ldg(blocks + (there ? column : 0));
        if (!there) index[i] = -1;
    }
#pragma unroll
    for (i32 i = 0; i < N; i++) {
        // A negative block is a large number here, and so is a slot beyond i32.
        const u32 slot = (u32)block[i] * p.block_size + within[i];
        const bool there = index[i] >= 0 && (u32)block[i] <= p.most_block && (i32)slot >= 0;
        index[i] = there ? (i32)slot : -1;
    }
}

INLINE u32 count_slots(const i32 (&slot)[4]) {
    return (slot[0] >= 0) + (slot[1] >= 0) + (slot[2] >= 0) + (slot[3] >= 0);
}

// Many tokens, in place, 16 bytes at a time: a warp takes a token.
extern "C" __global__ void __launch_bounds__(128) topk_map_warp(const TopkMapParams p) {
    begin();
    const u32 lane = threadIdx.x & 31, token = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (token >= p.tokens) return;
    const uint4* from = (const uint4*)(p.topk + (u64)token * p.width);
    uint4* to = (uint4*)(p.indices + (u64)token * p.width);
    const u32 quads = p.width / 4;
    const bool valid = p.valid[token] != 0;
    const i32* blocks = blocks_of(p, token);
    u32 count = 0;
    for (u32 base = 0; base < quads; base += 64) {
        i32 slot[8];
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const u32 at = base + 32 * i + lane;
            const uint4 v = at < quads ? load16(from + at) : make_uint4(FULL, FULL, FULL, FULL);
            slot[4 * i] = (i32)v.x;
            slot[4 * i + 1] = (i32)v.y;
            slot[4 * i + 2] = (i32)v.z;
            slot[4 * i + 3] = (i32)v.w;
        }
        map_slots(p, blocks, slot);
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const u32 at = base + 32 * i + lane;
            const uint4 v = make_uint4(slot[4 * i], slot[4 * i + 1], slot[4 * i + 2], slot[4 * i + 3]);
            if (at < quads) store16(to + at, v);
#pragma unroll
            for (i32 k = 0; k < 4; k++) count += slot[4 * i + k] >= 0;
        }
    }
    count = __reduce_add_sync(FULL, count);
    if (lane == 0) p.lens[token] = valid ? (i32)count : 0;
}

// Any width and address: a block takes a token, a thread four neighbouring columns.
template <bool PACKED>
INLINE void topk_map_block(const TopkMapParams& p) {
    begin();
    __shared__ u32 sums[2][4];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, token = blockIdx.x;
    const i32* from = p.topk + (u64)token * p.width;
    i32* to = p.indices + (u64)token * p.width;
    const bool valid = p.valid[token] != 0;
    const i32* blocks = blocks_of(p, token);
    u32 before = 0, turn = 0;
    for (u32 base = 0; base < p.width; base += 512, turn ^= 1) {
        const u32 at = base + 4 * threadIdx.x;
        i32 slot[4] = {-1, -1, -1, -1};
        if (p.vector && at < p.width) {
            const uint4 v = load16(from + at);
            slot[0] = (i32)v.x;
            slot[1] = (i32)v.y;
            slot[2] = (i32)v.z;
            slot[3] = (i32)v.w;
        } else {
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                if (at + i < p.width) slot[i] = from[at + i];
        }
        map_slots(p, blocks, slot);
        const u32 own = count_slots(slot);
        u32 upto = own;
        if (PACKED) {
#pragma unroll
            for (i32 step = 1; step < 32; step <<= 1) {
                const u32 left = __shfl_up_sync(FULL, upto, step);
                if (lane >= step) upto += left;
            }
            if (lane == 31) sums[turn][warp] = upto;
        } else {
            const u32 all = __reduce_add_sync(FULL, own);
            if (lane == 0) sums[turn][warp] = all;
            if (p.vector && at < p.width) {
                store16(to + at, make_uint4(slot[0], slot[1], slot[2], slot[3]));
            } else {
#pragma unroll
                for (u32 i = 0; i < 4; i++)
                    if (at + i < p.width) to[at + i] = slot[i];
            }
        }
        // Sums alternate, so that the next turn's do not overtake this one's readers.
        __syncthreads();
        u32 place = before + upto - own;
#pragma unroll
        for (u32 w = 0; w < 4; w++) {
            if (w < warp) place += sums[turn][w];
            before += sums[turn][w];
        }
        if (PACKED) {
#pragma unroll
            for (i32 i = 0; i < 4; i++)
                if (slot[i] >= 0) to[place++] = slot[i];
        }
    }
    if (PACKED) {
        for (u32 at = before + threadIdx.x; at < p.width; at += 128) to[at] = -1;
    }
    if (threadIdx.x == 0) p.lens[token] = valid ? (i32)before : 0;
}

extern "C" __global__ void __launch_bounds__(128) topk_map_in_place(const TopkMapParams p) {
    topk_map_block<false>(p);
}
extern "C" __global__ void __launch_bounds__(128) topk_map_packed(const TopkMapParams p) {
    topk_map_block<true>(p);
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
    // Positions beyond any workspace stay beyond it, without overflow.
    const i64 last = position < 1LL << 40 ? position : 1LL << 40;
    for (u32 at = lane; at < p.width; at += 32) {
        i64 entry = -1;
        if (at < n1) {
            const i64 local = p.topk ? (i64)p.topk[(u64)token * p.most + at] : (i64)at;
            if (local >= 0 && local < p.compressed_rows) entry = base + local;
        } else if (at < n1 + n2) {
            const i64 within = (i64)p.compressed_rows + (last - n2 + 1 + (at - n1)) - gather_start;
            if (within >= p.compressed_rows && within < p.workspace_rows) entry = base + within;
        }
        row[at] = (i32)entry;
    }
    if (lane == 0) p.lens[token] = (i32)(n1 + n2);
}
