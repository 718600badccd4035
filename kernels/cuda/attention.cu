// Sparse attention with a sink, on tensor cores.
//
// A block takes 64 heads of a token, and a tile of KEYS chosen entries at a time. A warp copies its
// share of a tile's entries to a stage in shared memory while the tile before is multiplied, and
// then makes bf16 rows of 512 of them, which are keys and values at once.
//
//   scores   warp w: heads 16 (w mod 4).., entries KEYS/2 (w / 4)..     Q K^T, 512 deep
//   softmax  online, in base 2; maxima of both halves of entries meet in shared memory
//   output   warp w: all 64 heads, dims 64 w..                         P V, KEYS deep, in registers

struct SourceParams {
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
    SourceParams sources[2];
    u32 tokens, heads;
    float scale_log2;
    u32 unused;
};

#if __CUDA_ARCH__ >= 900
constexpr i32 KEYS = 64;
#else
constexpr i32 KEYS = 32;       // what fits beside the queries in less shared memory
#endif
constexpr i32 ROWS = KEYS / 8;  // of a warp
constexpr i32 STAGE_ROW = 1024; // bytes: a bf16 row, or 576 of data and 8 of scales
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

INLINE void copy8(u32 to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(to), "l"(from) : "memory");
}

INLINE void copy16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}

INLINE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Where an entry is: `data` is null where it contributes nothing.
struct Place {
    const u8* data;
    const u8* scales;  // null for a bf16 row
};

INLINE Place find_entry(const SourceParams& s, i32 index) {
    Place place = {nullptr, nullptr};
    u32 block, entry;
    if (!find_slot(index, s.block_size, s.blocks, block, entry)) return place;
    const u8* base = s.entries + block * s.stride;
    place.data = base;
    if (s.paged) {
        place.data = base + (u64)entry * 576;
        place.scales = base + (u64)s.block_size * 576 + (u64)entry * 8;
    }
    return place;
}

// The chosen entries of a token: first those of one source, then those of the other.
struct Chosen {
    const SourceParams* sources;
    u64 token;
    u32 len[2];

    INLINE u32 count() const { return len[0] + len[1]; }

    INLINE i32 index(u32 at) const {
        if (at >= count()) return -1;
        const bool second = at >= len[0];
        const SourceParams& s = sources[second];
        return s.indices[token * s.width + (second ? at - len[0] : at)];
    }

    INLINE Place place(u32 at, i32 index) const { return find_entry(sources[at >= len[0]], index); }
};

// Starts copying a warp's rows to its stage. Lane i below ROWS knows the place of row i.
INLINE void start_copies(const Place& own, u32 stage) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (i32 i = 0; i < ROWS; i++) {
        const u8* data = (const u8*)__shfl_sync(FULL, (u64)own.data, i);
        const u8* scales = (const u8*)__shfl_sync(FULL, (u64)own.scales, i);
        const u32 to = stage + i * STAGE_ROW;
        if (scales) {
            copy8(to + 8 * lane, data + 8 * lane);
            copy8(to + 256 + 8 * lane, data + 256 + 8 * lane);
            if (lane < 9) copy8(to + 512 + 8 * lane, lane < 8 ? data + 512 + 8 * lane : scales);
        } else if (data) {
            copy16(to + 16 * lane, data + 16 * lane);
            copy16(to + 512 + 16 * lane, data + 512 + 16 * lane);
        }
    }
}

// Makes rows of what was copied.
INLINE void make_rows(const Place& own, const u8* stage, u16* rows) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (i32 i = 0; i < ROWS; i++) {
        const bool there = __shfl_sync(FULL, own.data != nullptr, i);
        const bool paged = __shfl_sync(FULL, own.scales != nullptr, i);
        const u8* from = stage + i * STAGE_ROW;
        uint4 low = make_uint4(0, 0, 0, 0), high = low;
        if (paged) {
            const u64 scales = *(const u64*)(from + 576);
            const uint2 codes = *(const uint2*)(from + 8 * lane);
            const float s = scale_value((u32)(scales >> (lane >> 3 << 3)) & 255);
            const uint2 a = dequantise4(codes.x, s), b = dequantise4(codes.y, s);
            low = make_uint4(a.x, a.y, b.x, b.y);
            if (lane < 24) {
                const uint2 codes = *(const uint2*)(from + 256 + 8 * lane);
                const float s = scale_value((u32)(scales >> (32 + (lane >> 3 << 3))) & 255);
                const uint2 a = dequantise4(codes.x, s), b = dequantise4(codes.y, s);
                high = make_uint4(a.x, a.y, b.x, b.y);
            } else {
                high = *(const uint4*)(from + 448 + 16 * (lane - 24));
            }
        } else if (there) {
            low = *(const uint4*)(from + 16 * lane);
            high = *(const uint4*)(from + 512 + 16 * lane);
        }
        *(uint4*)(rows + i * ROW + 8 * lane) = low;
        *(uint4*)(rows + i * ROW + 256 + 8 * lane) = high;
    }
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
    u8* stages = (u8*)(found + 64);

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

    Chosen chosen = {p.sources, token, {0, 0}};
#pragma unroll
    for (i32 s = 0; s < 2; s++) {
        if (p.sources[s].width) {
            const i32 asked = p.sources[s].lens[token];
            chosen.len[s] = asked < 0 ? 0 : min((u32)asked, p.sources[s].width);
        }
    }
    const u32 entries = chosen.count();

    float out[4][8][4];
#pragma unroll
    for (i32 m = 0; m < 4; m++)
#pragma unroll
        for (i32 n = 0; n < 8; n++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) out[m][n][i] = 0.0f;
    const u32 score_m = warp & 3, half = warp >> 2;
    float most[2] = {NEG_INF, NEG_INF}, total[2] = {0.0f, 0.0f};

    // The rows of this warp in a tile; lanes below ROWS look after one each.
    const u32 own_row = ROWS * warp + (lane & (ROWS - 1));
    const u8* stage = stages + ROWS * warp * STAGE_ROW;
    const u32 stage_at = shared_address(stage);
    Place own = chosen.place(own_row, chosen.index(own_row));
    start_copies(own, stage_at);
    i32 next_index = chosen.index(own_row + KEYS);

    for (u32 first = 0; first < entries; first += KEYS) {
        wait_for_copies();
        // All warps are done with the tile before.
        __syncthreads();
        make_rows(own, stage, k_rows + ROWS * warp * ROW);
        if (lane < ROWS) found[own_row] = own.data != nullptr;
        __syncwarp();
        own = chosen.place(first + KEYS + own_row, next_index);
        start_copies(own, stage_at);
        next_index = chosen.index(first + 2 * KEYS + own_row);
        __syncthreads();

        // Scores: heads 16 score_m + g (+ 8), entries KEYS/2 half + 8 n + 2 c (+ 1).
        constexpr i32 N = KEYS / 16;
        float score[N][4];
#pragma unroll
        for (i32 n = 0; n < N; n++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) score[n][i] = 0.0f;
        const u32 a_at = shared_address(q_rows + (16 * score_m + (lane & 15)) * ROW + (lane >> 4) * 8);
        const u32 b_row = KEYS / 2 * half + (lane >> 4) * 8 + (lane & 7);
        const u32 b_at = shared_address(k_rows + b_row * ROW + ((lane >> 3) & 1) * 8);
#pragma unroll 8
        for (i32 k = 0; k < 32; k++) {
            u32 a[4];
            load_matrices(a, a_at + 32 * k);
#pragma unroll
            for (i32 n = 0; n < N; n += 2) {
                u32 b[4];
                load_matrices(b, b_at + n * 8 * ROW * 2 + 32 * k);
                multiply_bf16(score[n], a, b[0], b[1]);
                multiply_bf16(score[n + 1], a, b[2], b[3]);
            }
        }
        float m[2] = {NEG_INF, NEG_INF};
#pragma unroll
        for (i32 n = 0; n < N; n++) {
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                const bool there = found[KEYS / 2 * half + 8 * n + 2 * c + (i & 1)] != 0;
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
        for (i32 n = 0; n < N; n++) {
            float w[4];
#pragma unroll
            for (i32 i = 0; i < 4; i++) w[i] = exp2_fast(score[n][i] - zero[i >> 1]);
            total[0] += w[0] + w[1];
            total[1] += w[2] + w[3];
            u16* to = p_rows + (16 * score_m + g) * P_ROW + KEYS / 2 * half + 8 * n + 2 * c;
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
        for (i32 k = 0; k < KEYS / 16; k++) {
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
