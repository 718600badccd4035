// Query norm, RoPE and KV insertion.
//
// A warp takes one unit: HEADS query rows of a token, or its KV row. A row of 512 is two loads of 16
// bytes a lane: chunk `lane` (dims 8 lane..) and chunk `32 + lane`, so the last 64 dims are the
// second chunks of lanes 24..31. All loads of a unit are issued before the first use.

struct QInsertParams {
    const u8* q_in;
    u8* q_out;
    const u8* kv;
    const float* kv_norm;  // null where rows were normed before
    const i64* positions;
    const i64* slots;
    const float* rope;
    u8* cache;
    u64 stride;
    u32 tokens, heads, padded_heads, inserted, max_pos, blocks, block_size, norm;
    float eps, q_inverse, kv_inverse;
    u32 units;  // of a token, the KV row's included
};

enum QForm { Q_BF16, Q_FP8 };
enum CacheForm { CACHE_PAGED, CACHE_ROWS, CACHE_FP8 };

INLINE void store_fp8_row(u8* row, u32 lane, const float* low, const float* high, float inverse) {
    store8(row + 8 * lane,
           e4m3x4(low[0] * inverse, low[1] * inverse, low[2] * inverse, low[3] * inverse),
           e4m3x4(low[4] * inverse, low[5] * inverse, low[6] * inverse, low[7] * inverse));
    store8(row + 256 + 8 * lane,
           e4m3x4(high[0] * inverse, high[1] * inverse, high[2] * inverse, high[3] * inverse),
           e4m3x4(high[4] * inverse, high[5] * inverse, high[6] * inverse, high[7] * inverse));
}

// 1 / rms of a row whose chunks a lane holds.
INLINE float row_inverse_rms(const float* low, const float* high, float eps) {
    float sum = 0.0f;
#pragma unroll
    for (i32 i = 0; i < 8; i++) sum = __fmaf_rn(low[i], low[i], sum);
#pragma unroll
    for (i32 i = 0; i < 8; i++) sum = __fmaf_rn(high[i], high[i], sum);
    return inverse_rms(warp_sum(sum), 1.0f / 512.0f, eps);
}

// Eight elements times 1 / rms and their weights, rounded to bf16.
INLINE void weigh8(float* x, float r, const float* weights) {
    const float4 first = *(const float4*)weights, second = *(const float4*)(weights + 4);
    const float w[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
    for (i32 i = 0; i < 8; i++) x[i] = __fmul_rn(__fmul_rn(x[i], r), w[i]);
    unpack8(pack8(x), x);
}

template <i32 Q, i32 HEADS>
INLINE void query_unit(const QInsertParams& p, u32 token, u32 first_head, u32 lane) {
    constexpr u32 OUT_ROW = Q == Q_BF16 ? 1024 : 512;
    const u8* from = p.q_in + ((u64)token * p.heads + first_head) * 1024;
    u8* to = p.q_out + ((u64)token * p.padded_heads + first_head) * OUT_ROW;
    uint4 low[HEADS], high[HEADS];
#pragma unroll
    for (i32 h = 0; h < HEADS; h++) {
        if (first_head + h < p.heads) {
            low[h] = load16(from + h * 1024 + 16 * lane);
            high[h] = load16(from + h * 1024 + 512 + 16 * lane);
        } else {
            low[h] = high[h] = make_uint4(0, 0, 0, 0);
        }
    }
    Turn turn;
    if (lane >= 24) turn = turn_at(p.rope, p.max_pos, p.positions[token], 4 * (lane - 24));
#pragma unroll
    for (i32 h = 0; h < HEADS; h++) {
        const u32 head = first_head + h;
        if (head >= p.padded_heads) break;
        float a[8], b[8];
        unpack8(low[h], a);
        unpack8(high[h], b);
        if (p.norm) {
            const float r = row_inverse_rms(a, b, p.eps);
#pragma unroll
            for (i32 i = 0; i < 8; i++) {
                a[i] = __fmul_rn(a[i], r);
                b[i] = __fmul_rn(b[i], r);
            }
        }
        if (lane >= 24) rotate8(b, turn);
        if (Q == Q_BF16) {
            uint4 first = pack8(a), second = pack8(b);
            // A padding head is +0 whatever the rotation made of it.
            if (head >= p.heads) first = second = make_uint4(0, 0, 0, 0);
            store16(to + h * OUT_ROW + 16 * lane, first);
            store16(to + h * OUT_ROW + 512 + 16 * lane, second);
        } else {
            if (head >= p.heads) {
#pragma unroll
                for (i32 i = 0; i < 8; i++) a[i] = b[i] = 0.0f;
            }
            store_fp8_row(to + h * OUT_ROW, lane, a, b, p.q_inverse);
        }
    }
}

template <i32 CACHE>
INLINE void kv_unit(const QInsertParams& p, u32 token, u32 lane) {
    if (token >= p.inserted) return;
    const i64 slot = p.slots[token];
    u32 block, entry;
    if (!find_slot(slot, p.block_size, p.blocks, block, entry)) return;
    const u8* from = p.kv + (u64)token * 1024;
    const uint4 low = load16(from + 16 * lane), high = load16(from + 512 + 16 * lane);
    float a[8], b[8];
    unpack8(low, a);
    unpack8(high, b);
    if (p.kv_norm) {
        const float r = row_inverse_rms(a, b, p.eps);
        weigh8(a, r, p.kv_norm + 8 * lane);
        weigh8(b, r, p.kv_norm + 256 + 8 * lane);
    }
    if (lane >= 24) rotate8(b, turn_at(p.rope, p.max_pos, p.positions[token], 4 * (lane - 24)));
    const uint4 first = pack8(a), second = pack8(b);
    if (CACHE == CACHE_ROWS) {
        u8* to = p.cache + (u64)slot * 1024;
        store16(to + 16 * lane, first);
        store16(to + 512 + 16 * lane, second);
        return;
    }
    unpack8(second, b);
    if (CACHE == CACHE_FP8) {
        store_fp8_row(p.cache + (u64)slot * 512, lane, a, b, p.kv_inverse);
    } else {
        store_main(p.cache + block * p.stride, p.block_size, entry, a, b);
    }
}

template <i32 Q, i32 CACHE, i32 HEADS>
INLINE void q_insert(const QInsertParams& p) {
    begin();
    const u32 warps = blockDim.x >> 5, lane = threadIdx.x & 31;
    const u64 unit = (u64)blockIdx.x * warps + (threadIdx.x >> 5);
    u32 token, part;
    if (unit >> 32) {
        token = (u32)(unit / p.units);
        part = (u32)(unit - (u64)token * p.units);
    } else {
        token = (u32)unit / p.units;
        part = (u32)unit - token * p.units;
    }
    if (token >= p.tokens) return;
    if (part + 1 == p.units) {
        kv_unit<CACHE>(p, token, lane);
    } else {
        query_unit<Q, HEADS>(p, token, part * HEADS, lane);
    }
}

#define Q_INSERT(name, q, cache, heads)                                            \
    extern "C" __global__ void __launch_bounds__(256) name(const QInsertParams p) { \
        q_insert<q, cache, heads>(p);                                              \
    }
#define Q_INSERT_CACHES(q, heads, suffix)                                  \
    Q_INSERT(q_insert_paged_##suffix, q, CACHE_PAGED, heads)               \
    Q_INSERT(q_insert_rows_##suffix, q, CACHE_ROWS, heads)                 \
    Q_INSERT(q_insert_fp8_##suffix, q, CACHE_FP8, heads)

Q_INSERT_CACHES(Q_BF16, 1, bf16_1)
Q_INSERT_CACHES(Q_BF16, 2, bf16_2)
Q_INSERT_CACHES(Q_BF16, 4, bf16_4)
Q_INSERT_CACHES(Q_FP8, 1, fp8_1)
Q_INSERT_CACHES(Q_FP8, 4, fp8_4)
Q_INSERT_CACHES(Q_FP8, 2, fp8_2)
