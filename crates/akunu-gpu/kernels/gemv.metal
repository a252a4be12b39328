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
    uint bias;     // in the vectors, or NONE
    uint residual; // in the arena, strided as the output, or NONE
    uint experts;  // in the arena: one Matrix for each expert
    uint pad[2];
};

struct GemvParams {
    uint x;          // in the arena
    uint x_stride;
    uint batch;      // rows of x, or chosen experts of all rows
    uint cols;
    uint norm;       // the weight of an RMS norm of x, in the vectors, or NONE
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
    uint rounds;     // wide: blocks that every SIMD group has at least
    uint rest;       // wide: SIMD groups that have one more
    uint room;       // wide, of several rows of x: bytes of threadgroup memory there are for these
    uint together;   // not wide: rows of x that a threadgroup takes, at most M
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
inline void gemv_sums(device const uint4* w, device const uint4* vectors, device const float* arena, PARAMS(GemvParams) p,
                      const Matrix a, const Matrix b, uint start_a, uint start_b, uint x_row, uint batch, uint lane, thread float* sum_a,
                      thread float* sum_b, thread float* squares) {
    // Several groups of eight at a time, so that their loads are under way together. A group beyond the last is the last again,
    // taken zero times.
    constexpr uint ahead = M == 1 ? 4 : 1;
    for (uint base = lane; base < a.eights; base += 32 * ahead) {
#pragma unroll
        for (uint step = 0; step < ahead; ++step) {
            const float there = base + 32 * step < a.eights ? 1.0f : 0.0f;
            const uint eight = min(base + 32 * step, a.eights - 1);
            float qa[8], qb[8], g[8];
            const float2 scale_a = Form::load(w, a, start_a + eight, qa), scale_b = Form::load(w, b, start_b + eight, qb);
            if (NORM) load_eight(plane<float>(vectors, p.norm), eight, g);
            // Up to four rows at a time: more would take too many registers.
            constexpr int together = M < 4 ? M : 4;
#pragma unroll
            for (int first = 0; first < M; first += together) {
                if (first > 0 && uint(first) >= batch) continue;
                float x[together][8];
#pragma unroll
                for (int j = 0; j < together; ++j) {
                    // Rows beyond the last repeat it: no branch, and nothing is stored for them.
                    const uint row = x_row + min(uint(first + j), batch - 1);
                    load_eight(arena + p.x + row * p.x_stride, eight, x[j]);
                }
#pragma unroll
                for (int j = 0; j < together; ++j) {
                    const int m = first + j;
                    if (NORM) {
                        float square = 0.0f;
                        for (int i = 0; i < 8; ++i) {
                            square = fma(x[j][i], x[j][i], square);
                            x[j][i] *= g[i] + p.offset;
                        }
                        squares[m] = fma(there, square, squares[m]);
                    }
                    float dot_a = 0.0f, dot_b = 0.0f, total = 0.0f;
                    for (int i = 0; i < 8; ++i) {
                        dot_a = fma(qa[i], x[j][i], dot_a);
                        dot_b = fma(qb[i], x[j][i], dot_b);
                        if (Form::HAS_MIN) total += x[j][i];
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
}

#if defined(SHIM_NVIDIA) && !defined(SHIM_WALK)
// Choices of values and not an index: parameters that are indexed would have to lie in memory.
inline uint one_of(uint i, uint a, uint b, uint c) {
    return i == 0 ? a : i == 1 ? b : c;
}
#define FIELD(f) part.f = one_of(i, p.part[0].f, p.part[1].f, p.part[2].f)
#else
#define FIELD(f) part.f = p.part[i].f
#endif

template <typename P> inline GemvPart part_of(PARAMS(P) p, uint i) {
    GemvPart part;
    FIELD(matrix.low);
    FIELD(matrix.high);
    FIELD(matrix.scale);
    FIELD(matrix.super);
    FIELD(matrix.first);
    part.matrix.eights = p.part[0].matrix.eights;
    FIELD(matrix.shift);
    FIELD(rows);
    FIELD(out);
    FIELD(stride);
    FIELD(bias);
    FIELD(residual);
    FIELD(experts);
    return part;
}

template <typename Form, int M>
inline void gemv(device const uint4* w, device const uint4* vectors, device float* arena, PARAMS(GemvParams) p, uint3 group,
                 uint lane, uint sg) {
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
    // One row each, where the kernel is for one.
    const uint first_row = M == 1 ? group.y : group.y * p.together;
    uint x_row = first_row;
    if (p.routes != NONE) {
        const uint expert = uint(arena[p.routes + 2 * group.y]);
        a = ((device const Matrix*)(arena + first.experts))[expert];
        b = ((device const Matrix*)(arena + second.experts))[expert];
        x_row = group.y / p.sharing;
    }
    const uint start_a = (a.first + row_a) * a.eights, start_b = (b.first + row_b) * b.eights;
    const uint batch = M == 1 ? 1 : min(p.batch - first_row, p.together);

    float sum_a[M], sum_b[M], squares[M];
    for (int m = 0; m < M; ++m) sum_a[m] = sum_b[m] = squares[m] = 0.0f;
    // Two loops instead of a branch in one.
    if (p.norm != NONE)
        gemv_sums<Form, M, true>(w, vectors, arena, p, a, b, start_a, start_b, x_row, batch, lane, sum_a, sum_b, squares);
    else gemv_sums<Form, M, false>(w, vectors, arena, p, a, b, start_a, start_b, x_row, batch, lane, sum_a, sum_b, squares);

#pragma unroll
    for (int m = 0; m < M; ++m) {
        if (m > 0 && uint(m) >= batch) break;
        float y_a = simd_sum(sum_a[m]), y_b = simd_sum(sum_b[m]);
        if (p.norm != NONE) {
            const float factor = rsqrt(simd_sum(squares[m]) / float(p.cols) + p.eps);
            y_a *= factor, y_b *= factor;
        }
        if (lane != 0) continue;
        if (first.bias != NONE) y_a += plane<float>(vectors, first.bias)[row_a];
        if (second.bias != NONE) y_b += plane<float>(vectors, second.bias)[row_b];
        const uint y_row = (first_row + m) * first.stride;
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
        device const uint4* w [[buffer(0)]], device float* arena [[buffer(1)]], device const uint4* vectors [[buffer(2)]], \
        constant GemvParams& p [[buffer(3)]], \
        uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]], \
        uint sg [[simdgroup_index_in_threadgroup]]) { \
        gemv<Form, M>(w, VECTORS_OF(w, vectors), arena, p, group, lane, sg); \
    }
#define GEMV_KERNELS(name, Form) GEMV_KERNEL(name, Form, 1) GEMV_KERNEL(name, Form, 8)
ALL_FORMS(GEMV_KERNELS)
