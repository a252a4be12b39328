// Rotation, the cache, and attention.
//
// The cache of one head in one block of 64 positions is a tile: keys [dim / 8][position][8], so that neighbouring threads take
// neighbouring positions, then values [position][dim]; dims are padded to a multiple of eight with zeros.

constant uint BLOCK = 64;

// Where a layer's cache lies.
struct Cache {
    uint layer;
    uint layers;
    uint kv_heads;
    uint head_dim;
    uint padded;       // head_dim to a multiple of eight
    uint table;        // the group's first entry in a slot's block tables
    uint table_stride; // entries from one slot to the next
    uint pad;
};

inline ulong tile(const Cache c, uint block, uint head) {
    return ulong((block * c.layers + c.layer) * c.kv_heads + head) * (2 * BLOCK * c.padded);
}

struct RotateParams {
    Cache cache;
    uint q; // in the arena
    uint k;
    uint v;
    uint out;      // the rotated queries
    uint q_stride; // of q and out
    uint k_stride; // of k and v
    uint heads;
    uint first;    // the first row
    uint angles;   // cosines and sines, [position][pair], in floats from their start, or NONE
    uint pairs;    // rotated pairs of a head
    uint split;    // pairs are (i, i + pairs) instead of (2 i, 2 i + 1)
    uint pad;
};

// One thread for two elements of a head of q, k or v.
[[max_total_threads_per_threadgroup(128)]]
kernel void rotate(
    device float*          arena  [[buffer(0)]],
    device half*           kv     [[buffer(1)]],
    device const Row*      rows   [[buffer(2)]],
    device const uint*     tables [[buffer(3)]],
    device const float*    angles [[buffer(4)]],
    constant RotateParams& p      [[buffer(5)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const uint halves = p.cache.head_dim / 2, kv_heads = p.cache.kv_heads;
    const uint i = group.x * 128 + thread_index, head = i / halves, pair = i % halves;
    if (head >= p.heads + 2 * kv_heads) return;
    const Row row = rows[p.first + group.y];
    const uint position = row.y;
    // The two elements: a rotated pair, or neighbours among those that pass through.
    uint a = 2 * pair, b = 2 * pair + 1;
    const bool turns = p.angles != NONE && pair < p.pairs && head < p.heads + kv_heads;
    if (p.split && pair < p.pairs) a = pair, b = pair + p.pairs;

    device const float* x;
    if (head < p.heads) x = arena + p.q + group.y * p.q_stride + head * p.cache.head_dim;
    else if (head < p.heads + kv_heads)
        x = arena + p.k + group.y * p.k_stride + (head - p.heads) * p.cache.head_dim;
    else x = arena + p.v + group.y * p.k_stride + (head - p.heads - kv_heads) * p.cache.head_dim;
    float first = x[a], second = x[b];
    if (turns) {
        device const float* angle = angles + p.angles + 2 * (position * p.pairs + pair);
        const float cosine = angle[0], sine = angle[1], x0 = first, x1 = second;
        first = x0 * cosine - x1 * sine, second = x0 * sine + x1 * cosine;
    }
    if (head < p.heads) {
        device float* out = arena + p.out + group.y * p.q_stride + head * p.cache.head_dim;
        out[a] = first, out[b] = second;
        return;
    }
    const uint block = tables[row.x * p.cache.table_stride + p.cache.table + position / BLOCK], at = position % BLOCK;
    if (head < p.heads + kv_heads) {
        device half* keys = kv + tile(p.cache, block, head - p.heads);
        keys[(a / 8 * BLOCK + at) * 8 + a % 8] = half(first);
        keys[(b / 8 * BLOCK + at) * 8 + b % 8] = half(second);
    } else {
        device half* values = kv + tile(p.cache, block, head - p.heads - kv_heads) + (BLOCK + at) * p.cache.padded;
        values[a] = half(first), values[b] = half(second);
    }
}

struct AttendParams {
    Cache cache;
    uint q;   // in the arena
    uint out;
    uint stride; // of both
    uint partial; // in the arena: [row][head][part], each the sum of head_dim, the largest score, the sum of weights
    uint heads;
    uint first;  // the first row
    uint parts;  // most parts of a row
    uint window; // 0: none
    float scale;
    float cap;   // 0: none
    uint pad[2];
};

// Positions are taken in parts of 128, counted from position 0, so that what a row gets depends on its own length alone.
constant uint PART = 128;
// Heads that share a key and value head are taken four at a time.
constant uint TOGETHER = 4;

// One threadgroup for up to four heads of a row: for one part of its positions, or for all of them one after the other.
// Every thread scores one position; then every SIMD group sums 32 positions' values, every lane 2 PAIRS dims.
template <int PAIRS, bool ALL>
inline void attend(device float* arena, device const half* kv, device const Row* rows, device const uint* tables,
                   const AttendParams p, threadgroup float* queries, threadgroup float* weights, threadgroup float* best,
                   threadgroup float* sums, uint3 group, uint thread_index, uint lane, uint sg) {
    const Row row = rows[p.first + group.y];
    const uint end = row.y + 1, begin = p.window != 0 && end > p.window ? end - p.window : 0;
    const uint first_part = begin / PART + (ALL ? 0 : group.z), last_part = ALL ? (end - 1) / PART : first_part;
    if (first_part * PART >= end) return;

    const uint dim = p.cache.head_dim, padded = p.cache.padded, sharing = p.heads / p.cache.kv_heads;
    const uint chunks = (sharing + TOGETHER - 1) / TOGETHER;
    const uint kv_head = group.x / chunks, first_head = kv_head * sharing + group.x % chunks * TOGETHER;
    const uint count = min(TOGETHER, (kv_head + 1) * sharing - first_head);
    device const uint* table = tables + row.x * p.cache.table_stride + p.cache.table;
    for (uint i = thread_index; i < TOGETHER * padded; i += 128) {
        const uint r = i / padded, d = i % padded;
        queries[i] = r < count && d < dim ? arena[p.q + group.y * p.stride + (first_head + r) * dim + d] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    float2 sum[TOGETHER][PAIRS];
    float largest[TOGETHER], total[TOGETHER];
    for (uint r = 0; r < TOGETHER; ++r) {
        largest[r] = negative_infinity(), total[r] = 0.0f;
        for (int j = 0; j < PAIRS; ++j) sum[r][j] = float2(0.0f, 0.0f);
    }
    for (uint part = first_part; part <= last_part; ++part) {
        const uint position = part * PART + thread_index;
        const bool seen = position >= begin && position < end;
        float score[TOGETHER];
        for (uint r = 0; r < TOGETHER; ++r) score[r] = 0.0f;
        if (seen) {
            device const uint4* keys =
                (device const uint4*)(kv + tile(p.cache, table[position / BLOCK], kv_head)) + position % BLOCK;
            for (uint d = 0; d < padded / 8; ++d) {
                const uint4 v = keys[d * BLOCK];
                float k[8];
                halves(v.x, k), halves(v.y, k + 2), halves(v.z, k + 4), halves(v.w, k + 6);
                for (uint r = 0; r < TOGETHER; ++r)
                    for (uint i = 0; i < 8; ++i) score[r] = fma(queries[r * padded + 8 * d + i], k[i], score[r]);
            }
        }
        for (uint r = 0; r < TOGETHER; ++r) {
            score[r] = seen ? soft_cap(p.scale * score[r], p.cap) : negative_infinity();
            const float m = simd_max(score[r]);
            if (lane == 0) best[sg * TOGETHER + r] = m;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint r = 0; r < TOGETHER; ++r) {
            const float m = max(max(max(best[r], best[TOGETHER + r]), max(best[2 * TOGETHER + r], best[3 * TOGETHER + r])),
                                largest[r]);
            const float shrink = exp(largest[r] - m), weight = exp(score[r] - m);
            largest[r] = m;
            weights[r * PART + thread_index] = weight;
            // Each SIMD group keeps the sum over its own positions; they are added in the end.
            total[r] = total[r] * shrink + simd_sum(weight);
            for (int j = 0; j < PAIRS; ++j) sum[r][j] *= shrink;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 32 * sg; i < 32 * sg + 32; ++i) {
            const uint at = part * PART + i;
            if (at < begin || at >= end) continue;
            device const half2* values =
                (device const half2*)(kv + tile(p.cache, table[at / BLOCK], kv_head) + (BLOCK + at % BLOCK) * padded);
            for (int j = 0; j < PAIRS; ++j) {
                const uint pair = lane + 32 * j;
                if (2 * pair >= padded) continue;
                const float2 v = float2(values[pair]);
                for (uint r = 0; r < TOGETHER; ++r) sum[r][j] += weights[r * PART + i] * v;
            }
        }
        // Nobody overwrites what others still read.
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    for (uint r = 0; r < TOGETHER; ++r) {
        if (lane == 0) best[sg * TOGETHER + r] = total[r];
        for (int j = 0; j < PAIRS; ++j) {
            const uint pair = lane + 32 * j;
            if (2 * pair >= padded) continue;
            sums[(sg * TOGETHER + r) * padded + 2 * pair] = sum[r][j].x;
            sums[(sg * TOGETHER + r) * padded + 2 * pair + 1] = sum[r][j].y;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = 0; r < count; ++r) {
        const float weight = (best[r] + best[TOGETHER + r]) + (best[2 * TOGETHER + r] + best[3 * TOGETHER + r]);
        const uint head = first_head + r;
        device float* out = arena + p.out + group.y * p.stride + head * dim;
        if (!ALL) {
            out = arena + p.partial + ((group.y * p.heads + head) * p.parts + group.z) * (dim + 2);
            if (thread_index == 0) out[dim] = largest[r], out[dim + 1] = weight;
        }
        for (uint d = thread_index; d < dim; d += 128) {
            const uint step = TOGETHER * padded, at = r * padded + d;
            const float y = (sums[at] + sums[step + at]) + (sums[2 * step + at] + sums[3 * step + at]);
            out[d] = ALL ? y / weight : y;
        }
    }
}

#define ATTEND_KERNEL(name, DIM, ALL) \
    [[max_total_threads_per_threadgroup(128)]] kernel void name##_##DIM( \
        device float* arena [[buffer(0)]], device const half* kv [[buffer(1)]], device const Row* rows [[buffer(2)]], \
        device const uint* tables [[buffer(3)]], constant AttendParams& p [[buffer(4)]], \
        uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]], \
        uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { \
        threadgroup float queries[4 * DIM]; \
        threadgroup float weights[4 * 128]; \
        threadgroup float best[4 * 4]; \
        threadgroup float sums[4 * 4 * DIM]; \
        attend<DIM / 64, ALL>(arena, kv, rows, tables, p, queries, weights, best, sums, group, thread_index, lane, sg); \
    }
ATTEND_KERNEL(attend_part, 64, false)
ATTEND_KERNEL(attend_part, 128, false)
ATTEND_KERNEL(attend_part, 256, false)
ATTEND_KERNEL(attend_all, 64, true)
ATTEND_KERNEL(attend_all, 128, true)
ATTEND_KERNEL(attend_all, 256, true)

// Adds the parts of a row: one threadgroup for each head.
[[max_total_threads_per_threadgroup(64)]]
kernel void attend_merge(
    device float*          arena [[buffer(0)]],
    device const Row*      rows  [[buffer(1)]],
    constant AttendParams& p     [[buffer(2)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const uint dim = p.cache.head_dim, end = rows[p.first + group.y].y + 1;
    const uint begin = p.window != 0 && end > p.window ? end - p.window : 0;
    const uint parts = (end - 1) / PART - begin / PART + 1;
    device const float* part = arena + p.partial + (group.y * p.heads + group.x) * p.parts * (dim + 2);
    float largest = negative_infinity(), total = 0.0f;
    for (uint i = 0; i < parts; ++i) largest = max(largest, part[i * (dim + 2) + dim]);
    for (uint i = 0; i < parts; ++i) total += exp(part[i * (dim + 2) + dim] - largest) * part[i * (dim + 2) + dim + 1];
    for (uint d = thread_index; d < dim; d += 64) {
        float y = 0.0f;
        for (uint i = 0; i < parts; ++i) y += exp(part[i * (dim + 2) + dim] - largest) * part[i * (dim + 2) + d];
        arena[p.out + group.y * p.stride + group.x * dim + d] = y / total;
    }
}
