// Sparse attention with a sink, on tensor cores.
//
// A block takes 64 heads of a token. Chosen entries are gathered 64 at a time into shared memory as
// bf16 rows of 512, which are keys and values at once.
//
//   scores   warp w: heads 16 (w mod 4).., entries 32 (w / 4)..     Q K^T, 512 deep
//   softmax  online, in base 2; maxima of both halves of entries meet in shared memory
//   output   warp w: all 64 heads, dims 64 w..                     P V, 64 deep, in registers

struct Source {
    const u8* entries;
    const i32* indices;
    const i32* lens;
    u64 stride;
    u32 blocks, block_size, width, paged;
};

struct AttentionParams {
    const u8* q;
    const float* sinks;
    u8* out;
    Source sources[2];
    u32 tokens, heads;
    float scale_log2;
    u32 unused;
};

constexpr i32 KEYS = 64;
constexpr i32 ROW = 520;       // elements; 16 bytes more than a row, so that rows start in other banks
constexpr i32 P_ROW = KEYS + 8;
constexpr i32 Q_BYTES = 64 * ROW * 2;
constexpr i32 K_BYTES = KEYS * ROW * 2;
constexpr i32 P_BYTES = 64 * P_ROW * 2;

INLINE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

INLINE void load_matrices(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

INLINE void load_matrices_transposed(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

INLINE void multiply_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

INLINE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#if __CUDA_ARCH__ < 890
INLINE float e4m3_value(u32 code) {
    // As an f32 the bits are 2^-120 of the value, subnormals included.
    const float x = __uint_as_float((code & 0x7f) << 20) * __uint_as_float(0x7b800000u);
    const float magnitude = (code & 0x7f) == 0x7f ? NOT_A_NUMBER : x;
    return code & 0x80 ? -magnitude : magnitude;
}
#endif

// Four codes times a scale, rounded to bf16.
INLINE uint2 dequantise4(u32 codes, float scale) {
    float x[4];
#if __CUDA_ARCH__ >= 890
    u32 low, high;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(low) : "h"((u16)codes));
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(high) : "h"((u16)(codes >> 16)));
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}" : "=f"(x[0]), "=f"(x[1]) : "r"(low));
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}" : "=f"(x[2]), "=f"(x[3]) : "r"(high));
#else
#pragma unroll
    for (i32 i = 0; i < 4; i++) x[i] = e4m3_value(codes >> (8 * i) & 0xff);
#endif
    return make_uint2(pack_bf16(x[0] * scale, x[1] * scale), pack_bf16(x[2] * scale, x[3] * scale));
}

INLINE float scale_value(u32 byte) {
    return byte == 255 ? NOT_A_NUMBER : byte == 0 ? __uint_as_float(0x400000u) : __uint_as_float(byte << 23);
}

// Where entry `at` of a token is: null where it contributes nothing.
INLINE const u8* find_entry(const Source& s, u32 token, u32 at, const u8*& scales) {
    const i32 index = s.indices[(u64)token * s.width + at];
    u32 block, entry;
    if (!find_slot(index, s.block_size, s.blocks, block, entry)) return nullptr;
    const u8* base = s.entries + block * s.stride;
    if (!s.paged) return base;
    scales = base + (u64)s.block_size * 576 + (u64)entry * 8;
    return base + (u64)entry * 576;
}

extern "C" __global__ void __launch_bounds__(256, 1) attention(const AttentionParams p) {
    begin();
    extern __shared__ __align__(16) u8 shared[];
    u16* q_rows = (u16*)shared;
    u16* k_rows = (u16*)(shared + Q_BYTES);
    u16* p_rows = (u16*)(shared + Q_BYTES + K_BYTES);
    float* maxima = (float*)(shared + Q_BYTES + K_BYTES + P_BYTES);  // [2][64]
    float* factors = maxima + 128;                                  // [64]
    float* totals = factors + 64;                                   // [2][64]
    u32* found = (u32*)(totals + 128);                              // [64], 1 where an entry is

    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 g = lane >> 2, c = lane & 3;
    const u32 token = blockIdx.x, first_head = 64 * blockIdx.y;
    const u8* q = p.q + ((u64)token * p.heads + first_head) * 1024;

    for (u32 at = threadIdx.x; at < 64 * 64; at += 256) {
        const u32 head = at >> 6, chunk = at & 63;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (first_head + head < p.heads) v = load16(q + head * 1024 + chunk * 16);
        *(uint4*)(q_rows + head * ROW + chunk * 8) = v;
    }

    u32 len[2];
#pragma unroll
    for (i32 s = 0; s < 2; s++) {
        len[s] = 0;
        if (p.sources[s].width) {
            const i32 asked = p.sources[s].lens[token];
            len[s] = asked < 0 ? 0 : min((u32)asked, p.sources[s].width);
        }
    }
    const u32 entries = len[0] + len[1];

    float out[4][8][4];
#pragma unroll
    for (i32 m = 0; m < 4; m++)
#pragma unroll
        for (i32 n = 0; n < 8; n++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) out[m][n][i] = 0.0f;
    const u32 score_m = warp & 3, half = warp >> 2;
    float most[2] = {NEG_INF, NEG_INF}, total[2] = {0.0f, 0.0f};

    for (u32 first = 0; first < entries; first += KEYS) {
        __syncthreads();
        // Gather: a warp takes eight rows, whose places its lanes find together; then the loads of
        // four rows at a time are issued before the first is used.
        const u8* place = nullptr;
        const u8* place_scales = nullptr;
        u32 place_paged = 0;
        if (lane < 8) {
            const u32 row = 8 * warp + lane, at = first + row;
            if (at < entries) {
                const bool second = at >= len[0];
                const Source& s = p.sources[second];
                place_paged = s.paged;
                place = find_entry(s, token, second ? at - len[0] : at, place_scales);
            }
            found[row] = place != nullptr;
        }
#pragma unroll
        for (i32 batch = 0; batch < 8; batch += 4) {
            const u8* data[4];
            bool paged[4];
            uint4 low[4], high[4];
            u64 scale[4];
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                data[i] = (const u8*)__shfl_sync(FULL, (u64)place, batch + i);
                const u8* scales = (const u8*)__shfl_sync(FULL, (u64)place_scales, batch + i);
                paged[i] = __shfl_sync(FULL, place_paged, batch + i);
                low[i] = high[i] = make_uint4(0, 0, 0, 0);
                scale[i] = 0;
                if (data[i] && paged[i]) {
                    const uint2 a = *(const uint2*)(data[i] + 8 * lane);
                    low[i].x = a.x;
                    low[i].y = a.y;
                    scale[i] = *(const u64*)scales;
                    // Lanes 24.. have 16 bytes of bf16 where the others have 8 codes.
                    const u8* from = data[i] + (lane < 24 ? 256 + 8 * lane : 448 + 16 * (lane - 24));
                    const uint2 b = *(const uint2*)from;
                    high[i].x = b.x;
                    high[i].y = b.y;
                    if (lane >= 24) {
                        const uint2 c = *(const uint2*)(from + 8);
                        high[i].z = c.x;
                        high[i].w = c.y;
                    }
                } else if (data[i]) {
                    low[i] = *(const uint4*)(data[i] + 16 * lane);
                    high[i] = *(const uint4*)(data[i] + 512 + 16 * lane);
                }
            }
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                if (data[i] && paged[i]) {
                    const float s = scale_value((u32)(scale[i] >> (lane >> 3 << 3)) & 255);
                    const uint2 a = dequantise4(low[i].x, s), b = dequantise4(low[i].y, s);
                    low[i] = make_uint4(a.x, a.y, b.x, b.y);
                    if (lane < 24) {
                        const float t = scale_value((u32)(scale[i] >> (32 + (lane >> 3 << 3))) & 255);
                        const uint2 c = dequantise4(high[i].x, t), d = dequantise4(high[i].y, t);
                        high[i] = make_uint4(c.x, c.y, d.x, d.y);
                    }
                }
                u16* to = k_rows + (8 * warp + batch + i) * ROW;
                *(uint4*)(to + 8 * lane) = low[i];
                *(uint4*)(to + 256 + 8 * lane) = high[i];
            }
        }
        __syncthreads();

        // Scores: heads 16 score_m + g (+ 8), entries 32 half + 8 n + 2 c (+ 1).
        float score[4][4];
#pragma unroll
        for (i32 n = 0; n < 4; n++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) score[n][i] = 0.0f;
        const u32 a_at = shared_address(q_rows + (16 * score_m + (lane & 15)) * ROW + (lane >> 4) * 8);
        const u32 b_row = 32 * half + (lane >> 4) * 8 + (lane & 7);
        const u32 b_at = shared_address(k_rows + b_row * ROW + ((lane >> 3) & 1) * 8);
#pragma unroll 8
        for (i32 k = 0; k < 32; k++) {
            u32 a[4], b[4], d[4];
            load_matrices(a, a_at + 32 * k);
            load_matrices(b, b_at + 32 * k);
            load_matrices(d, b_at + 16 * ROW * 2 + 32 * k);
            multiply_bf16(score[0], a, b[0], b[1]);
            multiply_bf16(score[1], a, b[2], b[3]);
            multiply_bf16(score[2], a, d[0], d[1]);
            multiply_bf16(score[3], a, d[2], d[3]);
        }
        float m[2] = {NEG_INF, NEG_INF};
#pragma unroll
        for (i32 n = 0; n < 4; n++) {
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                const bool there = found[32 * half + 8 * n + 2 * c + (i & 1)] != 0;
                score[n][i] = there ? score[n][i] * p.scale_log2 : NEG_INF;
                m[i >> 1] = fmaxf(m[i >> 1], score[n][i]);
            }
        }
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            m[i] = fmaxf(m[i], __shfl_xor_sync(FULL, m[i], 1));
            m[i] = fmaxf(m[i], __shfl_xor_sync(FULL, m[i], 2));
            if (c == 0) maxima[64 * half + 16 * score_m + 8 * i + g] = m[i];
        }
        __syncthreads();
        float zero[2];
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const u32 head = 16 * score_m + 8 * i + g;
            const float now = fmaxf(most[i], fmaxf(maxima[head], maxima[64 + head]));
            zero[i] = now == NEG_INF ? 0.0f : now;
            const float factor = exp2_fast(most[i] - zero[i]);
            if (half == 0 && c == 0) factors[head] = factor;
            total[i] *= factor;
            most[i] = now;
        }
#pragma unroll
        for (i32 n = 0; n < 4; n++) {
            float w[4];
#pragma unroll
            for (i32 i = 0; i < 4; i++) w[i] = exp2_fast(score[n][i] - zero[i >> 1]);
            total[0] += w[0] + w[1];
            total[1] += w[2] + w[3];
            u16* to = p_rows + (16 * score_m + g) * P_ROW + 32 * half + 8 * n + 2 * c;
            *(u32*)to = pack_bf16(w[0], w[1]);
            *(u32*)(to + 8 * P_ROW) = pack_bf16(w[2], w[3]);
        }
        __syncthreads();

        // Output: rescale, then add this tile's weighted entries.
#pragma unroll
        for (i32 t = 0; t < 4; t++) {
            const float f0 = factors[16 * t + g], f1 = factors[16 * t + 8 + g];
#pragma unroll
            for (i32 n = 0; n < 8; n++) {
                out[t][n][0] *= f0;
                out[t][n][1] *= f0;
                out[t][n][2] *= f1;
                out[t][n][3] *= f1;
            }
        }
        const u32 p_at = shared_address(p_rows + (lane & 15) * P_ROW + (lane >> 4) * 8);
        const u32 v_at = shared_address(k_rows + (lane & 15) * ROW + 64 * warp + (lane >> 4) * 8);
#pragma unroll
        for (i32 k = 0; k < 4; k++) {
            u32 a[4][4];
#pragma unroll
            for (i32 t = 0; t < 4; t++) load_matrices(a[t], p_at + (16 * t * P_ROW + 16 * k) * 2);
#pragma unroll
            for (i32 n = 0; n < 4; n++) {
                u32 b[4];
                load_matrices_transposed(b, v_at + (16 * k * ROW + 16 * n) * 2);
#pragma unroll
                for (i32 t = 0; t < 4; t++) {
                    multiply_bf16(out[t][2 * n], a[t], b[0], b[1]);
                    multiply_bf16(out[t][2 * n + 1], a[t], b[2], b[3]);
                }
            }
        }
    }

    // The weights' sum, with the sink's.
    __syncthreads();
#pragma unroll
    for (i32 i = 0; i < 2; i++) {
        total[i] += __shfl_xor_sync(FULL, total[i], 1);
        total[i] += __shfl_xor_sync(FULL, total[i], 2);
        const u32 head = 16 * score_m + 8 * i + g;
        if (c == 0) {
            totals[64 * half + head] = total[i];
            if (half == 0) maxima[head] = most[i];
        }
    }
    __syncthreads();
    u8* to = p.out + ((u64)token * p.heads + first_head) * 1024;
#pragma unroll
    for (i32 t = 0; t < 4; t++) {
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const u32 head = 16 * t + 8 * i + g;
            if (first_head + head >= p.heads) continue;
            const float top = maxima[head];
            const float sum = totals[head] + totals[64 + head];
            float inverse = 0.0f;
            if (top > NEG_INF || top != top) {
                const float sink = p.sinks[first_head + head] * 1.44269504088896340736f;
                inverse = 1.0f / (sum + exp2f(sink - top));
            }
#pragma unroll
            for (i32 n = 0; n < 8; n++) {
                const float a = out[t][n][2 * i] * inverse, b = out[t][n][2 * i + 1] * inverse;
                *(u32*)(to + head * 1024 + (64 * warp + 8 * n + 2 * c) * 2) = pack_bf16(a, b);
            }
        }
    }
}
