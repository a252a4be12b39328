// Products of a few rows: y = W x, for rows that are decoded.
//
// A SIMD group takes two rows of W (or one row of the gate and the same row of the other factor) and up to M rows of x; its
// lanes take groups of eight columns in turn, of which there are only whole ones. What a row of x gets does not depend on M nor
// on the rows beside it.

struct GemvPart {
    Matrix matrix;
    uint rows;     // rows of W
    uint out;      // in the arena
    uint stride;   // floats from one row of the output to the next
    uint bias;     // in the weights, or NONE
    uint residual; // in the arena, strided as the output, or NONE
    uint experts;  // in the arena: one Matrix for each expert
    uint pad[2];
};

struct GemvParams {
    uint x;          // in the arena
    uint x_stride;
    uint batch;      // rows of x, or chosen experts of all rows
    uint cols;
    uint norm;       // the weight of an RMS norm of x, in the weights, or NONE
    float eps;
    float offset;    // added to the norm's weight
    uint parts;      // outputs
    uint gate;       // part 0 is a gate for part 1; only the output of part 0 is written
    uint activation; // of the gate
    float scale;     // logits: scale, then the soft cap (none when 0)
    float cap;
    uint routes;     // pairs (expert, weight) of all rows in the arena, or NONE
    uint sharing;    // consecutive routes that have one row of x
    uint blocks;     // wide: blocks of rows of all parts
    uint groups;     // wide: threadgroups that share them
    GemvPart part[3];
};

// Eight numbers of a row whose columns are whole groups of eight.
inline void load_eight(device const float* x, uint eight, thread float* v) {
    device const float4* p = (device const float4*)x + 2 * eight;
    const float4 a = p[0], b = p[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// The sums of a lane: two rows of W, from their first groups of eight, by up to M rows of x.
template <typename Form, int M, bool NORM>
inline void gemv_sums(device const uint4* w, device const float* arena, const GemvParams p, const Matrix a, const Matrix b,
                      uint start_a, uint start_b, uint x_row, uint batch, uint lane, thread float* sum_a,
                      thread float* sum_b, thread float* squares) {
    // Several groups of eight at a time, so that their loads are under way together. A group beyond the last is the last again,
    // taken zero times.
    constexpr uint ahead = M == 1 ? 4 : 1;
    for (uint base = lane; base < a.eights; base += 32 * ahead) {
#pragma unroll
        for (uint step = 0; step < ahead; ++step) {
            const float there = base + 32 * step < a.eights ? 1.0f : 0.0f;
            const uint eight = min(base + 32 * step, a.eights - 1);
            float qa[8], qb[8], x[M][8];
            const float2 scale_a = Form::load(w, a, start_a + eight, qa), scale_b = Form::load(w, b, start_b + eight, qb);
            for (int m = 0; m < M; ++m) {
                // Rows beyond the last repeat it: no branch, and nothing is stored for them.
                const uint row = x_row + min(uint(m), batch - 1);
                load_eight(arena + p.x + row * p.x_stride, eight, x[m]);
            }
            if (NORM) {
                float g[8];
                load_eight(plane<float>(w, p.norm), eight, g);
                for (int m = 0; m < M; ++m) {
                    float square = 0.0f;
                    for (int i = 0; i < 8; ++i) {
                        square = fma(x[m][i], x[m][i], square);
                        x[m][i] *= g[i] + p.offset;
                    }
                    squares[m] = fma(there, square, squares[m]);
                }
            }
            for (int m = 0; m < M; ++m) {
                float dot_a = 0.0f, dot_b = 0.0f, total = 0.0f;
                for (int i = 0; i < 8; ++i) {
                    dot_a = fma(qa[i], x[m][i], dot_a);
                    dot_b = fma(qb[i], x[m][i], dot_b);
                    if (Form::HAS_MIN) total += x[m][i];
                }
                sum_a[m] = fma(there * scale_a.x, dot_a, sum_a[m]);
                sum_b[m] = fma(there * scale_b.x, dot_b, sum_b[m]);
                if (Form::HAS_MIN) {
                    sum_a[m] = fma(there * scale_a.y, total, sum_a[m]);
                    sum_b[m] = fma(there * scale_b.y, total, sum_b[m]);
                }
            }
        }
    }
}

// Choices and not an index: parameters that are indexed would have to lie in memory.
inline uint one_of(uint i, uint a, uint b, uint c) {
    return i == 0 ? a : i == 1 ? b : c;
}

inline GemvPart part_of(const GemvParams p, uint i) {
    GemvPart part;
    part.matrix.low = one_of(i, p.part[0].matrix.low, p.part[1].matrix.low, p.part[2].matrix.low);
    part.matrix.high = one_of(i, p.part[0].matrix.high, p.part[1].matrix.high, p.part[2].matrix.high);
    part.matrix.scale = one_of(i, p.part[0].matrix.scale, p.part[1].matrix.scale, p.part[2].matrix.scale);
    part.matrix.super = one_of(i, p.part[0].matrix.super, p.part[1].matrix.super, p.part[2].matrix.super);
    part.matrix.first = one_of(i, p.part[0].matrix.first, p.part[1].matrix.first, p.part[2].matrix.first);
    part.matrix.eights = p.part[0].matrix.eights;
    part.matrix.shift = one_of(i, p.part[0].matrix.shift, p.part[1].matrix.shift, p.part[2].matrix.shift);
    part.rows = one_of(i, p.part[0].rows, p.part[1].rows, p.part[2].rows);
    part.out = one_of(i, p.part[0].out, p.part[1].out, p.part[2].out);
    part.stride = one_of(i, p.part[0].stride, p.part[1].stride, p.part[2].stride);
    part.bias = one_of(i, p.part[0].bias, p.part[1].bias, p.part[2].bias);
    part.residual = one_of(i, p.part[0].residual, p.part[1].residual, p.part[2].residual);
    part.experts = one_of(i, p.part[0].experts, p.part[1].experts, p.part[2].experts);
    return part;
}

template <typename Form, int M>
inline void gemv(device const uint4* w, device float* arena, const GemvParams p, uint3 group, uint lane, uint sg) {
    // Which two rows of which parts.
    uint pair = group.x * 4 + sg, which = 0;
    if (!p.gate) {
        for (int i = 0; i < 2; ++i) {
            const uint pairs = (i == 0 ? p.part[0].rows + 1 : p.part[1].rows + 1) / 2;
            if (which == uint(i) && pair >= pairs) pair -= pairs, which = i + 1;
        }
    }
    const GemvPart first = part_of(p, which), second = part_of(p, p.gate ? 1 : which);
    const uint row_a = p.gate ? pair : 2 * pair;
    if (which >= p.parts || row_a >= first.rows) return;
    const bool has_b = !p.gate && row_a + 1 < first.rows;
    const uint row_b = has_b ? row_a + 1 : row_a;

    Matrix a = first.matrix, b = second.matrix;
    uint x_row = group.y * M;
    if (p.routes != NONE) {
        const uint expert = uint(arena[p.routes + 2 * group.y]);
        a = ((device const Matrix*)(arena + first.experts))[expert];
        b = ((device const Matrix*)(arena + second.experts))[expert];
        x_row = group.y / p.sharing;
    }
    const uint start_a = (a.first + row_a) * a.eights, start_b = (b.first + row_b) * b.eights;
    const uint batch = p.routes != NONE ? 1 : min(p.batch - group.y * M, uint(M));

    float sum_a[M], sum_b[M], squares[M];
    for (int m = 0; m < M; ++m) sum_a[m] = sum_b[m] = squares[m] = 0.0f;
    // Two loops instead of a branch in one.
    if (p.norm != NONE)
        gemv_sums<Form, M, true>(w, arena, p, a, b, start_a, start_b, x_row, batch, lane, sum_a, sum_b, squares);
    else gemv_sums<Form, M, false>(w, arena, p, a, b, start_a, start_b, x_row, batch, lane, sum_a, sum_b, squares);

    for (int m = 0; m < M; ++m) {
        float y_a = simd_sum(sum_a[m]), y_b = simd_sum(sum_b[m]);
        if (p.norm != NONE) {
            const float factor = rsqrt(simd_sum(squares[m]) / float(p.cols) + p.eps);
            y_a *= factor, y_b *= factor;
        }
        if (lane != 0 || uint(m) >= batch) continue;
        if (first.bias != NONE) y_a += plane<float>(w, first.bias)[row_a];
        if (second.bias != NONE) y_b += plane<float>(w, second.bias)[row_b];
        const uint y_row = (group.y * M + m) * first.stride;
        device float* y = arena + first.out + y_row;
        if (p.gate) {
            y[row_a] = activate(y_a, p.activation) * y_b;
            continue;
        }
        y_a = soft_cap(p.scale * y_a, p.cap), y_b = soft_cap(p.scale * y_b, p.cap);
        if (first.residual != NONE) y_a += arena[first.residual + y_row + row_a], y_b += arena[first.residual + y_row + row_b];
        y[row_a] = y_a;
        if (has_b) y[row_b] = y_b;
    }
}

#define GEMV_KERNEL(name, Form, M) \
    [[max_total_threads_per_threadgroup(128)]] kernel void gemv_##name##_##M( \
        device const uint4* w [[buffer(0)]], device float* arena [[buffer(1)]], constant GemvParams& p [[buffer(2)]], \
        uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]], \
        uint sg [[simdgroup_index_in_threadgroup]]) { \
        gemv<Form, M>(w, arena, p, group, lane, sg); \
    }
#define GEMV_KERNELS(name, Form) GEMV_KERNEL(name, Form, 1) GEMV_KERNEL(name, Form, 4)
ALL_FORMS(GEMV_KERNELS)

// Products of long rows, by the same parameters. A threadgroup takes four rows of W at a time (or two of the gate and the same two
// of the other factor); each of its threads takes 32 columns of a tile of 4096, which it holds in registers for all blocks of rows
// that the threadgroup takes when the whole row is one tile.

constant uint WIDE_ROWS = 4;
// In threadgroup memory: chunks of four columns, eight for each thread, padded against bank conflicts.
constant uint WIDE_PITCH = 129;

// Brings a tile of a row of x, times the norm's weight, to where its threads find it; gives the sum of a thread's squares.
template <typename Form>
inline float wide_stage(device const uint4* w, device const float4* x, const GemvParams p, uint tile, threadgroup float4* staged,
                        uint thread_index) {
    constexpr uint chunks = 2 * Form::Wide::EIGHTS;
    // All loads before the first use. What is beyond the last column is the last again, taken as zeros.
    const uint columns = p.cols / 4, first = 1024 * tile + thread_index;
    float4 v[8];
#pragma unroll
    for (uint i = 0; i < 8; ++i) v[i] = x[min(first + 128 * i, columns - 1)];
    float square = 0.0f;
    if (p.norm != NONE) {
        float4 g[8];
#pragma unroll
        for (uint i = 0; i < 8; ++i) g[i] = plane<float4>(w, p.norm)[min(first + 128 * i, columns - 1)];
#pragma unroll
        for (uint i = 0; i < 8; ++i) {
            const float there = first + 128 * i < columns ? 1.0f : 0.0f;
            square = fma(there, (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w), square);
            v[i] *= g[i] + p.offset;
        }
    }
#pragma unroll
    for (uint i = 0; i < 8; ++i) {
        const uint at = 128 * i + thread_index, unit = at / chunks;
        staged[(unit / 128 * chunks + at % chunks) * WIDE_PITCH + unit % 128] = first + 128 * i < columns ? v[i] : float4(0.0f);
    }
    return square;
}

template <typename Form>
inline void gemv_wide(device const uint4* w, device float* arena, const GemvParams p, threadgroup float4* staged,
                      threadgroup float* scratch, uint3 group, uint thread_index, uint lane, uint sg) {
    typedef typename Form::Wide Wide;
    constexpr uint eights = Wide::EIGHTS, units = 4 / Wide::EIGHTS;
    const uint tiles = (p.cols + 4095) / 4096, row_units = p.cols / (8 * eights), tile_units = 512 / eights;
    device const float4* x_row = (device const float4*)(arena + p.x + group.y * p.x_stride);
    float x[4][8], total[4], squares = 0.0f;
    uint now = NONE, turn = 0;
    for (uint block = group.x; block < p.blocks; block += p.groups, turn ^= 1) {
        uint at = block, which = 0;
        if (!p.gate) {
            for (int i = 0; i < 2; ++i) {
                const uint blocks = ((i == 0 ? p.part[0].rows : p.part[1].rows) + WIDE_ROWS - 1) / WIDE_ROWS;
                if (which == uint(i) && at >= blocks) at -= blocks, which = i + 1;
            }
        }
        const GemvPart first = part_of(p, which), second = part_of(p, p.gate ? 1 : which);
        const uint step = p.gate ? 2 : WIDE_ROWS, row = at * step;
        const Matrix a = first.matrix, b = second.matrix;
        uint start[WIDE_ROWS];
#pragma unroll
        for (uint r = 0; r < WIDE_ROWS; ++r)
            start[r] = ((r < 2 ? a.first : b.first) + min(row + (p.gate ? r % 2 : r), first.rows - 1)) * row_units;

        float sum[WIDE_ROWS];
#pragma unroll
        for (uint r = 0; r < WIDE_ROWS; ++r) sum[r] = 0.0f;
        for (uint tile = 0; tile < tiles; ++tile) {
            // A unit beyond the last is the first of the tile again, by zeros.
            Wide codes[units][WIDE_ROWS];
            float2 scale[units][WIDE_ROWS][eights];
#pragma unroll
            for (uint s = 0; s < units; ++s) {
                const uint mine = tile_units * tile + 128 * s + thread_index;
                const uint unit = mine < row_units ? mine : tile_units * tile;
#pragma unroll
                for (uint r = 0; r < WIDE_ROWS; ++r) {
                    const uint from = (start[r] + unit) * eights;
                    if (r < 2) codes[s][r].fetch(w, a, from);
                    else codes[s][r].fetch(w, b, from);
#pragma unroll
                    for (uint e = 0; e < eights; ++e)
                        scale[s][r][e] = r < 2 ? Form::scale(w, a, from + e) : Form::scale(w, b, from + e);
                }
            }
            if (now != tile) {
                now = tile;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                const float square = wide_stage<Form>(w, x_row, p, tile, staged, thread_index);
                squares = tile == 0 ? square : squares + square;
                threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
                for (uint j = 0; j < 4; ++j) {
                    const float4 a = staged[2 * j * WIDE_PITCH + thread_index];
                    const float4 b = staged[(2 * j + 1) * WIDE_PITCH + thread_index];
                    total[j] = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
                    x[j][0] = a.x, x[j][1] = a.y, x[j][2] = a.z, x[j][3] = a.w;
                    x[j][4] = b.x, x[j][5] = b.y, x[j][6] = b.z, x[j][7] = b.w;
#pragma unroll
                    for (uint i = 0; i < 8; ++i) x[j][i] *= 1.0f / float(1u << Wide::shift(i));
                }
            }
#pragma unroll
            for (uint s = 0; s < units; ++s) {
#pragma unroll
                for (uint r = 0; r < WIDE_ROWS; ++r) {
#pragma unroll
                    for (uint e = 0; e < eights; ++e) {
                        float q[8], dot = 0.0f;
                        Form::expand(codes[s][r], e, q);
#pragma unroll
                        for (uint i = 0; i < 8; ++i) dot = fma(q[i], x[s * eights + e][i], dot);
                        sum[r] = fma(scale[s][r][e].x, dot, sum[r]);
                        if (Form::HAS_MIN) sum[r] = fma(scale[s][r][e].y, total[s * eights + e], sum[r]);
                    }
                }
            }
        }

        // Two places in turn: whoever is a block ahead overwrites nothing that is still read.
        threadgroup float* part = scratch + turn * 4 * 5;
        float y[5];
#pragma unroll
        for (uint r = 0; r < WIDE_ROWS; ++r) y[r] = simd_sum(sum[r]);
        y[4] = simd_sum(squares);
#pragma unroll
        for (uint r = 0; r < 5; ++r)
            if (lane == 0) part[sg * 5 + r] = y[r];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint r = thread_index;
        if (r >= step || row + r >= first.rows) continue;
        float factor = 1.0f;
        if (p.norm != NONE)
            factor = rsqrt(((part[4] + part[9]) + (part[14] + part[19])) / float(p.cols) + p.eps);
        float out = factor * ((part[r] + part[5 + r]) + (part[10 + r] + part[15 + r]));
        if (first.bias != NONE) out += plane<float>(w, first.bias)[row + r];
        const uint place = group.y * first.stride + row + r;
        if (p.gate) {
            float z = factor * ((part[r + 2] + part[r + 7]) + (part[r + 12] + part[r + 17]));
            if (second.bias != NONE) z += plane<float>(w, second.bias)[row + r];
            out = activate(out, p.activation) * z;
        } else {
            out = soft_cap(p.scale * out, p.cap);
            if (first.residual != NONE) out += arena[first.residual + place];
        }
        arena[first.out + place] = out;
    }
}

#define WIDE_KERNEL(name, Form) \
    [[max_total_threads_per_threadgroup(128)]] kernel void wide_##name( \
        device const uint4* w [[buffer(0)]], device float* arena [[buffer(1)]], constant GemvParams& p [[buffer(2)]], \
        uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]], \
        uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { \
        threadgroup float4 staged[8 * WIDE_PITCH]; \
        threadgroup float scratch[2 * 4 * 5]; \
        gemv_wide<Form>(w, arena, p, staged, scratch, group, thread_index, lane, sg); \
    }
ALL_FORMS(WIDE_KERNEL)
