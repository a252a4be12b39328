// Products of many rows: Y = X W^T, for prompts, and for any rows whose columns are not whole groups of eight.
//
// A threadgroup computes 32 rows of X by 64 rows of W over steps of 32 columns held in threadgroup memory. Each of its four SIMD groups
// has 16 by 32 of them, as two by four matrices of 8 by 8. All are floats: nothing is too large or lost, and Apple's GPUs multiply
// halves no faster.

struct GemmParams {
    Matrix matrix;
    uint x;        // in the arena
    uint x_stride;
    uint batch;    // rows of X
    uint cols;
    uint rows;     // rows of W
    uint out;      // in the arena
    uint stride;
    uint bias;     // in the vectors, or NONE
    uint residual; // in the arena, strided as the output, or NONE
    float scale;   // logits: scale, then the soft cap (none when 0)
    float cap;
    uint pad;
};

constant constexpr uint TILE_W = 64;
constant constexpr uint TILE_X = 32;
constant constexpr uint TILE_K = 32;
// Rows of tiles in threadgroup memory, and of products there: padded against bank conflicts and still 16-byte aligned.
constant constexpr uint PITCH = 36;
constant constexpr uint PITCH_OUT = 68;

inline void store_eight(threadgroup float* to, const thread float* from) {
    *(threadgroup float4*)to = float4(from[0], from[1], from[2], from[3]);
    *(threadgroup float4*)(to + 4) = float4(from[4], from[5], from[6], from[7]);
}

// Eight columns of a row of X from column k on, zeros where there are none.
inline void load_columns(device const float* row, uint k, uint cols, thread float* x) {
    if (k + 8 <= cols) load_eight(row, k / 8, x);
    else for (uint c = 0; c < 8; ++c) x[c] = k + c < cols ? row[k + c] : 0.0f;
}

// `tiles` holds both tiles, and then the products.
template <typename Form>
inline void gemm(device const uint4* w, device const uint4* vectors, device float* arena, const GemmParams p,
                 threadgroup float* tiles, uint3 group, uint thread_index, uint sg) {
    threadgroup float* tile_w = tiles;
    threadgroup float* tile_x = tiles + TILE_W * PITCH;
    const uint first_w = group.x * TILE_W, first_x = group.y * TILE_X;
    const uint my_w = sg % 2 * 32, my_x = sg / 2 * 16;
    // At edges, some have nothing to multiply.
    const bool is_needed = first_w + my_w < p.rows && first_x + my_x < p.batch;
    simdgroup_float8x8 sum[2][4];
#pragma unroll
    for (uint i = 0; i < 2; ++i)
#pragma unroll
        for (uint j = 0; j < 4; ++j) sum[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint k = 0; k < p.cols; k += TILE_K) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = thread_index; i < TILE_W * TILE_K / 8; i += 128) {
            const uint row = i / (TILE_K / 8), eight = i % (TILE_K / 8), at = k / 8 + eight;
            float q[8];
            float2 scale = float2(0.0f, 0.0f);
            for (int c = 0; c < 8; ++c) q[c] = 0.0f;
            if (first_w + row < p.rows && at < p.matrix.eights)
                scale = Form::load(w, p.matrix, (p.matrix.first + first_w + row) * p.matrix.eights + at, q);
            for (int c = 0; c < 8; ++c) q[c] = scale.x * q[c] + scale.y;
            store_eight(tile_w + row * PITCH + 8 * eight, q);
        }
        for (uint i = thread_index; i < TILE_X * TILE_K / 8; i += 128) {
            const uint row = i / (TILE_K / 8), eight = i % (TILE_K / 8);
            float x[8];
            // Rows beyond the last repeat it: nothing is stored for them.
            load_columns(arena + p.x + min(first_x + row, p.batch - 1) * p.x_stride, k + 8 * eight, p.cols, x);
            store_eight(tile_x + row * PITCH + 8 * eight, x);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint c = 0; is_needed && c < TILE_K; c += 8) {
            simdgroup_float8x8 x[2], columns[4];
#pragma unroll
            for (uint i = 0; i < 2; ++i) simdgroup_load(x[i], tile_x + (my_x + 8 * i) * PITCH + c, PITCH);
#pragma unroll
            for (uint j = 0; j < 4; ++j)
                simdgroup_load(columns[j], tile_w + (my_w + 8 * j) * PITCH + c, PITCH, ulong2(0, 0), true);
#pragma unroll
            for (uint i = 0; i < 2; ++i)
#pragma unroll
                for (uint j = 0; j < 4; ++j) simdgroup_multiply_accumulate(sum[i][j], x[i], columns[j], sum[i][j]);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (is_needed) {
#pragma unroll
        for (uint i = 0; i < 2; ++i)
#pragma unroll
            for (uint j = 0; j < 4; ++j)
                simdgroup_store(sum[i][j], tiles + (my_x + 8 * i) * PITCH_OUT + my_w + 8 * j, PITCH_OUT);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = thread_index; i < TILE_W * TILE_X; i += 128) {
        const uint x_row = first_x + i / TILE_W, w_row = first_w + i % TILE_W;
        if (x_row >= p.batch || w_row >= p.rows) continue;
        float y = tiles[i / TILE_W * PITCH_OUT + i % TILE_W];
        if (p.bias != NONE) y += plane<float>(vectors, p.bias)[w_row];
        y = soft_cap(p.scale * y, p.cap);
        if (p.residual != NONE) y += arena[p.residual + x_row * p.stride + w_row];
        arena[p.out + x_row * p.stride + w_row] = y;
    }
}

#define GEMM_KERNEL(name, Form) \
    [[max_total_threads_per_threadgroup(128)]] kernel void gemm_##name( \
        device const uint4* w [[buffer(0)]], device float* arena [[buffer(1)]], device const uint4* vectors [[buffer(2)]], \
        constant GemmParams& p [[buffer(3)]], \
        uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]], \
        uint sg [[simdgroup_index_in_threadgroup]]) { \
        threadgroup float4 tiles[(TILE_W + TILE_X) * PITCH / 4]; \
        gemm<Form>(w, VECTORS_OF(w, vectors), arena, p, (threadgroup float*)tiles, group, thread_index, sg); \
    }
ALL_FORMS(GEMM_KERNEL)
