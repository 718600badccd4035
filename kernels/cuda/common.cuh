// What all kernels share: types, conversions, RoPE, cache layouts.
//
// No header is included, so that NVRTC needs none. Arithmetic that decides discrete results is
// written with rounded intrinsics (__fmul_rn and so on), which the compiler never contracts, in
// the order that the reference documents; everything else may be contracted.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define INLINE __device__ __forceinline__
#define FULL 0xffffffffu
#define NEG_INF __uint_as_float(0xff800000u)
#define NOT_A_NUMBER __uint_as_float(0x7fffffffu)

constexpr i32 HEAD_DIM = 512;
constexpr i32 INDEX_DIM = 128;
constexpr i32 ROPE_DIM = 64;

// First thing in every kernel: where it was launched before the kernel in front of it had ended,
// waits for that one. Does nothing after an ordinary launch.
INLINE void begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Loads and stores of data that is touched once: they do not displace what L1 holds.
INLINE uint4 load16(const void* p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}

INLINE uint2 load8(const void* p) {
    uint2 v;
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
    return v;
}

INLINE void store16(void* p, uint4 v) {
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1,%2,%3,%4};"
                 :: "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

INLINE void store8(void* p, u32 a, u32 b) {
    asm volatile("st.global.L1::no_allocate.v2.u32 [%0], {%1,%2};" :: "l"(p), "r"(a), "r"(b) : "memory");
}

// --- bf16 ---------------------------------------------------------------------------------------

INLINE float low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
INLINE float high_bf16(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

INLINE u32 pack_bf16(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

INLINE void unpack8(uint4 v, float* x) {
    x[0] = low_bf16(v.x); x[1] = high_bf16(v.x);
    x[2] = low_bf16(v.y); x[3] = high_bf16(v.y);
    x[4] = low_bf16(v.z); x[5] = high_bf16(v.z);
    x[6] = low_bf16(v.w); x[7] = high_bf16(v.w);
}

INLINE uint4 pack8(const float* x) {
    return make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                      pack_bf16(x[6], x[7]));
}

// --- E4M3, E2M1, block scales -------------------------------------------------------------------

#if __CUDA_ARCH__ < 890
// To nearest, ties to even, saturating; NaN to 0x7f. At 2^14 the last place of an f32 is 2^-9,
// the step of the subnormals.
INLINE u32 e4m3_soft(float x) {
    float m = fabsf(x);
    u32 bits = __float_as_uint(m);
    u32 code = m < 0.015625f ? __float_as_uint(m + 16384.0f) - 0x46800000u
                             : min(((bits + 0x7ffffu + ((bits >> 20) & 1)) >> 20) - 960u, 0x7eu);
    return x != x ? 0x7fu : code | (__float_as_uint(x) >> 31 << 7);
}
#endif

INLINE u32 e4m3x4(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
    u16 low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return (u32)low | (u32)high << 16;
#else
    return e4m3_soft(a) | e4m3_soft(b) << 8 | e4m3_soft(c) << 16 | e4m3_soft(d) << 24;
#endif
}

#if __CUDA_ARCH__ < 890
INLINE float e4m3_value(u32 code) {
    // As an f32 the bits are 2^-120 of the value, subnormals included.
    const float x = __uint_as_float((code & 0x7f) << 20) * __uint_as_float(0x7b800000u);
    const float magnitude = (code & 0x7f) == 0x7f ? NOT_A_NUMBER : x;
    return code & 0x80 ? -magnitude : magnitude;
}
#endif

// Four E4M3 codes times a scale, rounded to bf16.
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
    return make_uint2(pack_bf16(__fmul_rn(x[0], scale), __fmul_rn(x[1], scale)),
                      pack_bf16(__fmul_rn(x[2], scale), __fmul_rn(x[3], scale)));
}

INLINE float scale_value(u32 byte) {
    return byte == 255 ? NOT_A_NUMBER : byte == 0 ? __uint_as_float(0x400000u) : __uint_as_float(byte << 23);
}

// The byte of ceil(log2(x)) of a positive normal or infinite x.
INLINE u32 ceil_log2_byte(float x) { return (__float_as_uint(x) + 0x7fffffu) >> 23; }

// The E8M0 byte of an E4M3 block.
INLINE u32 e4m3_scale(float amax) {
    return ceil_log2_byte(__fmul_rn(fmaxf(amax, 1e-4f), 1.0f / 448.0f));
}

// The inverse of an E4M3 block's scale; its byte is at most 247, or 255.
INLINE float e4m3_inverse(u32 byte) { return byte == 255 ? 0.0f : __uint_as_float((254 - byte) << 23); }

// The E8M0 byte of an MXFP4 block.
INLINE u32 mxfp4_scale(float amax) {
    const float least = __uint_as_float(0x01400000u);  // 6 * 2^-126
    return min(ceil_log2_byte(__fmul_rn(fmaxf(amax, least), 1.0f / 6.0f)), 254u);
}

// The inverse of an MXFP4 block's scale, 2^(127 - byte).
INLINE float mxfp4_inverse(u32 byte) {
    return byte == 254 ? __uint_as_float(1u << 22) : __uint_as_float((254 - byte) << 23);
}

// Targets that have an instruction for E2M1: from sm_100 on, where the name ends in `a` or `f`.
#if __CUDA_ARCH__ >= 1000 && (defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__))
#define CONVERTS_TO_E2M1
#endif

#ifndef CONVERTS_TO_E2M1
// Two E2M1 codes, in bits 0..4 and 16..20, of values times `scale`, which is 2^-14 over the block's. In
// f16 an E2M1 value times 2^-14 differs from its code by nine more mantissa bits only, normal or not, so
// rounding is integer addition. Exact for bf16 input: what f16 cannot hold is below the first step.
// The minimum takes infinities to 6, and NaN, which it drops.
INLINE u32 e2m1x2(float low, float high, float scale) {
    u32 half2, magnitude;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(half2) : "f"(high * scale), "f"(low * scale));
    asm("min.f16x2 %0, %1, %2;" : "=r"(magnitude) : "r"(half2 & 0x7fff7fffu), "r"(0x0e000e00u));
    const u32 rounded = (magnitude + 0x00ff00ffu + ((magnitude >> 9) & 0x00010001u)) >> 9;
    return (rounded & 0x00070007u) | ((half2 >> 12) & 0x00080008u);
}
#endif

// Four E2M1 codes in the low 16 bits, the first lowest, of values over a scale. To nearest, ties to
// even; infinities become 6 with their sign, and NaN 6.
INLINE u32 e2m1x4(float a, float b, float c, float d, float inverse) {
#ifdef CONVERTS_TO_E2M1
    u32 codes;
    asm("{\n"
        ".reg .b8 low, high;\n"
        "cvt.rn.satfinite.e2m1x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e2m1x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high, low, high};\n"
        "}"
        : "=r"(codes) : "f"(a * inverse), "f"(b * inverse), "f"(c * inverse), "f"(d * inverse));
    return codes;
#else
    const float scale = inverse * (1.0f / 16384.0f);
    const u32 both = e2m1x2(a, b, scale) | e2m1x2(c, d, scale) << 8;
    return both | both >> 12;
#endif
}

// The larger magnitude of each half, the sign left undefined. With KEEP a NaN is kept, else dropped.
template <bool KEEP>
INLINE u32 amax_bf16x2(u32 a, u32 b) {
    u32 m;
#if __CUDA_ARCH__ >= 860
    if (KEEP) {
        asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    } else {
        asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    }
#else
    a &= 0x7fff7fffu;
    b &= 0x7fff7fffu;
    if (KEEP) {
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    } else {
        asm("max.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    }
#endif
    return m;
}

template <bool KEEP>
INLINE u32 amax_bf16x2(uint4 v) {
    return amax_bf16x2<KEEP>(amax_bf16x2<KEEP>(v.x, v.y), amax_bf16x2<KEEP>(v.z, v.w));
}

// --- RoPE ---------------------------------------------------------------------------------------

// Four cosines and sines; NaN for a position without a row, which then shows in the output.
struct Turn {
    float4 c, s;
};

INLINE Turn turn_at(const float* table, u32 max_pos, i64 position, u32 first_pair) {
    Turn turn;
    if ((u64)position < max_pos) {
        const float* row = table + position * ROPE_DIM + first_pair;
        turn.c = *(const float4*)row;
        turn.s = *(const float4*)(row + ROPE_DIM / 2);
    } else {
        turn.c = turn.s = make_float4(NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER);
    }
    return turn;
}

INLINE void rotate_pair(float& even, float& odd, float c, float s) {
    float e = even, o = odd;
    even = __fsub_rn(__fmul_rn(e, c), __fmul_rn(o, s));
    odd = __fadd_rn(__fmul_rn(e, s), __fmul_rn(o, c));
}

INLINE void rotate8(float* x, Turn turn) {
    rotate_pair(x[0], x[1], turn.c.x, turn.s.x);
    rotate_pair(x[2], x[3], turn.c.y, turn.s.y);
    rotate_pair(x[4], x[5], turn.c.z, turn.s.z);
    rotate_pair(x[6], x[7], turn.c.w, turn.s.w);
}

// --- sums ---------------------------------------------------------------------------------------

// The sum over a warp, halves first; every lane gets it, because addition commutes.
INLINE float warp_sum(float x) {
#pragma unroll
    for (i32 half = 16; half > 0; half >>= 1) x = __fadd_rn(x, __shfl_xor_sync(FULL, x, half));
    return x;
}

INLINE float inverse_rms(float sum_of_squares, float inverse_width, float eps) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fmul_rn(sum_of_squares, inverse_width), eps)));
}

// exp of x <= 0, operation by operation as the reference.
INLINE float exp_rn(float x) {
    if (x < -87.0f) return 0.0f;
    float shifted = __fmaf_rn(x, 1.44269504088896340736f, 12582912.0f);
    float n = __fsub_rn(shifted, 12582912.0f);
    float r = __fmaf_rn(n, -1.4286068e-6f, __fmaf_rn(n, -0.69314575f, x));
    float v = 1.3888889e-3f;
    v = __fmaf_rn(v, r, 8.333334e-3f);
    v = __fmaf_rn(v, r, 4.1666668e-2f);
    v = __fmaf_rn(v, r, 1.6666667e-1f);
    v = __fmaf_rn(v, r, 0.5f);
    v = __fmaf_rn(v, r, 1.0f);
    v = __fmaf_rn(v, r, 1.0f);
    return __fmul_rn(v, __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u));
}

// --- caches -------------------------------------------------------------------------------------

// Where an entry's block begins and which entry of it: false where the slot is no entry.
INLINE bool find_slot(i64 slot, u32 block_size, u32 blocks, u32& block, u32& entry) {
    if (slot < 0) return false;
    u64 at;
    if ((u64)slot >> 32) {
        at = (u64)slot / block_size;
        entry = (u32)((u64)slot - at * block_size);
    } else {
        at = (u32)slot / block_size;
        entry = (u32)slot - (u32)at * block_size;
    }
    block = (u32)at;
    return at < blocks;
}

// Warp-level writers of a main entry. `low` holds dims 8 lane.., `high` dims 256 + 8 lane..; all
// values are bf16 already, and those of lanes 24.. in `high` are rotated.
INLINE void store_main(u8* block, u32 block_size, u32 entry, const float* low, const float* high) {
    const u32 lane = threadIdx.x & 31;
    float a = 0.0f, b = 0.0f;
#pragma unroll
    for (i32 i = 0; i < 8; i++) {
        a = fmaxf(a, fabsf(low[i]));
        b = fmaxf(b, fabsf(high[i]));
    }
#pragma unroll
    for (i32 half = 4; half > 0; half >>= 1) {
        a = fmaxf(a, __shfl_xor_sync(FULL, a, half));
        b = fmaxf(b, __shfl_xor_sync(FULL, b, half));
    }
    const u32 scale_a = e4m3_scale(a), scale_b = e4m3_scale(b);
    const float inverse_a = e4m3_inverse(scale_a), inverse_b = e4m3_inverse(scale_b);
    u8* data = block + (u64)entry * 576;
    store8(data + 8 * lane,
           e4m3x4(low[0] * inverse_a, low[1] * inverse_a, low[2] * inverse_a, low[3] * inverse_a),
           e4m3x4(low[4] * inverse_a, low[5] * inverse_a, low[6] * inverse_a, low[7] * inverse_a));
    if (lane < 24) {
        store8(data + 256 + 8 * lane,
               e4m3x4(high[0] * inverse_b, high[1] * inverse_b, high[2] * inverse_b, high[3] * inverse_b),
               e4m3x4(high[4] * inverse_b, high[5] * inverse_b, high[6] * inverse_b, high[7] * inverse_b));
    } else {
        uint4 rope = pack8(high);
        store8(data + 448 + 16 * (lane - 24), rope.x, rope.y);
        store8(data + 448 + 16 * (lane - 24) + 8, rope.z, rope.w);
    }
    u32 first = scale_a, second = scale_b;
    u32 word_a = __shfl_sync(FULL, first, 0) | __shfl_sync(FULL, first, 8) << 8 |
                 __shfl_sync(FULL, first, 16) << 16 | __shfl_sync(FULL, first, 24) << 24;
    u32 word_b = __shfl_sync(FULL, second, 0) | __shfl_sync(FULL, second, 8) << 8 |
                 __shfl_sync(FULL, second, 16) << 16;
    if (lane == 0) store8(block + (u64)block_size * 576 + (u64)entry * 8, word_a, word_b);
}
