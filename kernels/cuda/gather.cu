// The gather of prefill: paged cache entries to rows of the bf16 workspace.
//
// The rows of all requests, one request after the other, are numbered through, and warps take them in turn:
// warp w of W takes w, w + W and so on, four at a time, so few rows spread over the device, and many
// keep four in flight in every warp. How many there are is read here: the grid only says how many warps.
// A lane reads 8 codes, or 16 bytes of bf16, and stores 16 bytes, twice, so stores of a warp are 512
// neighbouring bytes.

struct GatherParams {
    const u8* cache;
    const i32* block_table;
    const i32* seq_lens;
    const i32* gather_lens;  // null gathers all
    u8* out;
    u64 stride;
    u32 requests, columns, blocks, block_size, ratio, workspace_rows, first_row, most_rows;
};

// A row and its entry.
struct Row {
    u8* to;          // null where there are no more rows
    const u8* data;  // null where there is no entry
    const u8* scales;
};

// The row of a number, and where its entry is.
template <bool PAGED>
INLINE Row find_row(const GatherParams& p, u32 number) {
    Row row = {nullptr, nullptr, nullptr};
    for (u32 request = 0; request < p.requests; request++) {
        const u32 end = (u32)max(p.seq_lens[request], 0) / p.ratio;
        const i32 asked = p.gather_lens ? p.gather_lens[request] : (i32)end;
        const u32 len = min((u32)max(asked, 0), p.most_rows);
        if (number >= len) {
            number -= len;
            continue;
        }
        row.to = p.out + ((u64)request * p.workspace_rows + p.first_row + number) * 1024;
        const i64 entry = (i64)end - asked + number;
        if (entry < 0) break;
        const u32 column = (u32)entry / p.block_size;
        if (column >= p.columns) break;
        const u32 block = (u32)p.block_table[(u64)request * p.columns + column];
        // A negative block is a large number here.
        if (block >= p.blocks) break;
        const u32 within = (u32)entry - column * p.block_size;
        const u8* base = p.cache + block * p.stride;
        row.data = base + (u64)within * (PAGED ? 576 : 1024);
        if (PAGED) row.scales = base + (u64)p.block_size * 576 + (u64)within * 8;
        break;
    }
    return row;
}

// What a lane reads of an entry: dims 8 lane.., and 256 + 8 lane.. .
struct Part {
    uint4 low, high;
    uint2 scales;
};

// Entries are aligned to 8 bytes; most also to 16.
INLINE uint4 load16_of_8(const u8* p) {
    if (!((u64)p & 8)) return load16(p);
    const uint2 a = load8(p), b = load8(p + 8);
    return make_uint4(a.x, a.y, b.x, b.y);
}

template <bool PAGED>
INLINE Part load_part(const u8* data, const u8* scales, u32 lane) {
    Part part;
    part.low = part.high = make_uint4(0, 0, 0, 0);
    part.scales = make_uint2(0, 0);
    if (!data) return part;
    if (!PAGED) {
        part.low = load16(data + 16 * lane);
        part.high = load16(data + 512 + 16 * lane);
        return part;
    }
    const uint2 codes = load8(data + 8 * lane);
    part.low.x = codes.x;
    part.low.y = codes.y;
    if (lane < 24) {
        const uint2 codes = load8(data + 256 + 8 * lane);
        part.high.x = codes.x;
        part.high.y = codes.y;
    } else {
        part.high = load16_of_8(data + 448 + 16 * (lane - 24));
    }
    // Neighbouring rows share their sectors, so not past L1.
    part.scales = *(const uint2*)scales;
    return part;
}

// Eight codes times the scale of their block, one of four in a word.
INLINE uint4 dequantise8(uint4 codes, u32 scales, u32 block) {
    const float scale = scale_value(scales >> (8 * block) & 255);
    const uint2 a = dequantise4(codes.x, scale), b = dequantise4(codes.y, scale);
    return make_uint4(a.x, a.y, b.x, b.y);
}

template <bool PAGED>
INLINE void gather(const GatherParams& p) {
    begin();
    constexpr i32 ROWS = 4;
    const u32 lane = threadIdx.x & 31;
    const u32 warps = gridDim.x * (blockDim.x >> 5);
    u32 number = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    for (;; number += ROWS * warps) {
        // Lane i below ROWS looks after row i; the others do what those do.
        const Row own = find_row<PAGED>(p, number + (lane & (ROWS - 1)) * warps);
        u8* to[ROWS];
        bool there[ROWS];
        Part part[ROWS];
#pragma unroll
        for (i32 i = 0; i < ROWS; i++) {
            to[i] = (u8*)__shfl_sync(FULL, (u64)own.to, i);
            const u8* data = (const u8*)__shfl_sync(FULL, (u64)own.data, i);
            const u8* scales = PAGED ? (const u8*)__shfl_sync(FULL, (u64)own.scales, i) : nullptr;
            there[i] = data != nullptr;
            part[i] = load_part<PAGED>(data, scales, lane);
        }
#pragma unroll
        for (i32 i = 0; i < ROWS; i++) {
            // Rows come in order, so behind the first that is none there are no more.
            if (!to[i]) return;
            uint4 low = part[i].low, high = part[i].high;
            if (PAGED && there[i]) {
                low = dequantise8(low, part[i].scales.x, lane >> 3);
                if (lane < 24) high = dequantise8(high, part[i].scales.y, lane >> 3);
            }
            store16(to[i] + 16 * lane, low);
            store16(to[i] + 512 + 16 * lane, high);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 4) gather_paged(const GatherParams p) {
    gather<true>(p);
}
extern "C" __global__ void __launch_bounds__(256, 4) gather_rows(const GatherParams p) {
    gather<false>(p);
}
