// The indexer's logits, on tensor cores, and the choice of the largest.
//
// A warp multiplies the 64 heads of a token with 16 keys at a time. A dot product does not depend on
// the order of its terms, so lane c of each quad takes elements 32 c.. 32 c + 31 of both
// operands: fragments come straight from global memory, a scale block of MXFP4 belongs to one lane,
// and queries stay in registers. E4M3 is exact in f16, MXFP4 with its scale in bf16, and products
// of both in f32.

struct LogitsParams {
    const u8* q;
    const u8* q_scales;
    const float* weights;
    const u8* cache;
    const i32* block_table;
    const i32* token_to_req;
    const i64* positions;
    float* logits;
    u64 stride;
    u32 tokens, heads, columns, blocks, block_size, requests, table_columns, ratio;
};

#if __CUDA_ARCH__ < 890
INLINE u32 half2_times_256(u32 pair) {
    u32 out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(pair), "r"(0x5c005c00u), "r"(0x80008000u));
    return out;
}
#endif

// Four E4M3 codes to f16: NaN stays NaN.
INLINE void e4m3_to_f16(u32 codes, u32& low, u32& high) {
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(low) : "h"((u16)codes));
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(high) : "h"((u16)(codes >> 16)));
#else
    // The exponent's bias differs by 8, so the bits are 2^-8 of the value.
    u32 a = __byte_perm(codes, 0, 0x1404), b = __byte_perm(codes, 0, 0x3424);
    low = half2_times_256((a & 0x80008000u) | ((a & 0x7f007f00u) >> 1));
    high = half2_times_256((b & 0x80008000u) | ((b & 0x7f007f00u) >> 1));
    if ((a & 0x7f00u) == 0x7f00u) low |= 0x7fffu;
    if ((a & 0x7f000000u) == 0x7f000000u) low |= 0x7fff0000u;
    if ((b & 0x7f00u) == 0x7f00u) high |= 0x7fffu;
    if ((b & 0x7f000000u) == 0x7f000000u) high |= 0x7fff0000u;
#endif
}

// A power of two in bf16, in both halves; byte 255 is NaN.
INLINE u32 e8m0_to_bf16x2(u32 byte) {
    const u32 bits = byte == 0 ? 0x40u : byte == 255 ? 0x7fc0u : byte << 7;
    return bits | bits << 16;
}

INLINE u32 times_bf16x2(u32 a, u32 b) {
    u32 out;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(0x80008000u));
    return out;
}

// The four E2M1 codes in the low 16 bits, times a scale, to bf16.
INLINE void e2m1_to_bf16(u32 codes, u32 scale, u32& low, u32& high) {
    // Bytes of the bf16 values 0, 0.5, 1, 1.5, 2, 3, 4, 6, looked up by code.
    const u32 picks = codes & 0x7777u;
    const u32 lows = __byte_perm(0xc0800000u, 0xc0804000u, picks);
    const u32 highs = __byte_perm(0x3f3f3f00u, 0x40404040u, picks);
    const u32 a = __byte_perm(lows, highs, 0x5140), b = __byte_perm(lows, highs, 0x7362);
    const u32 sign_a = (codes & 0x8u) << 12 | (codes & 0x80u) << 24;
    const u32 sign_b = (codes & 0x800u) << 4 | (codes & 0x8000u) << 16;
    low = times_bf16x2(a | sign_a, scale);
    high = times_bf16x2(b | sign_b, scale);
}

// The fragments of 32 elements of a row: for step s, two pairs.
template <bool FP4>
INLINE void row_fragments(const u8* row, u32 scale, u32 c, u32 (&pairs)[16]) {
    if (FP4) {
        const u32* from = (const u32*)(row + 16 * c);
        const u32 factor = e8m0_to_bf16x2(scale);
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            const u32 codes = from[i];
            e2m1_to_bf16(codes, factor, pairs[4 * i], pairs[4 * i + 1]);
            e2m1_to_bf16(codes >> 16, factor, pairs[4 * i + 2], pairs[4 * i + 3]);
        }
    } else {
        const u32* from = (const u32*)(row + 32 * c);
#pragma unroll
        for (i32 i = 0; i < 8; i++) e4m3_to_f16(from[i], pairs[2 * i], pairs[2 * i + 1]);
    }
}

template <bool FP4>
INLINE void multiply(float (&d)[4], const u32* a, u32 b0, u32 b1) {
    if (FP4) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

template <bool FP4>
INLINE void indexer_logits(const LogitsParams& p) {
    begin();
    const u32 lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3;
    const u32 token = blockIdx.x;
    const u32 warp = blockIdx.y * 4 + (threadIdx.x >> 5), warps = gridDim.y * 4;
    const u32 request = (u32)p.token_to_req[token];
    const i64 position = p.positions[token];
    const u64 seen = position < 0 ? 0 : (u64)position + 1;
    const u64 done = seen / p.ratio;
    const u32 candidates = request >= p.requests ? 0 : done < p.columns ? (u32)done : p.columns;
    float* out = p.logits + (u64)token * p.columns;
    // What is no candidate.
    for (u32 at = candidates + 32 * warp + lane; at < p.columns; at += 32 * warps) out[at] = NEG_INF;
    if (16 * warp >= candidates) return;

    // Heads 16 m + g and 16 m + g + 8; heads beyond are 0 with weight 0.
    u32 q[4][8][4];
    float weight[4][2];
    constexpr u32 ROW = FP4 ? 64 : 128;
#pragma unroll
    for (i32 m = 0; m < 4; m++) {
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const u32 head = 16 * m + g + 8 * h;
            u32 pairs[16];
            if (head < p.heads) {
                const u64 row = (u64)token * p.heads + head;
                row_fragments<FP4>(p.q + row * ROW, FP4 ? p.q_scales[row * 4 + c] : 0, c, pairs);
                weight[m][h] = p.weights[row];
            } else {
#pragma unroll
                for (i32 i = 0; i < 16; i++) pairs[i] = 0;
                weight[m][h] = 0.0f;
            }
#pragma unroll
            for (i32 s = 0; s < 8; s++) {
                q[m][s][h] = pairs[2 * s];
                q[m][s][h + 2] = pairs[2 * s + 1];
            }
        }
    }
    for (u32 first = 16 * warp; first < candidates; first += 16 * warps) {
#pragma unroll
        for (i32 n = 0; n < 2; n++) {
            // As a column of B this quad's lanes load key `first + 8 n + g`.
            const u32 key = first + 8 * n + g;
            u32 pairs[16];
            bool there = false;
            float scale = 1.0f;
            if (key < candidates) {
                const u32 column = key / p.block_size;
                const u32 entry = key - column * p.block_size;
                if (column < p.table_columns) {
                    const u32 block = (u32)p.block_table[(u64)request * p.table_columns + column];
                    if (block < p.blocks) {
                        const u8* base = p.cache + block * p.stride;
                        const u8* scales = base + (u64)p.block_size * ROW + (u64)entry * 4;
                        if (!FP4) scale = *(const float*)scales;
                        row_fragments<FP4>(base + (u64)entry * ROW, FP4 ? scales[c] : 0, c, pairs);
                        there = true;
                    }
                }
            }
            if (!there) {
#pragma unroll
                for (i32 i = 0; i < 16; i++) pairs[i] = 0;
            }
            float even = 0.0f, odd = 0.0f;
#pragma unroll
            for (i32 m = 0; m < 4; m++) {
                float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
                for (i32 s = 0; s < 8; s++) multiply<FP4>(d, q[m][s], pairs[2 * s], pairs[2 * s + 1]);
                // Not fmaxf, which would drop a NaN.
#pragma unroll
                for (i32 i = 0; i < 4; i++) d[i] = d[i] < 0.0f ? 0.0f : d[i];
                if (16 * m + g < p.heads) {
                    even += weight[m][0] * d[0];
                    odd += weight[m][0] * d[1];
                }
                if (16 * m + g + 8 < p.heads) {
                    even += weight[m][1] * d[2];
                    odd += weight[m][1] * d[3];
                }
            }
#pragma unroll
            for (i32 step = 4; step < 32; step <<= 1) {
                even += __shfl_xor_sync(FULL, even, step);
                odd += __shfl_xor_sync(FULL, odd, step);
            }
            // Key 2 c of this tile is loaded by lanes of row g = 2 c, so its scale is in lane 8 c.
            const float scale_even = __shfl_sync(FULL, scale, 8 * c), scale_odd = __shfl_sync(FULL, scale, 8 * c + 4);
            const u32 present = __ballot_sync(FULL, there);
            if (g == 0) {
                const u32 at = first + 8 * n + 2 * c;
                if (at < candidates) out[at] = present >> (8 * c) & 1 ? even * scale_even : NEG_INF;
                if (at + 1 < candidates) out[at + 1] = present >> (8 * c + 4) & 1 ? odd * scale_odd : NEG_INF;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, 2) indexer_logits_fp8(const LogitsParams p) {
    indexer_logits<false>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2) indexer_logits_mxfp4(const LogitsParams p) {
    indexer_logits<true>(p);
}

struct ChoiceParams {
    const float* logits;
    i32* indices;
    u32 tokens, columns, topk;
};

// Larger floats have larger keys, both zeros the same; 0 for what is never chosen.
INLINE u32 choice_key(float x) {
    const u32 bits = __float_as_uint(__fadd_rn(x, 0.0f));
    if (!(x > NEG_INF)) return 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A block takes a row, a thread four neighbouring columns of each tile.
constexpr u32 TILE = 4 * 512;

// The keys of a thread's columns; 0 for columns that are not there.
INLINE void load_keys(const float* row, u32 columns, u32 tile, u32 (&keys)[4]) {
    const u32 at = tile + 4 * threadIdx.x;
    if (((u64)row & 15) == 0 && at + 4 <= columns) {
        const float4 v = *(const float4*)(row + at);
        keys[0] = choice_key(v.x);
        keys[1] = choice_key(v.y);
        keys[2] = choice_key(v.z);
        keys[3] = choice_key(v.w);
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) keys[i] = at + i < columns ? choice_key(row[at + i]) : 0;
    }
}

INLINE u32 sum_upto(u32 x, u32 lanes) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (u32 step = 1; step < lanes; step <<= 1) {
        const u32 below = __shfl_up_sync(FULL, x, step);
        if (lane >= step) x += below;
    }
    return x;
}

// A radix search for the key at the cut, eight bits at a time; then what is taken is counted and placed, in
// order and from the left. Keys of a row of ONE_TILE stay in registers.
template <bool ONE_TILE>
INLINE void choose(const ChoiceParams& p, const float* row, i32* out) {
    __shared__ u32 counts[256], sums[2][16];
    __shared__ u32 prefix, wanted;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 keys[4];
    if (ONE_TILE) load_keys(row, p.columns, 0, keys);
    if (threadIdx.x == 0) {
        prefix = 0;
        wanted = p.topk;
    }
    bool all = false;
    for (i32 shift = 24; shift >= 0; shift -= 8) {
        for (u32 at = threadIdx.x; at < 256; at += blockDim.x) counts[at] = 0;
        __syncthreads();
        const u32 known = prefix;
        for (u32 tile = 0; tile < p.columns; tile += TILE) {
            if (!ONE_TILE) load_keys(row, p.columns, tile, keys);
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                const u32 key = keys[i];
                if (key != 0 && (shift == 24 || key >> (shift + 8) == known)) atomicAdd(&counts[key >> shift & 255], 1u);
            }
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            // Lane l sums bins 255 - 8 l downwards; the cut is where the sum reaches what is wanted.
            u32 own = 0;
#pragma unroll
            for (i32 i = 0; i < 8; i++) own += counts[255 - 8 * threadIdx.x - i];
            const u32 upto = sum_upto(own, 32);
            const u32 want = wanted;
            const u32 reached = __ballot_sync(FULL, upto >= want);
            // All lanes have read what one of them writes now.
            __syncwarp();
            if (!reached) {
                // Fewer are left than wanted, which only the first pass can find: all are taken.
                if (threadIdx.x == 0) wanted = 0xffffffffu;
            } else if (threadIdx.x == __ffs(reached) - 1) {
                u32 before = upto - own, bin = 255 - 8 * threadIdx.x;
                while (before + counts[bin] < want) before += counts[bin--];
                prefix = known << 8 | bin;
                wanted = want - before;
            }
        }
        __syncthreads();
        if (wanted == 0xffffffffu) {
            all = true;
            break;
        }
    }
    // Keys above the cut are taken, and `most_ties` of those at it.
    const u32 cut = all ? 0 : prefix, most_ties = all ? 0 : wanted;
    u32 above = 0, ties = 0, turn = 0;
    for (u32 tile = 0; tile < p.columns; tile += TILE, turn ^= 1) {
        if (!ONE_TILE) load_keys(row, p.columns, tile, keys);
        // Keys above in the low half, ties in the high half.
        u32 own = 0;
#pragma unroll
        for (i32 i = 0; i < 4; i++) own += keys[i] > cut ? 1u : keys[i] == cut && cut != 0 ? 1u << 16 : 0u;
        const u32 upto = sum_upto(own, 32);
        if (lane == 31) sums[turn][warp] = upto;
        // Sums alternate, so that the next tile's do not overtake this one's readers.
        __syncthreads();
        const u32 warps = sum_upto(lane < 16 ? sums[turn][lane] : 0, 16);
        const u32 left = __shfl_sync(FULL, warps, (warp + 31) & 31), whole = __shfl_sync(FULL, warps, 15);
        const u32 before = (warp ? left : 0) + upto - own;
        u32 place = above + (before & 0xffff), tie = ties + (before >> 16);
        const u32 column = tile + 4 * threadIdx.x;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (keys[i] > cut) {
                out[place++ + min(tie, most_ties)] = (i32)(column + i);
            } else if (keys[i] == cut && cut != 0) {
                if (tie < most_ties) out[place + tie] = (i32)(column + i);
                tie++;
            }
        }
        above += whole & 0xffff;
        ties += whole >> 16;
    }
    for (u32 at = above + min(ties, most_ties) + threadIdx.x; at < p.topk; at += blockDim.x) out[at] = -1;
}

extern "C" __global__ void __launch_bounds__(512) indexer_topk(const ChoiceParams p) {
    begin();
    const float* row = p.logits + (u64)blockIdx.x * p.columns;
    i32* out = p.indices + (u64)blockIdx.x * p.topk;
    if (p.topk == 0) return;
    if (p.columns <= TILE) {
        choose<true>(p, row, out);
    } else {
        choose<false>(p, row, out);
    }
}
