// The compressors: partial states, pooling of finished windows, and the store of entries.
//
// A thread holds four neighbouring columns of a vector; 128 threads make a main entry, a warp an index
// entry. Groups of threads look at `chunk` tokens and work on those that are boundaries.

struct SaveParams {
    const float* kv_score;
    const float* ape;
    const i64* positions;
    const i64* slots;
    float* state;
    u64 state_rows;
    u32 tokens, width, ratio;
};

extern "C" __global__ void __launch_bounds__(256) save_state(const SaveParams p) {
    begin();
    const u32 token = blockIdx.x;
    const i64 slot = p.slots[token];
    if (slot < 0 || (u64)slot >= p.state_rows) return;
    i64 phase = p.positions[token] % (i64)p.ratio;
    if (phase < 0) phase += p.ratio;
    const u32 quads = p.width / 4;
    const float4* from = (const float4*)(p.kv_score + (u64)token * 2 * p.width);
    const float4* ape = (const float4*)(p.ape + phase * p.width);
    float4* to = (float4*)(p.state + (u64)slot * 2 * p.width);
    for (u32 at = threadIdx.x; at < 2 * quads; at += blockDim.x) {
        float4 v = from[at];
        if (at >= quads) {
            const float4 bias = ape[at - quads];
            v.x = __fadd_rn(v.x, bias.x);
            v.y = __fadd_rn(v.y, bias.y);
            v.z = __fadd_rn(v.z, bias.z);
            v.w = __fadd_rn(v.w, bias.w);
        }
        to[at] = v;
    }
}

struct StatesParams {
    const float* state;
    const i32* block_table;
    const i32* token_to_req;
    const i64* positions;
    const i64* slots;
    u32 tokens, pages, page_tokens, requests, columns, chunk;
};

struct StoreParams {
    const i64* slots;
    const float* norm_weight;
    const float* rope;
    u8* cache;
    u64 stride;
    u32 blocks, block_size, max_pos;
    float eps;
};

enum Format { MAIN, INDEX_FP8, INDEX_MXFP4 };

INLINE bool is_boundary(i64 position, i64 slot, u32 ratio) {
    return position >= 0 && slot >= 0 && (position & (ratio - 1)) == ratio - 1;
}

// The boundaries among `chunk` tokens from `first` on, one bit each. Every lane of a warp calls.
INLINE u32 boundaries(const i64* positions, const i64* slots, u32 first, u32 tokens, u32 chunk, u32 ratio) {
    const u32 lane = threadIdx.x & 31, token = first + lane;
    const bool found = lane < chunk && token < tokens && is_boundary(positions[token], slots[token], ratio);
    return __ballot_sync(FULL, found);
}

// The state row of a position, or null.
INLINE const float* state_row(const StatesParams& p, u32 request, i64 position, u32 width) {
    if (position < 0 || request >= p.requests) return nullptr;
    const u64 column = (u64)position / p.page_tokens;
    if (column >= p.columns) return nullptr;
    const u32 page = (u32)p.block_table[(u64)request * p.columns + column];
    if (page >= p.pages) return nullptr;
    return p.state + ((u64)page * p.page_tokens + ((u64)position - column * p.page_tokens)) * width;
}

// What scores are subtracted from: of a column without any, exponentials are 0 and not NaN.
INLINE float zero_of(float most) { return most == NEG_INF ? 0.0f : most; }

INLINE float weighted_mean(float sum, float weights) { return weights == 0.0f ? sum : __fdiv_rn(sum, weights); }

INLINE float& part(float4& v, i32 i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Norms, rotates, quantises and stores the columns 4 thread.. of a pooled vector. `sums` is shared
// by the four warps of a main entry.
template <i32 FORMAT>
INLINE void store_entry(const StoreParams& p, u32 token, i64 position, u32 ratio, float4 pooled, float* sums) {
    const u32 lane = threadIdx.x & 31;
    const u32 thread = FORMAT == MAIN ? threadIdx.x : lane;
    u32 block, entry;
    // The same for all threads of the entry.
    if (!find_slot(p.slots[token], p.block_size, p.blocks, block, entry)) return;
    float sum = 0.0f;
#pragma unroll
    for (i32 i = 0; i < 4; i++) sum = __fmaf_rn(part(pooled, i), part(pooled, i), sum);
    sum = warp_sum(sum);
    if (FORMAT == MAIN) {
        __syncthreads();
        if (lane == 0) sums[threadIdx.x >> 5] = sum;
        __syncthreads();
        sum = __fadd_rn(__fadd_rn(__fadd_rn(sums[0], sums[1]), sums[2]), sums[3]);
    }
    const float r = inverse_rms(sum, FORMAT == MAIN ? 1.0f / 512.0f : 1.0f / 128.0f, p.eps);
    const float4 weight = ((const float4*)p.norm_weight)[thread];
    float x[4];
    x[0] = __fmul_rn(__fmul_rn(pooled.x, r), weight.x);
    x[1] = __fmul_rn(__fmul_rn(pooled.y, r), weight.y);
    x[2] = __fmul_rn(__fmul_rn(pooled.z, r), weight.z);
    x[3] = __fmul_rn(__fmul_rn(pooled.w, r), weight.w);
    const u32 first_rotated = FORMAT == MAIN ? 112 : 16;
    if (thread >= first_rotated) {
        const i64 at = position / ratio * ratio;
        const u32 pair = 2 * (thread - first_rotated);
        float2 c = make_float2(NOT_A_NUMBER, NOT_A_NUMBER), s = c;
        if ((u64)at < p.max_pos) {
            c = *(const float2*)(p.rope + at * ROPE_DIM + pair);
            s = *(const float2*)(p.rope + at * ROPE_DIM + ROPE_DIM / 2 + pair);
        }
        rotate_pair(x[0], x[1], c.x, s.x);
        rotate_pair(x[2], x[3], c.y, s.y);
    }
    const u32 first = pack_bf16(x[0], x[1]), second = pack_bf16(x[2], x[3]);
    x[0] = low_bf16(first);
    x[1] = high_bf16(first);
    x[2] = low_bf16(second);
    x[3] = high_bf16(second);
    float amax = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
#pragma unroll
    for (i32 step = FORMAT == MAIN ? 8 : FORMAT == INDEX_FP8 ? 16 : 4; step > 0; step >>= 1)
        amax = fmaxf(amax, __shfl_xor_sync(FULL, amax, step));
    u8* base = p.cache + block * p.stride;
    if (FORMAT == INDEX_MXFP4) {
        const u32 byte = mxfp4_scale(amax);
        const float inverse = mxfp4_inverse(byte);
        *(u16*)(base + (u64)entry * 64 + 2 * thread) = (u16)e2m1x4(x[0], x[1], x[2], x[3], inverse);
        if ((thread & 7) == 0) base[(u64)p.block_size * 64 + (u64)entry * 4 + thread / 8] = (u8)byte;
        return;
    }
    const u32 byte = e4m3_scale(amax);
    const float inverse = e4m3_inverse(byte);
    const u32 codes = e4m3x4(x[0] * inverse, x[1] * inverse, x[2] * inverse, x[3] * inverse);
    if (FORMAT == INDEX_FP8) {
        *(u32*)(base + (u64)entry * 128 + 4 * thread) = codes;
        if (thread == 0) *(u32*)(base + (u64)p.block_size * 128 + (u64)entry * 4) = byte << 23;
    } else {
        u8* data = base + (u64)entry * 576;
        if (thread < 112) {
            *(u32*)(data + 4 * thread) = codes;
        } else {
            *(uint2*)(data + 448 + 8 * (thread - 112)) = make_uint2(first, second);
        }
        if ((thread & 15) == 0) {
            base[(u64)p.block_size * 576 + (u64)entry * 8 + thread / 16] = thread < 112 ? (u8)byte : 0;
        }
    }
}

// Pools the window of 8 rows for columns 4 thread.. of a vector of WIDTH.
template <i32 WIDTH>
INLINE float4 pool_c4(const StatesParams& p, u32 token, i64 position, u32 thread) {
    const u32 request = (u32)p.token_to_req[token];
    float4 kv[8], score[8];
#pragma unroll
    for (i32 i = 0; i < 8; i++) {
        const float* row = state_row(p, request, position - 7 + i, 4 * WIDTH);
        const i32 column = i / 4 * WIDTH + 4 * thread;
        if (row) {
            kv[i] = *(const float4*)(row + column);
            score[i] = *(const float4*)(row + 2 * WIDTH + column);
        } else {
            kv[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            score[i] = make_float4(NEG_INF, NEG_INF, NEG_INF, NEG_INF);
        }
    }
    float4 pooled;
#pragma unroll
    for (i32 k = 0; k < 4; k++) {
        float most = NEG_INF;
#pragma unroll
        for (i32 i = 0; i < 8; i++) most = fmaxf(most, part(score[i], k));
        const float zero = zero_of(most);
        float weights = 0.0f, sum = 0.0f;
#pragma unroll
        for (i32 i = 0; i < 8; i++) {
            const float weight = exp_rn(__fsub_rn(part(score[i], k), zero));
            weights = __fadd_rn(weights, weight);
            sum = __fmaf_rn(part(kv[i], k), weight, sum);
        }
        part(pooled, k) = weighted_mean(sum, weights);
    }
    return pooled;
}

template <i32 FORMAT>
INLINE void compress_c4(const StatesParams& p, const StoreParams& s) {
    begin();
    constexpr i32 WIDTH = FORMAT == MAIN ? 512 : 128;
    __shared__ float sums[4];
    const u32 thread = FORMAT == MAIN ? threadIdx.x : threadIdx.x & 31;
    const u32 group = FORMAT == MAIN ? blockIdx.x : blockIdx.x * 4 + (threadIdx.x >> 5);
    const u32 first = group * p.chunk;
    u32 found = boundaries(p.positions, p.slots, first, p.tokens, p.chunk, 4);
    while (found) {
        const u32 token = first + __ffs(found) - 1;
        found &= found - 1;
        const i64 position = p.positions[token];
        const float4 pooled = pool_c4<WIDTH>(p, token, position, thread);
        store_entry<FORMAT>(s, token, position, 4, pooled, sums);
    }
}

extern "C" __global__ void __launch_bounds__(128) compress_main(const StatesParams p, const StoreParams s) {
    compress_c4<MAIN>(p, s);
}
extern "C" __global__ void __launch_bounds__(128) compress_fp8(const StatesParams p, const StoreParams s) {
    compress_c4<INDEX_FP8>(p, s);
}
extern "C" __global__ void __launch_bounds__(128) compress_mxfp4(const StatesParams p, const StoreParams s) {
    compress_c4<INDEX_MXFP4>(p, s);
}

// C128's first stage: 64 columns a block, eight warps of 16 rows, two columns a lane.
extern "C" __global__ void __launch_bounds__(256) compress_pool(const StatesParams p, float* scratch) {
    begin();
    __shared__ float2 most[8][32], weights[8][32], sums[8][32];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 column = 64 * blockIdx.y + 2 * lane;
    const u32 first = blockIdx.x * p.chunk;
    u32 found = boundaries(p.positions, p.slots, first, p.tokens, p.chunk, 128);
    while (found) {
        const u32 token = first + __ffs(found) - 1;
        found &= found - 1;
        const u32 request = (u32)p.token_to_req[token];
        const i64 position = p.positions[token] - 127 + 16 * warp;
        float2 kv[16], score[16];
#pragma unroll
        for (i32 i = 0; i < 16; i++) {
            const float* row = state_row(p, request, position + i, 1024);
            kv[i] = row ? *(const float2*)(row + column) : make_float2(0.0f, 0.0f);
            score[i] = row ? *(const float2*)(row + 512 + column) : make_float2(NEG_INF, NEG_INF);
        }
        float2 m = make_float2(NEG_INF, NEG_INF);
#pragma unroll
        for (i32 i = 0; i < 16; i++) {
            m.x = fmaxf(m.x, score[i].x);
            m.y = fmaxf(m.y, score[i].y);
        }
        __syncthreads();
        most[warp][lane] = m;
        __syncthreads();
#pragma unroll
        for (i32 w = 0; w < 8; w++) {
            m.x = fmaxf(m.x, most[w][lane].x);
            m.y = fmaxf(m.y, most[w][lane].y);
        }
        const float zero_x = zero_of(m.x), zero_y = zero_of(m.y);
        float2 weight = make_float2(0.0f, 0.0f), sum = weight;
#pragma unroll
        for (i32 i = 0; i < 16; i++) {
            const float x = exp_rn(__fsub_rn(score[i].x, zero_x)), y = exp_rn(__fsub_rn(score[i].y, zero_y));
            weight.x = __fadd_rn(weight.x, x);
            weight.y = __fadd_rn(weight.y, y);
            sum.x = __fmaf_rn(kv[i].x, x, sum.x);
            sum.y = __fmaf_rn(kv[i].y, y, sum.y);
        }
        weights[warp][lane] = weight;
        sums[warp][lane] = sum;
        __syncthreads();
        if (warp == 0) {
            // What adding to changes nothing, also not the sign of a zero.
            weight = sum = make_float2(-0.0f, -0.0f);
#pragma unroll
            for (i32 w = 0; w < 8; w++) {
                weight.x = __fadd_rn(weight.x, weights[w][lane].x);
                weight.y = __fadd_rn(weight.y, weights[w][lane].y);
                sum.x = __fadd_rn(sum.x, sums[w][lane].x);
                sum.y = __fadd_rn(sum.y, sums[w][lane].y);
            }
            *(float2*)(scratch + (u64)token * HEAD_DIM + column) =
                make_float2(weighted_mean(sum.x, weight.x), weighted_mean(sum.y, weight.y));
        }
    }
}

struct PooledParams {
    const float* scratch;
    const i64* positions;
    const i64* state_slots;
    u32 tokens, chunk;
};

// C128's second stage.
extern "C" __global__ void __launch_bounds__(128) compress_store(const PooledParams p, const StoreParams s) {
    begin();
    __shared__ float sums[4];
    const u32 first = blockIdx.x * p.chunk;
    u32 found = boundaries(p.positions, p.state_slots, first, p.tokens, p.chunk, 128);
    while (found) {
        const u32 token = first + __ffs(found) - 1;
        found &= found - 1;
        const float4 pooled = ((const float4*)(p.scratch + (u64)token * HEAD_DIM))[threadIdx.x];
        store_entry<MAIN>(s, token, p.positions[token], 128, pooled, sums);
    }
}
