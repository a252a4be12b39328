// Mixtures of experts: choosing them, and adding what they gave. Their products are those of gemv.metal.

struct RouteParams {
    uint logits; // in the arena
    uint stride;
    uint experts; // at most 1024
    uint chosen;
    uint out; // pairs (expert, weight), in the arena
    uint normalize;
    uint pad[2];
};

// One SIMD group for each row; best first, the lower index first among equals.
[[max_total_threads_per_threadgroup(32)]]
kernel void route(
    device float*         arena [[buffer(0)]],
    constant RouteParams& p     [[buffer(1)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint  lane  [[thread_index_in_simdgroup]])
{
    device const float* logits = arena + p.logits + group.y * p.stride;
    device float* out = arena + p.out + group.y * 2 * p.chosen;
    float largest = negative_infinity(), total = 0.0f;
    for (uint e = lane; e < p.experts; e += 32) largest = max(largest, logits[e]);
    largest = simd_max(largest);
    for (uint e = lane; e < p.experts; e += 32) total += exp(logits[e] - largest);
    total = simd_sum(total);
    uint taken = 0; // bit j: expert lane + 32 j
    float kept = 0.0f;
    for (uint c = 0; c < p.chosen; ++c) {
        float value = negative_infinity();
        uint index = p.experts - 1;
        for (uint j = 0; lane + 32 * j < p.experts; ++j)
            if (!((taken >> j) & 1) && logits[lane + 32 * j] > value) value = logits[lane + 32 * j], index = lane + 32 * j;
        const float best = simd_max(value);
        const uint winner = simd_min(value == best ? index : p.experts - 1);
        if (winner % 32 == lane) taken |= 1u << (winner / 32);
        const float weight = exp(best - largest);
        kept += weight;
        if (lane == 0) out[2 * c] = float(winner), out[2 * c + 1] = weight;
    }
    simdgroup_barrier(mem_flags::mem_device);
    for (uint c = lane; c < p.chosen; c += 32) out[2 * c + 1] /= p.normalize ? kept : total;
}

struct MixParams {
    uint x; // in the arena: [row][chosen][width]
    uint x_stride;
    uint routes;
    uint chosen;
    uint out;
    uint stride;
    uint width;
    uint pad;
};

// The weighted sum of what the chosen experts gave.
[[max_total_threads_per_threadgroup(128)]]
kernel void mix(
    device float*       arena [[buffer(0)]],
    constant MixParams& p     [[buffer(1)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const uint i = group.x * 128 + thread_index;
    if (i >= p.width) return;
    float y = 0.0f;
    for (uint c = 0; c < p.chosen; ++c) {
        const uint route = group.y * p.chosen + c;
        y += arena[p.routes + 2 * route + 1] * arena[p.x + route * p.x_stride + i];
    }
    arena[p.out + group.y * p.stride + i] = y;
}
