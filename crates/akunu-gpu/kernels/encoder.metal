// What only encoders have: sound beside its neighbours, and the weights of attention themselves.

// Frames of sound to every row of a batch.
constant constexpr uint FRAMES = 2;

struct UnfoldParams {
    uint x; // in the arena
    uint x_stride;
    uint width; // of x
    uint out;
    uint stride;
    uint first; // the first row of the output
    uint step;  // frames from one row of the output to the next
    uint pad;
};

// One thread for a column of a row of the output: it is taken of three frames.
[[max_total_threads_per_threadgroup(128)]]
kernel void unfold(
    device float*          arena [[buffer(0)]],
    device const Row*      rows  [[buffer(1)]],
    constant UnfoldParams& p     [[buffer(2)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const uint column = group.x * 128 + thread_index;
    if (column >= p.width) return;
    const uint frame = (p.first + group.y) * p.step;
    const Row row = rows[frame / FRAMES];
    const uint at = FRAMES * row.y + frame % FRAMES;
    const bool has_before = at > 0 && frame > 0, has_after = at + 1 < FRAMES * row.w;
    device const float* x = arena + p.x + frame * p.x_stride + column;
    device float* out = arena + p.out + (p.first + group.y) * p.stride + 3 * column;
    out[0] = has_before ? *(x - p.x_stride) : 0.0f;
    out[1] = *x;
    out[2] = has_after ? x[p.x_stride] : 0.0f;
}

struct WeightsParams {
    Cache cache;
    uint q; // in the arena: one head
    uint q_stride;
    uint out;
    uint stride;
    uint kv_head;
    uint positions; // from the first on
    uint first;     // the first row
    float scale;
};

// How much one head of a row attends to each position: one threadgroup for a row.
[[max_total_threads_per_threadgroup(128)]]
kernel void attend_weights(
    device float*           arena  [[buffer(0)]],
    device const uchar*     kv     [[buffer(1)]],
    device const Row*       rows   [[buffer(2)]],
    device const uint*      tables [[buffer(3)]],
    constant WeightsParams& p      [[buffer(4)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]],
    uint  lane         [[thread_index_in_simdgroup]],
    uint  sg           [[simdgroup_index_in_threadgroup]])
{
    threadgroup float4 query[64];
    threadgroup float scratch[32];
    for (uint d = thread_index; d < p.cache.padded; d += 128)
        ((threadgroup float*)query)[d] = d < p.cache.head_dim ? arena[p.q + group.y * p.q_stride + d] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    device const uint* table = tables + rows[p.first + group.y].x * p.cache.table_stride + p.cache.table;
    // Every thread reads only what it wrote itself.
    device float* out = arena + p.out + group.y * p.stride;
    float largest = negative_infinity(), total = 0.0f;
    for (uint position = thread_index; position < p.positions; position += 128) {
        device const uchar* keys = kv + tile(p.cache, table[position / BLOCK], p.kv_head);
        float score = 0.0f;
        for (uint eight = 0; eight < p.cache.padded / 8; ++eight) {
            float k[8];
            if (p.cache.quantised) load_key<true>(keys, p.cache, eight, position % BLOCK, k);
            else load_key<false>(keys, p.cache, eight, position % BLOCK, k);
            score = dot_eight(query + 2 * eight, k, score);
        }
        out[position] = p.scale * score;
        largest = max(largest, p.scale * score);
    }
    largest = group_max(largest, scratch, lane, sg, 4);
    for (uint position = thread_index; position < p.positions; position += 128) {
        const float weight = exp(out[position] - largest);
        out[position] = weight;
        total += weight;
    }
    total = group_sum(total, scratch, lane, sg, 4);
    for (uint position = thread_index; position < p.positions; position += 128) out[position] /= total;
}
