// Rotation, the cache, and attention.
//
// The cache of one head in one block of 64 positions is a tile: keys [dim / 8][position][8], so that neighbouring threads take
// neighbouring positions, then values [position][dim]; dims are padded to a multiple of eight with zeros. Elements are halves,
// or signed bytes under one half for every 32 of a head: then the scales follow, of keys [dim / 32][position], of values
// [position][dim / 32].

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

// Eight dims of a key.
template <bool QUANTISED>
inline void load_key(device const uchar* tile, const Cache c, uint eight, uint at, thread float* k) {
    if (QUANTISED) {
        const uint2 v = ((device const uint2*)tile)[eight * BLOCK + at];
        const float scale = float(((device const half*)(tile + 2 * BLOCK * c.padded))[eight / 4 * BLOCK + at]);
        for (uint i = 0; i < 4; ++i) {
            k[i] = scale * centred(((v.x >> (8 * i)) & 255) ^ 128, 128.0f);
            k[i + 4] = scale * centred(((v.y >> (8 * i)) & 255) ^ 128, 128.0f);
        }
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
    uint pad[3];
};

// Positions are taken in parts of 128, counted from position 0, so that what a row gets depends on its own length alone.
constant uint PART = 128;
// Heads that share a key and value head are taken four at a time.
constant uint TOGETHER = 4;

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

// One threadgroup for up to four heads of a row: for one part of its positions, or for all of them one after the other.
// Every thread scores one position; then every SIMD group sums values of a quarter of them, every lane 2 PAIRS dims.
template <int PAIRS, bool ALL, bool QUANTISED>
inline void attend(device float* arena, device uchar* kv, device const Row* rows, device const uint* tables,
                   device const float* angles, const AttendParams p, threadgroup float* queries, threadgroup float* weights,
                   threadgroup float* best, threadgroup float* sums, uint3 group, uint thread_index, uint lane, uint sg) {
    const Row row = rows[p.first + group.y];
    const uint end = row.y + 1, begin = p.window != 0 && end > p.window ? end - p.window : 0;
    const uint first_part = begin / PART + (ALL ? 0 : group.z), last_part = ALL ? (end - 1) / PART : first_part;
    if (first_part * PART >= end) return;

    const uint dim = p.cache.head_dim, padded = p.cache.padded, sharing = p.heads / p.cache.kv_heads;
    const uint chunks = (sharing + TOGETHER - 1) / TOGETHER;
    const uint kv_head = group.x / chunks, first_head = kv_head * sharing + group.x % chunks * TOGETHER;
    const uint count = min(TOGETHER, (kv_head + 1) * sharing - first_head);
    device const uint* table = tables + row.x * p.cache.table_stride + p.cache.table;
    const bool raw = !ALL && !QUANTISED && p.k != NONE;
    if (raw) {
        // Heads of q, then the key and the value, which all threadgroups of a key head that need them store alike.
        const uint halves = dim / 2, stored = first_part == (end - 1) / PART ? 2 : 0;
        device uchar* to = kv + tile(p.cache, table[(end - 1) / BLOCK], kv_head);
        for (uint i = thread_index; i < (TOGETHER + stored) * halves; i += 128) {
            const uint r = i / halves, pair = i % halves;
            const uint2 both = pair_of(pair, p.pairs, p.split);
            device const float* x = arena + p.q + group.y * p.stride + (first_head + min(r, count - 1)) * dim;
            if (r >= TOGETHER) x = arena + (r == TOGETHER ? p.k : p.v) + group.y * p.k_stride + kv_head * dim;
            float2 y = float2(x[both.x], x[both.y]);
            if (p.angles != NONE && pair < p.pairs && r <= TOGETHER)
                y = turned(y, angles + p.angles + 2 * (row.y * p.pairs + pair));
            if (r == TOGETHER) store_key(to, (end - 1) % BLOCK, both, y);
            else if (r > TOGETHER) store_value(to, padded, (end - 1) % BLOCK, both, y);
            else queries[r * padded + both.x] = y.x, queries[r * padded + both.y] = y.y;
        }
        for (uint i = thread_index; i < TOGETHER * (padded - dim); i += 128)
            queries[i / (padded - dim) * padded + dim + i % (padded - dim)] = 0.0f;
        threadgroup_barrier(mem_flags::mem_device);
    } else {
        for (uint i = thread_index; i < TOGETHER * padded; i += 128) {
            const uint r = i / padded, d = i % padded;
            queries[i] = r < count && d < dim ? arena[p.q + group.y * p.stride + (first_head + r) * dim + d] : 0.0f;
        }
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
    for (uint part = first_part; part <= last_part; ++part) {
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
                for (uint r = 0; r < TOGETHER; ++r) {
                    threadgroup const float4* query = (threadgroup const float4*)queries + r * (padded / 4) + 2 * d;
                    const float4 q0 = query[0], q1 = query[1];
                    score[r] = fma(q0.x, k[0], fma(q0.y, k[1], fma(q0.z, k[2], fma(q0.w, k[3], score[r]))));
                    score[r] = fma(q1.x, k[4], fma(q1.y, k[5], fma(q1.z, k[6], fma(q1.w, k[7], score[r]))));
                }
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
        // Every fourth position, so that short rows have work for all; of long rows, 32 that lie in one block.
        if (ALL) simdgroup_barrier(mem_flags::mem_threadgroup);
        else threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint part_begin = max(begin, part * PART), last_block = (end - 1) / BLOCK;
        const uint from = ALL ? max(begin, part * PART + 32 * sg) : part_begin + (sg - part_begin) % 4;
        const uint to = min(end, part * PART + (ALL ? 32 * sg + 32 : PART));
        const uint first_block = min((ALL ? from : part_begin) / BLOCK, last_block);
        const uint second_block = ALL ? first_block : min(part * (PART / BLOCK) + 1, last_block);
        device const uchar* values_a = kv + tile(p.cache, table[first_block], kv_head);
        device const uchar* values_b = kv + tile(p.cache, table[second_block], kv_head);
#pragma unroll 8
        for (uint at = from; at < to; at += ALL ? 1 : 4) {
            device const uchar* values = !ALL && at / BLOCK == second_block ? values_b : values_a;
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

    const uint parts = (end - 1) / PART - begin / PART + 1;
    const bool is_whole = ALL || parts == 1;
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
        const uint head = first_head + r;
        device float* out = arena + p.out + group.y * p.stride + head * dim;
        if (!is_whole) {
            out = arena + p.partial + ((group.y * p.heads + head) * p.parts + group.z) * (dim + 2);
            if (thread_index == 0) out[dim] = largest[r], out[dim + 1] = weight;
        }
        for (uint d = thread_index; d < dim; d += 128) {
            const uint step = TOGETHER * padded, at = r * padded + d;
            const float y = (sums[at] + sums[step + at]) + (sums[2 * step + at] + sums[3 * step + at]);
            out[d] = is_whole ? y / weight : y;
        }
    }
    if (is_whole || p.arrivals == NONE) return;
    // Whoever is last adds the parts.
    threadgroup_barrier(mem_flags::mem_device);
    if (thread_index == 0) {
        device uint* arrivals = (device uint*)(arena + p.arrivals) + group.y * p.cache.kv_heads * chunks + group.x;
        const bool is_last = arrive(arrivals) == parts - 1;
        if (is_last) *arrivals = 0;
        best[0] = is_last ? 1.0f : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (best[0] == 0.0f) return;
    for (uint r = 0; r < count; ++r) merge_parts(arena, p, group.y, first_head + r, parts, thread_index, 128);
}

#define ATTEND_KERNEL(name, DIM, ALL, QUANTISED) \
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
        attend<DIM / 64, ALL, QUANTISED>(arena, kv, rows, tables, angles, p, (threadgroup float*)queries, \
                                         (threadgroup float*)weights, best, sums, group, thread_index, lane, sg); \
    }
#define ATTEND_KERNELS(DIM) \
    ATTEND_KERNEL(attend_part, DIM, false, false) ATTEND_KERNEL(attend_all, DIM, true, false) \
    ATTEND_KERNEL(attend_part_q8, DIM, false, true) ATTEND_KERNEL(attend_all_q8, DIM, true, true)
ATTEND_KERNELS(64)
ATTEND_KERNELS(128)
ATTEND_KERNELS(256)

// Adds the parts of a row that has several: one threadgroup for each head.
[[max_total_threads_per_threadgroup(64)]]
kernel void attend_merge(
    device float*          arena [[buffer(0)]],
    device const Row*      rows  [[buffer(1)]],
    constant AttendParams& p     [[buffer(2)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const uint end = rows[p.first + group.y].y + 1, begin = p.window != 0 && end > p.window ? end - p.window : 0;
    const uint parts = (end - 1) / PART - begin / PART + 1;
    if (parts > 1) merge_parts(arena, p, group.y, group.x, parts, thread_index, 64);
}
