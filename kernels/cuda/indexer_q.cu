// RoPE and quantisation of the indexer's queries.
//
// Half a warp takes a row of 128: eight elements, 16 bytes, a lane; lanes 8..15 of the half hold
// the rotated dims. A warp takes 2 * ROWS rows and issues all their loads first.

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

template <bool FP4, i32 ROWS>
INLINE void indexer_q(const IndexerQParams& p) {
    begin();
    const u32 lane = threadIdx.x & 31, half = lane >> 4, at = lane & 15;
    const u32 warp = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    const u32 first = warp * (2 * ROWS) + half;
    uint4 raw[ROWS];
    float weight[ROWS];
    Turn turn[ROWS];
#pragma unroll
    for (i32 i = 0; i < ROWS; i++) {
        const u32 row = first + 2 * i;
        if (row >= p.rows) {
            raw[i] = make_uint4(0, 0, 0, 0);
            continue;
        }
        raw[i] = load16(p.q + (u64)row * 256 + 16 * at);
        if (at >= 8) turn[i] = index_turn(p, p.positions[row / p.heads], 4 * (at - 8));
        if (at == 0) {
            weight[i] = p.weights_are_bf16
                ? __uint_as_float((u32)((const u16*)p.weights)[row] << 16)
                : ((const float*)p.weights)[row];
        }
    }
#pragma unroll
    for (i32 i = 0; i < ROWS; i++) {
        const u32 row = first + 2 * i;
        float x[8];
        unpack8(raw[i], x);
        if (at >= 8 && row < p.rows) {
            rotate8(x, turn[i]);
            unpack8(pack8(x), x);
        }
        float amax = 0.0f;
#pragma unroll
        for (i32 k = 0; k < 8; k++) amax = fmaxf(amax, fabsf(x[k]));
#pragma unroll
        for (i32 step = FP4 ? 2 : 8; step > 0; step >>= 1)
            amax = fmaxf(amax, __shfl_xor_sync(FULL, amax, step));
        if (FP4) {
            const u32 byte = mxfp4_scale(amax);
            const u32 codes = e2m1x8(x, mxfp4_to_f16_scale(byte));
            // Lanes 0, 4, 8 and 12 of the half hold the four scales.
            u32 word = byte << (at >> 2 << 3);
            word |= __shfl_xor_sync(FULL, word, 4);
            word |= __shfl_xor_sync(FULL, word, 8);
            if (row >= p.rows) continue;
            *(u32*)(p.values + (u64)row * 64 + 4 * at) = codes;
            if (at == 0) {
                *(u32*)(p.scales + (u64)row * 4) = word;
                p.weights_out[row] = __fmul_rn(__fmul_rn(weight[i], p.softmax_scale), p.head_scale);
            }
        } else {
            const u32 byte = e4m3_scale(amax);
            const float inverse = e4m3_inverse(byte);
            if (row >= p.rows) continue;
            store8(p.values + (u64)row * 128 + 8 * at,
                   e4m3x4(x[0] * inverse, x[1] * inverse, x[2] * inverse, x[3] * inverse),
                   e4m3x4(x[4] * inverse, x[5] * inverse, x[6] * inverse, x[7] * inverse));
            if (at == 0) {
                const float scale = __uint_as_float(byte << 23);
                p.weights_out[row] = __fmul_rn(
                    __fmul_rn(__fmul_rn(weight[i], scale), p.softmax_scale), p.head_scale);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) indexer_q_fp8_1(const IndexerQParams p) {
    indexer_q<false, 1>(p);
}
extern "C" __global__ void __launch_bounds__(256) indexer_q_fp8_4(const IndexerQParams p) {
    indexer_q<false, 4>(p);
}
extern "C" __global__ void __launch_bounds__(256) indexer_q_mxfp4_1(const IndexerQParams p) {
    indexer_q<true, 1>(p);
}
extern "C" __global__ void __launch_bounds__(256) indexer_q_mxfp4_4(const IndexerQParams p) {
    indexer_q<true, 4>(p);
}
