// RoPE and quantisation of the indexer's queries.
//
// Eight lanes take a row of 128, so that rotation keeps all lanes busy: lane j has 16 bytes of dims 8
// j.. and 16 of dims 64 + 8 j... A warp takes 4 * STEPS rows and issues all their loads first. With
// ONE_TOKEN the number of heads is a multiple of that, so all rows of a warp turn alike.

struct IndexerQParams {
    const u8* q;
    const i64* positions;
    const u8* rope;
    const u8* weights;
    u8* values;
    u8* scales;
    float* weights_out;
    u32 rows, heads, max_pos, rope_is_bf16, weights_are_bf16;
    float softmax_scale, head_scale;
};

INLINE Turn index_turn(const IndexerQParams& p, i64 position, u32 first_pair) {
    if (!p.rope_is_bf16) return turn_at((const float*)p.rope, p.max_pos, position, first_pair);
    Turn turn;
    turn.c = turn.s = make_float4(NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER);
    if ((u64)position < p.max_pos) {
        const u8* row = p.rope + (position * ROPE_DIM + first_pair) * 2;
        const uint2 c = *(const uint2*)row, s = *(const uint2*)(row + ROPE_DIM);
        turn.c = make_float4(low_bf16(c.x), high_bf16(c.x), low_bf16(c.y), high_bf16(c.y));
        turn.s = make_float4(low_bf16(s.x), high_bf16(s.x), low_bf16(s.y), high_bf16(s.y));
    }
    return turn;
}

// The largest magnitude of a lane's block of 32: of the low dims in the low half of the word, of the
// high dims in the high half. A block is four lanes of one half of a row.
template <bool KEEP>
INLINE u32 block_amax(uint4 low, uint4 high) {
    const u32 a = amax_bf16x2<KEEP>(low), b = amax_bf16x2<KEEP>(high);
    u32 m = amax_bf16x2<KEEP>(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632));
    m = amax_bf16x2<KEEP>(m, __shfl_xor_sync(FULL, m, 1));
    m = amax_bf16x2<KEEP>(m, __shfl_xor_sync(FULL, m, 2));
    return m & 0x7fff7fffu;
}

template <bool FP4, i32 STEPS, bool ONE_TOKEN>
INLINE void indexer_q(const IndexerQParams& p) {
    begin();
    const u32 lane = threadIdx.x & 31, group = lane >> 3, j = lane & 7;
    const u32 warp = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    const u32 first = warp * (4 * STEPS) + group;
    uint4 low[STEPS], high[STEPS];
    float weight[STEPS];
    Turn turn[ONE_TOKEN ? 1 : STEPS];
#pragma unroll
    for (i32 i = 0; i < STEPS; i++) {
        const u32 row = first + 4 * i;
        low[i] = high[i] = make_uint4(0, 0, 0, 0);
        if (row >= p.rows) continue;
        low[i] = load16(p.q + (u64)row * 256 + 16 * j);
        high[i] = load16(p.q + (u64)row * 256 + 128 + 16 * j);
        if (j == 0) {
            weight[i] = p.weights_are_bf16
                ? __uint_as_float((u32)((const u16*)p.weights)[row] << 16)
                : ((const float*)p.weights)[row];
        }
    }
#pragma unroll
    for (i32 i = 0; i < (ONE_TOKEN ? 1 : STEPS); i++) {
        const u32 row = first + 4 * i;
        if (row < p.rows) turn[i] = index_turn(p, p.positions[row / p.heads], 4 * j);
    }
#pragma unroll
    for (i32 i = 0; i < STEPS; i++) {
        const u32 row = first + 4 * i;
        const bool real = row < p.rows;
        float x[8];
        if (real) {
            unpack8(high[i], x);
            rotate8(x, turn[ONE_TOKEN ? 0 : i]);
            high[i] = pack8(x);
        }
        if (FP4) {
            u32 m = block_amax<true>(low[i], high[i]);
            // Infinities and NaN go the longer way, with the whole warp.
            const bool finite = (m & 0xffffu) < 0x7f80u && m < 0x7f800000u;
            const bool all_finite = __all_sync(FULL, finite);
            if (!all_finite) m = block_amax<false>(low[i], high[i]);
            const u32 byte_low = mxfp4_scale(low_bf16(m)), byte_high = mxfp4_scale(high_bf16(m));
            u32 scales = byte_low | byte_high << 16;
            scales |= __shfl_down_sync(FULL, scales, 4) << 8;
            if (!real) continue;
            u8* values = p.values + (u64)row * 64 + 4 * j;
            float y[8];
            unpack8(low[i], x);
            unpack8(high[i], y);
            u32 codes_low, codes_high;
            if (all_finite) {
                codes_low = finite_e2m1x8(x, finite_mxfp4_to_f16_scale(byte_low));
                codes_high = finite_e2m1x8(y, finite_mxfp4_to_f16_scale(byte_high));
            } else {
                codes_low = e2m1x8(x, mxfp4_to_f16_scale(byte_low));
                codes_high = e2m1x8(y, mxfp4_to_f16_scale(byte_high));
            }
            *(u32*)values = codes_low;
            *(u32*)(values + 32) = codes_high;
            if (j == 0) {
                *(u32*)(p.scales + (u64)row * 4) = scales;
                p.weights_out[row] = __fmul_rn(__fmul_rn(weight[i], p.softmax_scale), p.head_scale);
            }
        } else {
            u32 m = amax_bf16x2<false>(amax_bf16x2<false>(low[i]), amax_bf16x2<false>(high[i]));
            m = amax_bf16x2<false>(m, __shfl_xor_sync(FULL, m, 1));
            m = amax_bf16x2<false>(m, __shfl_xor_sync(FULL, m, 2));
            m = amax_bf16x2<false>(m, __shfl_xor_sync(FULL, m, 4)) & 0x7fff7fffu;
            const u32 byte = e4m3_scale(fmaxf(low_bf16(m), high_bf16(m)));
            const float inverse = e4m3_inverse(byte);
            if (!real) continue;
            u8* values = p.values + (u64)row * 128 + 8 * j;
            unpack8(high[i], x);
            store8(values + 64,
                   e4m3x4(x[0] * inverse, x[1] * inverse, x[2] * inverse, x[3] * inverse),
                   e4m3x4(x[4] * inverse, x[5] * inverse, x[6] * inverse, x[7] * inverse));
            unpack8(low[i], x);
            store8(values,
                   e4m3x4(x[0] * inverse, x[1] * inverse, x[2] * inverse, x[3] * inverse),
                   e4m3x4(x[4] * inverse, x[5] * inverse, x[6] * inverse, x[7] * inverse));
            if (j == 0) {
                const float scale = __uint_as_float(byte << 23);
                p.weights_out[row] = __fmul_rn(
                    __fmul_rn(__fmul_rn(weight[i], scale), p.softmax_scale), p.head_scale);
            }
        }
    }
}

#define INDEXER_Q(name, fp4, steps, one_token)                                       \
    extern "C" __global__ void __launch_bounds__(256) name(const IndexerQParams p) { \
        indexer_q<fp4, steps, one_token>(p);                                         \
    }

INDEXER_Q(indexer_q_fp8_any, false, 1, false)
INDEXER_Q(indexer_q_fp8_2, false, 2, true)
INDEXER_Q(indexer_q_fp8_4, false, 4, true)
INDEXER_Q(indexer_q_mxfp4_any, true, 1, false)
INDEXER_Q(indexer_q_mxfp4_2, true, 2, true)
INDEXER_Q(indexer_q_mxfp4_4, true, 4, true)
