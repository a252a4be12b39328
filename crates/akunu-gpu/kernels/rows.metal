// Row by row: embedding, norms, element-wise operations, gathering, rotation and the cache's writes.

struct EmbedParams {
    Matrix matrix;
    uint out; // in the arena
    uint stride;
    uint width;
    uint first; // the first row
    float scale;
    uint by;     // which row of the table: 0: the token's; 1: the position's; 2: the first; 3: that of the token's text
    uint before; // rows of the table before the first position's
    uint rows;   // of the table
};

// One thread for eight columns of a row.
template <typename Form>
inline void embed(device const uint4* w, device float* arena, device const Row* rows, const EmbedParams p, uint3 group,
                  uint thread_index) {
    const uint eight = group.x * 128 + thread_index;
    if (eight >= p.matrix.eights) return;
    const Row row = rows[p.first + group.y];
    // The highest bit of a token says that it is of the second text.
    const uint index = p.by == 0 ? row.z & 0x7fffffff
                     : p.by == 1 ? min(p.before + row.y, p.rows - 1)
                     : p.by == 3 ? row.z >> 31 : 0;
    float q[8];
    const float2 scale = Form::load(w, p.matrix, (p.matrix.first + index) * p.matrix.eights + eight, q);
    device float* out = arena + p.out + group.y * p.stride;
    for (uint i = 0; i < 8; ++i)
        if (8 * eight + i < p.width) out[8 * eight + i] = p.scale * (scale.x * q[i] + scale.y);
}

#define EMBED_KERNEL(name, Form) \
    [[max_total_threads_per_threadgroup(128)]] kernel void embed_##name( \
        device const uint4* w [[buffer(0)]], device float* arena [[buffer(1)]], device const Row* rows [[buffer(2)]], \
        constant EmbedParams& p [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]], \
        uint thread_index [[thread_index_in_threadgroup]]) { \
        embed<Form>(w, arena, rows, p, group, thread_index); \
    }
ALL_FORMS(EMBED_KERNEL)

struct NormParams {
    uint x; // in the arena
    uint out;
    uint x_stride;
    uint stride;
    uint width;    // of one part
    uint weight;   // in the weights
    uint bias;     // in the weights, or NONE
    uint residual; // added after, in the arena, strided as the output, or NONE
    float eps;
    float offset;  // added to the weight
    uint layer;    // layer norm: subtract the mean
    uint pad;
};

// One threadgroup for each part of each row.
[[max_total_threads_per_threadgroup(128)]]
kernel void norm(
    device const uint4*  w     [[buffer(0)]],
    device float*        arena [[buffer(1)]],
    constant NormParams& p     [[buffer(2)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]],
    uint  lane         [[thread_index_in_simdgroup]],
    uint  sg           [[simdgroup_index_in_threadgroup]])
{
    threadgroup float scratch[32];
    const uint at = group.x * p.width;
    device const float* x = arena + p.x + group.y * p.x_stride + at;
    device float* out = arena + p.out + group.y * p.stride + at;
    float mean = 0.0f;
    if (p.layer) {
        float sum = 0.0f;
        for (uint i = thread_index; i < p.width; i += 128) sum += x[i];
        mean = group_sum(sum, scratch, lane, sg, 4) / float(p.width);
    }
    float squares = 0.0f;
    for (uint i = thread_index; i < p.width; i += 128) squares += (x[i] - mean) * (x[i] - mean);
    const float factor = rsqrt(group_sum(squares, scratch, lane, sg, 4) / float(p.width) + p.eps);
    for (uint i = thread_index; i < p.width; i += 128) {
        float y = (x[i] - mean) * factor * (plane<float>(w, p.weight)[i] + p.offset);
        if (p.bias != NONE) y += plane<float>(w, p.bias)[i];
        if (p.residual != NONE) y += arena[p.residual + group.y * p.stride + at + i];
        out[i] = y;
    }
}

struct ElementParams {
    uint x; // in the arena
    uint y;
    uint out;
    uint stride; // of all three
    uint width;
    uint operation; // 0: x + y; 1: activation(x) y; 2: cap of scale x; 3: activation(x)
    uint activation;
    float scale;
    float cap;
    uint pad[3];
};

[[max_total_threads_per_threadgroup(128)]]
kernel void elements(
    device float*           arena [[buffer(0)]],
    constant ElementParams& p     [[buffer(1)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const uint i = group.x * 128 + thread_index;
    if (i >= p.width) return;
    const uint at = group.y * p.stride + i;
    const float x = arena[p.x + at];
    float out;
    if (p.operation == 0) out = x + arena[p.y + at];
    else if (p.operation == 1) out = activate(x, p.activation) * arena[p.y + at];
    else if (p.operation == 2) out = soft_cap(p.scale * x, p.cap);
    else out = activate(x, p.activation);
    arena[p.out + at] = out;
}

struct GatherParams {
    uint x; // in the arena
    uint out;
    uint stride; // of both
    uint width;
    uint first;  // the first output
    uint pad[3];
};

[[max_total_threads_per_threadgroup(128)]]
kernel void gather(
    device float*          arena   [[buffer(0)]],
    device const uint*     outputs [[buffer(1)]],
    constant GatherParams& p       [[buffer(2)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const uint i = group.x * 128 + thread_index;
    const uint row = outputs[p.first + group.y];
    if (i < p.width) arena[p.out + group.y * p.stride + i] = arena[p.x + row * p.stride + i];
}
