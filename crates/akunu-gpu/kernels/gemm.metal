// Products of many rows: Y = X W^T, for prompts, and for any rows whose columns are not whole groups of eight.
//
// A threadgroup computes 64 rows of W by 32 rows of X, each of its 128 threads four by four, over steps of 32 columns held in
// threadgroup memory.

struct GemmParams {
    Matrix matrix;
    uint x;        // in the arena
    uint x_stride;
    uint batch;    // rows of X
    uint cols;
    uint rows;     // rows of W
    uint out;      // in the arena
    uint stride;
    uint bias;     // in the weights, or NONE
    uint residual; // in the arena, strided as the output, or NONE
    float scale;   // logits: scale, then the soft cap (none when 0)
    float cap;
    uint pad;
};

constant uint TILE_W = 64;
constant uint TILE_X = 32;
constant uint TILE_K = 32;
// Rows of the tiles in threadgroup memory, padded against bank conflicts and still 16-byte aligned.
constant uint PITCH_W = 68;
constant uint PITCH_X = 36;

template <typename Form>
inline void gemm(device const uint4* w, device float* arena, const GemmParams p, threadgroup float* tile_w,
                 threadgroup float* tile_x, uint3 group, uint thread_index) {
    const uint first_w = group.x * TILE_W, first_x = group.y * TILE_X;
    const uint my_w = thread_index % 16 * 4, my_x = thread_index / 16 * 4;
    float sum[4][4];
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] = 0.0f;
    for (uint k = 0; k < p.cols; k += TILE_K) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = thread_index; i < TILE_W * TILE_K / 8; i += 128) {
            const uint row = i % TILE_W, eight = i / TILE_W, at = k / 8 + eight;
            float q[8];
            float2 scale = float2(0.0f, 0.0f);
            for (int c = 0; c < 8; ++c) q[c] = 0.0f;
            if (first_w + row < p.rows && at < p.matrix.eights)
                scale = Form::load(w, p.matrix, (p.matrix.first + first_w + row) * p.matrix.eights + at, q);
            for (int c = 0; c < 8; ++c) tile_w[(8 * eight + c) * PITCH_W + row] = scale.x * q[c] + scale.y;
        }
        for (uint i = thread_index; i < TILE_X * TILE_K / 8; i += 128) {
            const uint row = i % TILE_X, eight = i / TILE_X;
            float x[8];
            device const float* from = arena + p.x + (first_x + row) * p.x_stride + k + 8 * eight;
            for (uint c = 0; c < 8; ++c) x[c] = first_x + row < p.batch && k + 8 * eight + c < p.cols ? from[c] : 0.0f;
            for (int c = 0; c < 8; ++c) tile_x[(8 * eight + c) * PITCH_X + row] = x[c];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint c = 0; c < TILE_K; ++c) {
            const float4 a = *(threadgroup const float4*)(tile_w + c * PITCH_W + my_w);
            const float4 b = *(threadgroup const float4*)(tile_x + c * PITCH_X + my_x);
            const float wa[4] = {a.x, a.y, a.z, a.w}, xb[4] = {b.x, b.y, b.z, b.w};
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) sum[i][j] = fma(wa[i], xb[j], sum[i][j]);
        }
    }
    for (int j = 0; j < 4; ++j) {
        const uint x_row = first_x + my_x + j;
        if (x_row >= p.batch) continue;
        for (int i = 0; i < 4; ++i) {
            const uint w_row = first_w + my_w + i;
            if (w_row >= p.rows) continue;
            float y = sum[i][j];
            if (p.bias != NONE) y += plane<float>(w, p.bias)[w_row];
            y = soft_cap(p.scale * y, p.cap);
            if (p.residual != NONE) y += arena[p.residual + x_row * p.stride + w_row];
            arena[p.out + x_row * p.stride + w_row] = y;
        }
    }
}

#define GEMM_KERNEL(name, Form) \
    [[max_total_threads_per_threadgroup(128)]] kernel void gemm_##name( \
        device const uint4* w [[buffer(0)]], device float* arena [[buffer(1)]], constant GemmParams& p [[buffer(2)]], \
        uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]]) { \
        threadgroup float tile_w[TILE_K * PITCH_W]; \
        threadgroup float tile_x[TILE_K * PITCH_X]; \
        gemm<Form>(w, arena, p, tile_w, tile_x, group, thread_index); \
    }
ALL_FORMS(GEMM_KERNEL)
