// RoPE and quantisation of the indexer's queries.
//
// Eight lanes take a row of 128, so that rotation keeps all lanes busy: lane j has 16 bytes of dims 8
// j.. and 16 of dims 64 + 8 j... A warp takes four rows and ends: many small warps hide loads better
// than few that hold more. With ONE_TOKEN heads come in fours, so all rows of a warp turn alike.

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
    u32 token_factor, token_shift;
};

// The token of four rows, by a product, since a division would be a tenth of the kernel.
INLINE u32 token_of_quad(const IndexerQParams& p, u32 quad) {
    return (u32)(((u64)quad * p.token_factor) >> p.token_shift);
}

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

// --- E4M3 ---------------------------------------------------------------------------------------

// The codes of a lane's parts of a row, and the row's byte. For a whole warp.
INLINE void row_codes(uint4 low, uint4 high, u32& byte, uint2& codes_low, uint2& codes_high) {
    u32 m = amax_bf16x2<false>(amax_bf16x2<false>(low), amax_bf16x2<false>(high));
    m = amax_bf16x2<false>(m, __shfl_xor_sync(FULL, m, 1));
    m = amax_bf16x2<false>(m, __shfl_xor_sync(FULL, m, 2));
    m = amax_bf16x2<false>(m, __shfl_xor_sync(FULL, m, 4)) & 0x7fff7fffu;
    byte = e4m3_scale(fmaxf(low_bf16(m), high_bf16(m)));
    const float inverse = e4m3_inverse(byte);
    float x[8];
    unpack8(low, x);
    codes_low.x = e4m3x4(x[0] * inverse, x[1] * inverse, x[2] * inverse, x[3] * inverse);
    codes_low.y = e4m3x4(x[4] * inverse, x[5] * inverse, x[6] * inverse, x[7] * inverse);
    unpack8(high, x);
    codes_high.x = e4m3x4(x[0] * inverse, x[1] * inverse, x[2] * inverse, x[3] * inverse);
    codes_high.y = e4m3x4(x[4] * inverse, x[5] * inverse, x[6] * inverse, x[7] * inverse);
}

// --- MXFP4 --------------------------------------------------------------------------------------
//
// Without an instruction for E2M1 the ALU bounds the kernel, so values stay packed as they came, and
// what can be done by the multipliers, integer and bf16, is done there.

// The largest magnitude of a lane's block of 32: of the low dims in the low half of the word, of the
// high dims in the high half, the sign left undefined. A block is four lanes of one half of a row.
template <bool KEEP>
INLINE u32 block_amax(uint4 low, uint4 high) {
    const u32 a = amax_bf16x2<KEEP>(low), b = amax_bf16x2<KEEP>(high);
    u32 m = amax_bf16x2<KEEP>(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632));
    m = amax_bf16x2<KEEP>(m, __shfl_xor_sync(FULL, m, 1));
    return amax_bf16x2<KEEP>(m, __shfl_xor_sync(FULL, m, 2));
}

// Bytes of a lane's two blocks, in bits 0..8 and 16..24, whatever their values are.
INLINE u32 any_block_bytes(uint4 low, uint4 high) {
    const u32 m = block_amax<false>(low, high) & 0x7fff7fffu;
    return mxfp4_scale(low_bf16(m)) | mxfp4_scale(high_bf16(m)) << 16;
}

#ifndef CONVERTS_TO_E2M1
// The power of two in each half's magnitude, `scale` at least, with the half's sign.
INLINE u32 coarse_bf16x2(u32 pair, u32 scale) {
    u32 coarse;
#if __CUDA_ARCH__ >= 860
    asm("max.xorsign.abs.bf16x2 %0, %1, %2;"
        : "=r"(coarse) : "r"(pair & 0xff80ff80u), "r"(scale));
#else
    asm("max.bf16x2 %0, %1, %2;" : "=r"(coarse) : "r"(pair & 0x7f807f80u), "r"(scale));
    coarse |= pair & 0x80008000u;
#endif
    return coarse;
}

// Two E2M1 codes with their signs, in bits 12..16 and 28..32; the other bits are anything. `scale` is
// the block's power of two, in both halves, and brings the pair to 6 at most.
//
// A step of E2M1 is half the power of two in the value, half the scale at least. With that power c,
// which coarse_bf16x2 gives, a step is the last place of 96 c + x in bf16, so one addition rounds as
// E2M1 does, and the sum's bits are those of 96 * scale, plus 128 k + n for n steps and
// c = 2^k * scale. The code is n + 2 k: what 65 times as much has in bits 6..9. The product by 64 more
// brings it below the pair's sign, and nothing beside a code, the sum's sign included, runs into one.
INLINE u32 e2m1x2_at_12(u32 pair, u32 scale, u32 minus) {
    u32 sum, codes;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(sum) : "r"(coarse_bf16x2(pair, scale)), "r"(0x42c042c0u), "r"(pair));
    // One operation for both masks: the codes' bits of the product, the others of the pair.
    asm("lop3.b32 %0, %1, %2, %3, 0xca;"
        : "=r"(codes) : "r"(0x70007000u), "r"(sum * 4160u - minus), "r"(pair));
    return codes;
}

// Codes 0 and 1 in byte 1, 2 and 3 in byte 3.
INLINE u32 joined_e2m1x4(u32 a, u32 b) { return (__byte_perm(a, b, 0x7531) & 0xf0f0f0f0u) * 17u; }

// Eight codes, the first in the lowest bits.
INLINE u32 packed_e2m1x8(uint4 v, u32 scale) {
    const u32 minus = (scale + 0x03400340u) * 4160u;  // of 96 * scale
    const u32 a = joined_e2m1x4(e2m1x2_at_12(v.x, scale, minus), e2m1x2_at_12(v.y, scale, minus));
    const u32 b = joined_e2m1x4(e2m1x2_at_12(v.z, scale, minus), e2m1x2_at_12(v.w, scale, minus));
    return __byte_perm(a, b, 0x7531);
}

// Values over their block's scale: infinities become 6 with their sign, and NaN 6. What bf16 cannot
// hold of a quotient is below the first step.
INLINE uint4 clamped_quotients(uint4 v, u32 byte) {
    const float inverse = mxfp4_inverse(byte);
    float x[8];
    unpack8(v, x);
#pragma unroll
    for (i32 i = 0; i < 8; i++) {
        const float y = __fmul_rn(x[i], inverse);  // a NaN has no sign here
        const u32 sign = __float_as_uint(y) & 0x80000000u;
        x[i] = __uint_as_float(__float_as_uint(fminf(fabsf(y), 6.0f)) | sign);
    }
    return pack8(x);
}
#endif

// The codes of a lane's two blocks, and their bytes as any_block_bytes has them. For a whole warp.
INLINE void block_codes(uint4 low, uint4 high, u32& bytes, u32& codes_low, u32& codes_high) {
#ifdef CONVERTS_TO_E2M1
    bytes = any_block_bytes(low, high);
    float x[8];
    float inverse = mxfp4_inverse(bytes & 0xffu);
    unpack8(low, x);
    codes_low = __byte_perm(e2m1x4(x[0], x[1], x[2], x[3], inverse),
                            e2m1x4(x[4], x[5], x[6], x[7], inverse), 0x5410);
    inverse = mxfp4_inverse(bytes >> 16);
    unpack8(high, x);
    codes_high = __byte_perm(e2m1x4(x[0], x[1], x[2], x[3], inverse),
                             e2m1x4(x[4], x[5], x[6], x[7], inverse), 0x5410);
#else
    // In bf16 the byte is the exponent, less 2 and, where the mantissa is above that of 6, one more:
    // the carry of 63. At least 6 * 2^-126, whose byte is 1.
    const u32 m = amax_bf16x2<true>(block_amax<true>(low, high), 0x01c001c0u) & 0x7fff7fffu;
    u32 scales = ((m + 0x003f003fu) & 0x7f807f80u) - 0x01000100u;
    bytes = scales >> 7;
    // Beyond byte 246, where sums would overflow, and with what is not finite, the whole warp goes the
    // longer way.
    const bool ordinary = ((m + 0x003f003fu + 0x03800380u) & 0x80008000u) == 0;
    if (!__all_sync(FULL, ordinary)) {
        bytes = any_block_bytes(low, high);
        low = clamped_quotients(low, bytes & 0xffu);
        high = clamped_quotients(high, bytes >> 16);
        scales = 0x3f803f80u;
    }
    codes_low = packed_e2m1x8(low, __byte_perm(scales, 0, 0x1010));
    codes_high = packed_e2m1x8(high, __byte_perm(scales, 0, 0x3232));
#endif
}

// --- kernels ------------------------------------------------------------------------------------

template <bool FP4, bool ONE_TOKEN>
INLINE void indexer_q(const IndexerQParams& p) {
    begin();
    const u32 lane = threadIdx.x & 31, j = lane & 7;
    const u32 warp = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (4 * warp >= p.rows) return;
    // A warp's rows past the end are the last one once more, and not stored.
    const u32 own = 4 * warp + (lane >> 3);
    const bool real = ONE_TOKEN || own < p.rows;
    const u32 row = real ? own : p.rows - 1;
    // First, since the cosines wait for it.
    const u32 token = ONE_TOKEN ? token_of_quad(p, warp) : row / p.heads;
    const i64 position = p.positions[token];
    const uint4 low = load16(p.q + (u64)row * 256 + 16 * j);
    uint4 high = load16(p.q + (u64)row * 256 + 128 + 16 * j);
    // Widened at the end, so that nothing waits for it before.
    u32 weight_bits = 0;
    if (j == 0) {
        weight_bits = p.weights_are_bf16 ? ((const u16*)p.weights)[row] : ((const u32*)p.weights)[row];
    }
    const Turn turn = index_turn(p, position, 4 * j);
    float x[8];
    unpack8(high, x);
    rotate8(x, turn);
    high = pack8(x);

    float scale = 1.0f;
    if (FP4) {
        u32 bytes, codes_low, codes_high;
        block_codes(low, high, bytes, codes_low, codes_high);
        const u32 scales = bytes | __shfl_down_sync(FULL, bytes, 4) << 8;
        if (!real) return;
        u8* values = p.values + (u64)row * 64 + 4 * j;
        *(u32*)values = codes_low;
        *(u32*)(values + 32) = codes_high;
        if (j == 0) *(u32*)(p.scales + (u64)row * 4) = scales;
    } else {
        u32 byte;
        uint2 codes_low, codes_high;
        row_codes(low, high, byte, codes_low, codes_high);
        if (!real) return;
        u8* values = p.values + (u64)row * 128 + 8 * j;
        store8(values, codes_low.x, codes_low.y);
        store8(values + 64, codes_high.x, codes_high.y);
        scale = __uint_as_float(byte << 23);
    }
    if (j == 0) {
        float weight = __uint_as_float(p.weights_are_bf16 ? weight_bits << 16 : weight_bits);
        if (!FP4) weight = __fmul_rn(weight, scale);
        p.weights_out[row] = __fmul_rn(__fmul_rn(weight, p.softmax_scale), p.head_scale);
    }
}

#define INDEXER_Q(name, fp4, one_token)                                              \
    extern "C" __global__ void __launch_bounds__(128) name(const IndexerQParams p) { \
        indexer_q<fp4, one_token>(p);                                                \
    }

INDEXER_Q(indexer_q_fp8_any, false, false)
INDEXER_Q(indexer_q_fp8_4, false, true)
INDEXER_Q(indexer_q_mxfp4_any, true, false)
INDEXER_Q(indexer_q_mxfp4_4, true, true)
