// Rotation, the cache, and attention.
//
// The cache of one head in one block of 64 positions is a tile: keys [dim / 8][position][8], so that neighbouring threads take
// neighbouring positions, then values [position][dim]; dims are padded to a multiple of eight with zeros. Elements are halves,
// or signed bytes under one half for every 32 of a head: then the scales follow, of keys [dim / 32][position], of values
// [position][dim / 32].

constant constexpr uint BLOCK = 64;

// Where a layer's cache lies.
struct Cache {
    uint layer;
    uint layers;
    uint kv_heads;
    uint head_dim;
    uint padded;       // head_dim to a multiple of eight
    uint table;        // the group's first entry in a slot's block tables
    uint table_stride; // entries from one slot to the next
    uint quantised;    // bytes and scales instead of halves
};

// Scales of a head at one position.
inline uint scales_of(const Cache c) {
    return (c.head_dim + 31) / 32;
}

// The byte at which a tile begins.
inline ulong tile(const Cache c, uint block, uint head) {
    const uint bytes = c.quantised ? 2 * BLOCK * (c.padded + 2 * scales_of(c)) : 4 * BLOCK * c.padded;
    return ulong((block * c.layers + c.layer) * c.kv_heads + head) * bytes;
}

// Eight dims of a key that are bytes.
inline void key_bytes(const uint2 v, float scale, thread float* k) {
    for (uint i = 0; i < 4; ++i) {
        k[i] = scale * centred(((v.x >> (8 * i)) & 255) ^ 128, 128.0f);
        k[i + 4] = scale * centred(((v.y >> (8 * i)) & 255) ^ 128, 128.0f);
    }
}

// What eight dims of a query and a key add to a score.
inline float dot_eight(threadgroup const float4* query, thread const float* k, float score) {
    const float4 q0 = query[0], q1 = query[1];
    score = fma(q0.x, k[0], fma(q0.y, k[1], fma(q0.z, k[2], fma(q0.w, k[3], score))));
    return fma(q1.x, k[4], fma(q1.y, k[5], fma(q1.z, k[6], fma(q1.w, k[7], score))));
}

// Eight dims of a key.
template <bool QUANTISED>
inline void load_key(device const uchar* tile, const Cache c, uint eight, uint at, thread float* k) {
    if (QUANTISED) {
        const uint2 v = ((device const uint2*)tile)[eight * BLOCK + at];
        const float scale = float(((device const half*)(tile + 2 * BLOCK * c.padded))[eight / 4 * BLOCK + at]);
        key_bytes(v, scale, k);
    } else {
        const uint4 v = ((device const uint4*)tile)[eight * BLOCK + at];
        halves(v.x, k), halves(v.y, k + 2), halves(v.z, k + 4), halves(v.w, k + 6);
    }
}

// Two dims of a value.
template <bool QUANTISED> inline float2 load_value(device const uchar* tile, const Cache c, uint at, uint pair) {
    if (QUANTISED) {
        const uint groups = scales_of(c);
        const uint v = ((device const ushort*)(tile + (BLOCK + at) * c.padded))[pair];
        device const half* scales = (device const half*)(tile + 2 * BLOCK * (c.padded + groups));
        const float scale = float(scales[at * groups + pair / 16]);
        return float2(scale * centred((v & 255) ^ 128, 128.0f), scale * centred((v >> 8) ^ 128, 128.0f));
    }
    return float2(((device const half2*)(tile + 2 * (BLOCK + at) * c.padded))[pair]);
}

// The scale of up to 32 elements of a head.
inline float byte_scale(thread const float* x, uint count) {
    float largest = 0.0f;
    for (uint i = 0; i < count; ++i) largest = max(largest, abs(x[i]));
    return float(half(largest / 127.0f));
}

inline uchar byte_of(float x, float scale) {
    const float q = scale > 0.0f ? min(max(rint(x / scale), -127.0f), 127.0f) : 0.0f;
    return uchar(int(q) & 255);
}

inline void store_key_byte(device uchar* tile, uint d, uint at, uchar code) {
    tile[(d / 8 * BLOCK + at) * 8 + d % 8] = code;
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
    uint keys;     // rotated keys, in the arena, for a quantised cache: `remember` stores them
};

// The two elements of a pair: a rotated one, or neighbours among those that pass through.
inline uint2 pair_of(uint pair, uint pairs, uint split) {
    return split && pair < pairs ? uint2(pair, pair + pairs) : uint2(2 * pair, 2 * pair + 1);
}

// Two elements turned by an angle, given as its cosine and sine.
inline float2 turned(float2 x, device const float* angle) {
    const float cosine = angle[0], sine = angle[1];
    return float2(x.x * cosine - x.y * sine, x.x * sine + x.y * cosine);
}

inline void store_key(device uchar* tile, uint at, uint2 pair, float2 x) {
    device half* keys = (device half*)tile;
    keys[(pair.x / 8 * BLOCK + at) * 8 + pair.x % 8] = half(x.x);
    keys[(pair.y / 8 * BLOCK + at) * 8 + pair.y % 8] = half(x.y);
}

inline void store_value(device uchar* tile, const uint padded, uint at, uint2 pair, float2 x) {
    device half* values = (device half*)tile + (BLOCK + at) * padded;
    values[pair.x] = half(x.x), values[pair.y] = half(x.y);
}

// One thread for two elements of a head of q, k or v.
[[max_total_threads_per_threadgroup(128)]]
kernel void rotate(
    device float*          arena  [[buffer(0)]],
    device uchar*          kv     [[buffer(1)]],
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
    const uint2 both = pair_of(pair, p.pairs, p.split);
    const uint a = both.x, b = both.y;
    const bool turns = p.angles != NONE && pair < p.pairs && head < p.heads + kv_heads;

    device const float* x;
    if (head < p.heads) x = arena + p.q + group.y * p.q_stride + head * p.cache.head_dim;
    else if (head < p.heads + kv_heads)
        x = arena + p.k + group.y * p.k_stride + (head - p.heads) * p.cache.head_dim;
    else x = arena + p.v + group.y * p.k_stride + (head - p.heads - kv_heads) * p.cache.head_dim;
    float2 y = float2(x[a], x[b]);
    if (turns) y = turned(y, angles + p.angles + 2 * (position * p.pairs + pair));
    if (head < p.heads) {
        device float* out = arena + p.out + group.y * p.q_stride + head * p.cache.head_dim;
        out[a] = y.x, out[b] = y.y;
        return;
    }
    if (p.cache.quantised) {
        if (head >= p.heads + kv_heads) return;
        device float* key = arena + p.keys + group.y * p.k_stride + (head - p.heads) * p.cache.head_dim;
        key[a] = y.x, key[b] = y.y;
        return;
    }
    const uint block = tables[row.x * p.cache.table_stride + p.cache.table + position / BLOCK], at = position % BLOCK;
    if (head < p.heads + kv_heads) store_key(kv + tile(p.cache, block, head - p.heads), at, both, y);
    else store_value(kv + tile(p.cache, block, head - p.heads - kv_heads), p.cache.padded, at, both, y);
}

// Stores rotated keys and values as bytes: one thread for 32 elements of a head.
[[max_total_threads_per_threadgroup(64)]]
kernel void remember(
    device const float*    arena  [[buffer(0)]],
    device uchar*          kv     [[buffer(1)]],
    device const Row*      rows   [[buffer(2)]],
    device const uint*     tables [[buffer(3)]],
    constant RotateParams& p      [[buffer(4)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const uint groups = scales_of(p.cache), i = group.x * 64 + thread_index;
    if (i >= 2 * p.cache.kv_heads * groups) return;
    const bool is_key = i < p.cache.kv_heads * groups;
    const uint head = i / groups % p.cache.kv_heads, part = i % groups, count = min(32u, p.cache.head_dim - 32 * part);
    const Row row = rows[p.first + group.y];
    const uint block = tables[row.x * p.cache.table_stride + p.cache.table + row.y / BLOCK], at = row.y % BLOCK;
    device uchar* out = kv + tile(p.cache, block, head);
    device const float* from =
        arena + (is_key ? p.keys : p.v) + group.y * p.k_stride + head * p.cache.head_dim + 32 * part;
    float x[32];
    for (uint d = 0; d < 32; ++d) x[d] = d < count ? from[d] : 0.0f;
    const float scale = byte_scale(x, 32);
    device half* scales = (device half*)(out + 2 * BLOCK * p.cache.padded);
    if (is_key) scales[part * BLOCK + at] = half(scale);
    else scales[BLOCK * groups + at * groups + part] = half(scale);
    for (uint d = 0; d < count; ++d) {
        const uint dim = 32 * part + d;
        if (is_key) store_key_byte(out, dim, at, byte_of(x[d], scale));
        else out[(BLOCK + at) * p.cache.padded + dim] = byte_of(x[d], scale);
    }
}

struct ShiftParams {
    Cache cache; // the layer is that of the threadgroup
    uint block;
    uint stride; // floats of a layer's turn
    uint pad[2];
};

// Turns the keys of a block by some positions: one threadgroup for each head of each layer, one thread for each position. A
// layer's turn is its number of pairs, whether they are split, and their cosines and sines.
[[max_total_threads_per_threadgroup(64)]]
kernel void shift_keys(
    device uchar*         kv    [[buffer(0)]],
    device const float*   turns [[buffer(1)]],
    constant ShiftParams& p     [[buffer(2)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint  at    [[thread_index_in_threadgroup]])
{
    Cache cache = p.cache;
    cache.layer = group.y;
    device const float* turn = turns + group.y * p.stride;
    const uint pairs = uint(turn[0]);
    const bool split = turn[1] != 0.0f;
    if (pairs == 0) return;
    device uchar* keys = kv + tile(cache, p.block, group.x);
    float k[256];
    for (uint eight = 0; eight < cache.padded / 8; ++eight) {
        if (cache.quantised) load_key<true>(keys, cache, eight, at, k + 8 * eight);
        else load_key<false>(keys, cache, eight, at, k + 8 * eight);
    }
    for (uint i = 0; i < pairs; ++i) {
        const uint a = split ? i : 2 * i, b = split ? i + pairs : 2 * i + 1;
        const float cosine = turn[2 + 2 * i], sine = turn[3 + 2 * i], x0 = k[a], x1 = k[b];
        k[a] = x0 * cosine - x1 * sine, k[b] = x0 * sine + x1 * cosine;
    }
    if (!cache.quantised) {
        for (uint d = 0; d < cache.head_dim; ++d) ((device half*)keys)[(d / 8 * BLOCK + at) * 8 + d % 8] = half(k[d]);
        return;
    }
    for (uint part = 0; part < scales_of(cache); ++part) {
        const uint count = min(32u, cache.head_dim - 32 * part);
        const float scale = byte_scale(k + 32 * part, count);
        ((device half*)(keys + 2 * BLOCK * cache.padded))[part * BLOCK + at] = half(scale);
        for (uint d = 32 * part; d < 32 * part + count; ++d) store_key_byte(keys, d, at, byte_of(k[d], scale));
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
    uint arrivals; // in the arena: how many parts of each row and threadgroup are done; NONE: `attend_merge` adds parts
    uint k;        // in the arena, or NONE: q is rotated and the row's keys and values are stored
    uint v;
    uint k_stride;
    uint angles; // of the rotation, as in RotateParams
    uint pairs;
    uint split;
    uint sees;   // how many positions: 0: up to its own; NONE: up to the end of its span; or so many from the first on
    uint pad[2];
};

// The position after the last one that a row sees. In a chain a row comes to lie behind the end that its span was given with.
inline uint seen_end(const Row row, uint sees) {
    return sees == 0 ? row.y + 1 : sees == NONE ? max(row.w, row.y + 1) : sees;
}

// The first position that a row sees.
inline uint seen_begin(const Row row, uint window) {
    return window != 0 && row.y + 1 > window ? row.y + 1 - window : 0;
}

// Positions are taken in parts of 128, counted from position 0, so that what a row gets depends on its own length alone.
constant constexpr uint PART = 128;
// Heads that share a key and value head are taken four at a time.
constant constexpr uint TOGETHER = 4;

// Adds the parts of a head, a thread for each dim.
inline void merge_parts(device float* arena, const AttendParams p, uint row, uint head, uint parts, uint first, uint threads) {
    const uint dim = p.cache.head_dim;
    device const float* part = arena + p.partial + (row * p.heads + head) * p.parts * (dim + 2);
    float largest = negative_infinity(), total = 0.0f;
    for (uint i = 0; i < parts; ++i) largest = max(largest, part[i * (dim + 2) + dim]);
    for (uint i = 0; i < parts; ++i) total += exp(part[i * (dim + 2) + dim] - largest) * part[i * (dim + 2) + dim + 1];
    for (uint d = first; d < dim; d += threads) {
        float y = 0.0f;
        for (uint i = 0; i < parts; ++i) y += exp(part[i * (dim + 2) + dim] - largest) * part[i * (dim + 2) + d];
        arena[p.out + row * p.stride + head * dim + d] = y / total;
    }
}

// One threadgroup for up to four heads of a row of a prompt, over all its positions one part after the other. Every thread scores one
// position; then every SIMD group sums values of a quarter of them, every lane 2 PAIRS dims.
template <int PAIRS, bool QUANTISED>
inline void attend_all(device float* arena, device const uchar* kv, device const Row* rows, device const uint* tables,
                       const AttendParams p, threadgroup float* queries, threadgroup float* weights, threadgroup float* best,
                       threadgroup float* sums, uint3 group, uint thread_index, uint lane, uint sg) {
    const Row row = rows[p.first + group.y];
    const uint end = seen_end(row, p.sees), begin = seen_begin(row, p.window);
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
#pragma unroll
    for (uint r = 0; r < TOGETHER; ++r) {
        largest[r] = negative_infinity(), total[r] = 0.0f;
#pragma unroll
        for (int j = 0; j < PAIRS; ++j) sum[r][j] = float2(0.0f, 0.0f);
    }
    for (uint part = begin / PART; part <= (end - 1) / PART; ++part) {
        const uint position = part * PART + thread_index;
        const bool seen = position >= begin && position < end;
        float score[TOGETHER];
#pragma unroll
        for (uint r = 0; r < TOGETHER; ++r) score[r] = 0.0f;
        if (seen) {
            device const uchar* keys = kv + tile(p.cache, table[position / BLOCK], kv_head);
#pragma unroll 8
            for (uint d = 0; d < padded / 8; ++d) {
                float k[8];
                load_key<QUANTISED>(keys, p.cache, d, position % BLOCK, k);
#pragma unroll
                for (uint r = 0; r < TOGETHER; ++r)
                    score[r] = dot_eight((threadgroup const float4*)queries + r * (padded / 4) + 2 * d, k, score[r]);
            }
        }
#pragma unroll
        for (uint r = 0; r < TOGETHER; ++r) {
            score[r] = seen ? soft_cap(p.scale * score[r], p.cap) : negative_infinity();
            const float m = simd_max(score[r]);
            if (lane == 0) best[sg * TOGETHER + r] = m;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint r = 0; r < TOGETHER; ++r) {
            const float m = max(max(max(best[r], best[TOGETHER + r]), max(best[2 * TOGETHER + r], best[3 * TOGETHER + r])),
                                largest[r]);
            const float shrink = exp(largest[r] - m), weight = exp(score[r] - m);
            largest[r] = m;
            weights[TOGETHER * thread_index + r] = weight;
            // Each SIMD group keeps the sum over its own positions; they are added in the end.
            total[r] = total[r] * shrink + simd_sum(weight);
#pragma unroll
            for (int j = 0; j < PAIRS; ++j) sum[r][j] *= shrink;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        const uint from = max(begin, part * PART + 32 * sg), to = min(end, part * PART + 32 * sg + 32);
        device const uchar* values = kv + tile(p.cache, table[min(from, end - 1) / BLOCK], kv_head);
#pragma unroll 8
        for (uint at = from; at < to; ++at) {
            const float4 weight = ((threadgroup const float4*)weights)[at % PART];
            const float of_head[TOGETHER] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
            for (int j = 0; j < PAIRS; ++j) {
                // Lanes beyond the last pair take it again, and store nothing.
                const float2 v = load_value<QUANTISED>(values, p.cache, at % BLOCK, min(lane + 32 * j, padded / 2 - 1));
#pragma unroll
                for (uint r = 0; r < TOGETHER; ++r) {
                    sum[r][j].x = fma(of_head[r], v.x, sum[r][j].x);
                    sum[r][j].y = fma(of_head[r], v.y, sum[r][j].y);
                }
            }
        }
        // Nobody overwrites what others still read.
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
#pragma unroll
    for (uint r = 0; r < TOGETHER; ++r) {
        if (lane == 0) best[sg * TOGETHER + r] = total[r];
#pragma unroll
        for (int j = 0; j < PAIRS; ++j) {
            const uint pair = lane + 32 * j;
            if (2 * pair >= padded) continue;
            sums[(sg * TOGETHER + r) * padded + 2 * pair] = sum[r][j].x;
            sums[(sg * TOGETHER + r) * padded + 2 * pair + 1] = sum[r][j].y;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint r = 0; r < TOGETHER; ++r) {
        if (r >= count) break;
        const float weight = (best[r] + best[TOGETHER + r]) + (best[2 * TOGETHER + r] + best[3 * TOGETHER + r]);
        device float* out = arena + p.out + group.y * p.stride + (first_head + r) * dim;
        for (uint d = thread_index; d < dim; d += 128) {
            const uint step = TOGETHER * padded, at = r * padded + d;
            out[d] = ((sums[at] + sums[step + at]) + (sums[2 * step + at] + sums[3 * step + at])) / weight;
        }
    }
}

#define ATTEND_ALL_KERNEL(name, DIM, QUANTISED) \
    [[max_total_threads_per_threadgroup(128)]] kernel void name##_##DIM( \
        device float* arena [[buffer(0)]], device uchar* kv [[buffer(1)]], device const Row* rows [[buffer(2)]], \
        device const uint* tables [[buffer(3)]], device const float* angles [[buffer(4)]], \
        constant AttendParams& p [[buffer(5)]], \
        uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]], \
        uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { \
        threadgroup float4 queries[DIM]; \
        threadgroup float4 weights[128]; \
        threadgroup float best[4 * 4]; \
        threadgroup float sums[4 * 4 * DIM]; \
        attend_all<DIM / 64, QUANTISED>(arena, kv, rows, tables, p, (threadgroup float*)queries, (threadgroup float*)weights, \
                                        best, sums, group, thread_index, lane, sg); \
    }

// Eight dims of a key, and two of a value, as they lie: fetched before they are needed. Those that are not there are zeros.
template <bool QUANTISED> struct KeyLoad;
template <> struct KeyLoad<false> {
    uint4 v;
    inline void fetch(device const uchar* tile, const Cache, uint eight, uint at, bool is_there) {
        v = uint4(0u);
        if (is_there) v = ((device const uint4*)tile)[eight * BLOCK + at];
    }
    inline void expand(thread float* k) const { halves(v.x, k), halves(v.y, k + 2), halves(v.z, k + 4), halves(v.w, k + 6); }
};
template <> struct KeyLoad<true> {
    uint2 v;
    float scale;
    inline void fetch(device const uchar* tile, const Cache c, uint eight, uint at, bool is_there) {
        v = uint2(0u), scale = 0.0f;
        if (!is_there) return;
        v = ((device const uint2*)tile)[eight * BLOCK + at];
        scale = float(((device const half*)(tile + 2 * BLOCK * c.padded))[eight / 4 * BLOCK + at]);
    }
    inline void expand(thread float* k) const { key_bytes(v, scale, k); }
};

template <bool QUANTISED> struct ValueLoad;
template <> struct ValueLoad<false> {
    uint v;
    inline void fetch(device const uchar* tile, const Cache c, uint at, uint pair, bool is_there) {
        v = 0;
        if (is_there) v = ((device const uint*)(tile + 2 * (BLOCK + at) * c.padded))[pair];
    }
    inline float2 expand() const { return float2(as_type<half2>(v)); }
};
template <> struct ValueLoad<true> {
    float2 v;
    inline void fetch(device const uchar* tile, const Cache c, uint at, uint pair, bool is_there) {
        v = float2(0.0f, 0.0f);
        if (is_there) v = load_value<true>(tile, c, at, pair);
    }
    inline float2 expand() const { return v; }
};

// The SIMD groups of a threadgroup that attends to a part, and positions that each of them takes.
constant constexpr uint PART_GROUPS = 16;
constant constexpr uint PART_EACH = PART / PART_GROUPS;

// One threadgroup for up to four heads of a decoded row and one part of its positions. Every SIMD group scores eight positions, four
// lanes each, and sums their values, every lane 2 PAIRS dims; all it needs is fetched at once. The groups meet in the end. SLOTS of
// them have room for their sums at a time.
template <int DIM, int SLOTS, bool QUANTISED>
inline void attend_part(device float* arena, device uchar* kv, device const Row* rows, device const uint* tables,
                        device const float* angles, const AttendParams p, threadgroup float* queries, threadgroup float* own,
                        threadgroup float* weights, threadgroup float* best, threadgroup float* totals, threadgroup float* sums,
                        uint3 group, uint thread_index, uint lane, uint sg) {
    constexpr uint pairs = DIM / 64, eights = DIM / 32;
    const Row row = rows[p.first + group.y];
    const uint end = seen_end(row, p.sees), begin = seen_begin(row, p.window);
    const uint part = begin / PART + group.z, last_part = (end - 1) / PART;
    if (part > last_part) return;

    const uint dim = p.cache.head_dim, padded = p.cache.padded, sharing = p.heads / p.cache.kv_heads;
    const uint chunks = (sharing + TOGETHER - 1) / TOGETHER;
    const uint kv_head = chunks == 1 ? group.x : group.x / chunks;
    const uint first_head = kv_head * sharing + (group.x - kv_head * chunks) * TOGETHER;
    const uint count = min(TOGETHER, (kv_head + 1) * sharing - first_head);
    device const uint* table = tables + row.x * p.cache.table_stride + p.cache.table;
    const bool raw = !QUANTISED && p.k != NONE;

    // What lies in the cache. A row's own key and value may not lie there yet.
    const uint first = part * PART + PART_EACH * sg, position = first + lane / 4, stored = raw ? end - 1 : end;
    const bool seen = position >= begin && position < end;
    device uchar* tile_of = kv + tile(p.cache, table[min(first, end - 1) / BLOCK], kv_head);
    KeyLoad<QUANTISED> keys[eights];
#pragma unroll
    for (uint i = 0; i < eights; ++i)
        keys[i].fetch(tile_of, p.cache, 4 * i + lane % 4, position % BLOCK,
                      position >= begin && position < stored && 4 * i + lane % 4 < padded / 8);
    ValueLoad<QUANTISED> values[PART_EACH][pairs];
#pragma unroll
    for (uint i = 0; i < PART_EACH; ++i) {
        // Lanes beyond the last pair take it again, and store nothing.
#pragma unroll
        for (uint j = 0; j < pairs; ++j)
            values[i][j].fetch(tile_of, p.cache, (first + i) % BLOCK, min(lane + 32 * j, padded / 2 - 1),
                               first + i >= begin && first + i < stored);
    }
    if (raw) {
        // Heads of q, then the key and the value, which all threadgroups of a key head that need them store alike.
        const uint halves = dim / 2, rows_of = part == last_part ? TOGETHER + 2 : TOGETHER;
        device uchar* to = kv + tile(p.cache, table[(end - 1) / BLOCK], kv_head);
        for (uint i = thread_index; i < rows_of * halves; i += 32 * PART_GROUPS) {
            const uint r = i / halves, pair = i - r * halves;
            const uint2 both = pair_of(pair, p.pairs, p.split);
            device const float* x = arena + p.q + group.y * p.stride + (first_head + min(r, count - 1)) * dim;
            if (r >= TOGETHER) x = arena + (r == TOGETHER ? p.k : p.v) + group.y * p.k_stride + kv_head * dim;
            float2 y = float2(x[both.x], x[both.y]);
            if (p.angles != NONE && pair < p.pairs && r <= TOGETHER)
                y = turned(y, angles + p.angles + 2 * (row.y * p.pairs + pair));
            if (r < TOGETHER) {
                queries[r * padded + both.x] = y.x, queries[r * padded + both.y] = y.y;
                continue;
            }
            // As they will be read from the cache.
            own[(r - TOGETHER) * DIM + both.x] = float(half(y.x)), own[(r - TOGETHER) * DIM + both.y] = float(half(y.y));
            if (r == TOGETHER) store_key(to, (end - 1) % BLOCK, both, y);
            else store_value(to, padded, (end - 1) % BLOCK, both, y);
        }
        for (uint i = thread_index; i < TOGETHER * (padded - dim); i += 32 * PART_GROUPS)
            queries[i / (padded - dim) * padded + dim + i % (padded - dim)] = 0.0f;
        for (uint i = thread_index; i < 2 * (padded - dim); i += 32 * PART_GROUPS)
            own[i / (padded - dim) * DIM + dim + i % (padded - dim)] = 0.0f;
    } else {
        for (uint i = thread_index; i < TOGETHER * padded; i += 32 * PART_GROUPS) {
            const uint r = i / padded, d = i % padded;
            queries[i] = r < count && d < dim ? arena[p.q + group.y * p.stride + (first_head + r) * dim + d] : 0.0f;
        }
    }
    whole_barrier();

    float score[TOGETHER], largest[TOGETHER], total[TOGETHER];
#pragma unroll
    for (uint r = 0; r < TOGETHER; ++r) score[r] = 0.0f;
#pragma unroll
    for (uint i = 0; i < eights; ++i) {
        const uint eight = min(4 * i + lane % 4, padded / 8 - 1);
        float k[8];
        keys[i].expand(k);
        if (raw && position + 1 == end && 4 * i + lane % 4 < padded / 8) {
#pragma unroll
            for (uint d = 0; d < 8; ++d) k[d] = own[8 * eight + d];
        }
#pragma unroll
        for (uint r = 0; r < TOGETHER; ++r)
            score[r] = dot_eight((threadgroup const float4*)queries + r * (padded / 4) + 2 * eight, k, score[r]);
    }
#pragma unroll
    for (uint r = 0; r < TOGETHER; ++r) {
        score[r] += simd_shuffle_xor(score[r], 1);
        score[r] += simd_shuffle_xor(score[r], 2);
        score[r] = seen ? soft_cap(p.scale * score[r], p.cap) : negative_infinity();
        // A SIMD group that sees nothing has no largest score, and no weights.
        largest[r] = simd_max(score[r]);
        const float weight = seen ? exp(score[r] - largest[r]) : 0.0f;
        // Four lanes have the same.
        total[r] = 0.25f * simd_sum(weight);
        if (lane % 4 == 0) weights[TOGETHER * (PART_EACH * sg + lane / 4) + r] = weight;
        if (lane == 0) best[sg * TOGETHER + r] = largest[r], totals[sg * TOGETHER + r] = total[r];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    float2 sum[TOGETHER][pairs];
#pragma unroll
    for (uint r = 0; r < TOGETHER; ++r) {
#pragma unroll
        for (uint j = 0; j < pairs; ++j) sum[r][j] = float2(0.0f, 0.0f);
    }
#pragma unroll
    for (uint i = 0; i < PART_EACH; ++i) {
        const float4 weight = ((threadgroup const float4*)weights)[PART_EACH * sg + i];
        const float of_head[TOGETHER] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
        for (uint j = 0; j < pairs; ++j) {
            float2 v = values[i][j].expand();
            if (raw && first + i + 1 == end) {
                threadgroup const float* mine = own + DIM + 2 * min(lane + 32 * j, padded / 2 - 1);
                v = float2(mine[0], mine[1]);
            }
#pragma unroll
            for (uint r = 0; r < TOGETHER; ++r)
                sum[r][j].x = fma(of_head[r], v.x, sum[r][j].x), sum[r][j].y = fma(of_head[r], v.y, sum[r][j].y);
        }
    }
    whole_barrier();

    // The largest score of all, and every group's sums as if it had been theirs.
    float whole[TOGETHER];
#pragma unroll
    for (uint r = 0; r < TOGETHER; ++r) {
        const float of_group = best[lane % PART_GROUPS * TOGETHER + r], m = simd_max(of_group);
        // Each group's total is there twice.
        whole[r] = 0.5f * simd_sum(exp(of_group - m) * totals[lane % PART_GROUPS * TOGETHER + r]);
        const float shrink = exp(largest[r] - m);
        largest[r] = m;
#pragma unroll
        for (uint j = 0; j < pairs; ++j) sum[r][j] *= shrink;
    }
    for (uint turn = 0; turn < PART_GROUPS / SLOTS; ++turn) {
        if (sg / SLOTS == turn) {
            threadgroup float2* to = (threadgroup float2*)sums + sg % SLOTS * TOGETHER * (DIM / 2) + lane;
#pragma unroll
            for (uint r = 0; r < TOGETHER; ++r) {
#pragma unroll
                for (uint j = 0; j < pairs; ++j) {
                    threadgroup float2* place = to + r * (DIM / 2) + 32 * j;
                    *place = turn == 0 ? sum[r][j] : *place + sum[r][j];
                }
            }
        }
        whole_barrier();
    }
    const uint parts = last_part - begin / PART + 1;
    for (uint i = thread_index; i < TOGETHER * DIM; i += 32 * PART_GROUPS) {
        const uint r = i / DIM, d = i % DIM, head = first_head + r;
        if (r >= count || d >= dim) continue;
        float y = 0.0f;
#pragma unroll
        for (uint s = 0; s < SLOTS; ++s) y += sums[s * TOGETHER * DIM + i];
        const float weight = r == 0 ? whole[0] : r == 1 ? whole[1] : r == 2 ? whole[2] : whole[3];
        const float m = r == 0 ? largest[0] : r == 1 ? largest[1] : r == 2 ? largest[2] : largest[3];
        if (parts == 1) {
            arena[p.out + group.y * p.stride + head * dim + d] = y / weight;
            continue;
        }
        device float* out = arena + p.partial + ((group.y * p.heads + head) * p.parts + group.z) * (dim + 2);
        out[d] = y;
        if (d == 0) out[dim] = m, out[dim + 1] = weight;
    }
    if (parts == 1 || p.arrivals == NONE) return;
    // Whoever is last adds the parts.
    whole_barrier();
    if (thread_index == 0) {
        device uint* arrivals = (device uint*)(arena + p.arrivals) + group.y * p.cache.kv_heads * chunks + group.x;
        const bool is_last = arrive(arrivals) == parts - 1;
        if (is_last) *arrivals = 0;
        best[0] = is_last ? 1.0f : 0.0f;
    }
    whole_barrier();
    const uint r = thread_index / 128;
    if (best[0] != 0.0f && r < count) merge_parts(arena, p, group.y, first_head + r, parts, thread_index % 128, 128);
}

#define ATTEND_PART_KERNEL(name, DIM, SLOTS, QUANTISED) \
    [[max_total_threads_per_threadgroup(512)]] kernel void name##_##DIM( \
        device float* arena [[buffer(0)]], device uchar* kv [[buffer(1)]], device const Row* rows [[buffer(2)]], \
        device const uint* tables [[buffer(3)]], device const float* angles [[buffer(4)]], \
        constant AttendParams& p [[buffer(5)]], \
        uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]], \
        uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { \
        threadgroup float4 queries[DIM]; \
        threadgroup float own[2 * DIM]; \
        threadgroup float4 weights[128]; \
        threadgroup float best[16 * 4]; \
        threadgroup float totals[16 * 4]; \
        threadgroup float2 sums[SLOTS * 2 * DIM]; \
        attend_part<DIM, SLOTS, QUANTISED>(arena, kv, rows, tables, angles, p, (threadgroup float*)queries, own, \
                                           (threadgroup float*)weights, best, totals, (threadgroup float*)sums, group, \
                                           thread_index, lane, sg); \
    }
#define ATTEND_KERNELS(DIM, SLOTS) \
    ATTEND_PART_KERNEL(attend_part, DIM, SLOTS, false) ATTEND_ALL_KERNEL(attend_all, DIM, false) \
    ATTEND_PART_KERNEL(attend_part_q8, DIM, SLOTS, true) ATTEND_ALL_KERNEL(attend_all_q8, DIM, true)
ATTEND_KERNELS(64, 8)
ATTEND_KERNELS(128, 8)
// Half the room: 32 KiB is all that some devices have.
ATTEND_KERNELS(256, 4)

// Adds the parts of a row that has several: one threadgroup for each head.
[[max_total_threads_per_threadgroup(64)]]
kernel void attend_merge(
    device float*          arena [[buffer(0)]],
    device const Row*      rows  [[buffer(1)]],
    constant AttendParams& p     [[buffer(2)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const Row row = rows[p.first + group.y];
    const uint end = seen_end(row, p.sees), begin = seen_begin(row, p.window);
    const uint parts = (end - 1) / PART - begin / PART + 1;
    if (parts > 1) merge_parts(arena, p, group.y, group.x, parts, thread_index, 64);
}
