// Products of long rows: y = W x, by the parameters of gemv.metal.
//
// Threadgroups stay: as many as run at once share the rows of W. Each brings x to threadgroup memory, in tiles of columns, and its
// sixteen SIMD groups read it there. Each of these takes blocks of ROWS rows of W (or half as many of the gate and the same of the
// other factor), each lane TURNS units of columns (one load of codes each) of all of them at a time. Several such loads are under way
// before the first is used, and they began before x was there; SIMD groups never wait for each other in between. Products of many rows
// take four at a time, those of few rows two or one, so that all SIMD groups have some.
//
// Lanes' sums meet after every segment of columns, so that what a row gets does not depend on how large tiles are.

constant constexpr uint WIDE_GROUPS = 16;
constant constexpr uint WIDE_SEGMENT = 2048;
// Blocks of a SIMD group whose sums are kept from tile to tile.
constant constexpr uint WIDE_ROUNDS = 32;
// Columns of a tile.
#ifndef WIDE_STAGED
#define WIDE_STAGED 4096
#endif

// What a lane fetches at a time.
template <typename Form, int SPANS, int ROWS, int TURNS> struct WideLoad {
    typename Form::Wide codes[ROWS][TURNS];
    typename Form::Scale scale[ROWS][TURNS][SPANS];
};

// Columns of a row of x in threadgroup memory, by units: VECTORS vectors of 16 bytes and FACTORS numbers for each, those of all units
// after one another. Vectors are one unit further apart than there are units, so that lanes that store do not meet in a bank.

// x as floats.
template <typename Form> struct FloatInput {
    enum { EIGHTS = Form::Wide::EIGHTS, UNIT = 8 * EIGHTS };
    enum { SPAN = UNIT, SPANS = 1, VECTORS = 2 * EIGHTS, FACTORS = 0 };
    // Loads under way besides: more would take registers that must then be kept in memory.
    enum { AHEAD = sizeof(typename Form::Wide) == 16 && EIGHTS == 1 ? 2 : 1 };
    float x[EIGHTS][8], there;

    // Stores a group of eight of a tile of so many units.
    static inline void store(thread const float* v, uint eight, bool is_there, threadgroup uint4* staged, threadgroup float*,
                             uint units) {
        if (!is_there) return;
        const uint pitch = units + 1;
        threadgroup float4* to = (threadgroup float4*)staged + eight % EIGHTS * 2 * pitch + eight / EIGHTS;
        to[0] = float4(v[0], v[1], v[2], v[3]), to[pitch] = float4(v[4], v[5], v[6], v[7]);
    }

    inline void load(threadgroup const uint4* staged, threadgroup const float*, uint units, uint unit, bool is_there) {
        const uint pitch = units + 1;
        there = is_there ? 1.0f : 0.0f;
#pragma unroll
        for (uint e = 0; e < EIGHTS; ++e) {
            threadgroup const float4* from = (threadgroup const float4*)staged + 2 * e * pitch + unit;
            const float4 a = from[0], b = from[pitch];
            x[e][0] = a.x, x[e][1] = a.y, x[e][2] = a.z, x[e][3] = a.w;
            x[e][4] = b.x, x[e][5] = b.y, x[e][6] = b.z, x[e][7] = b.w;
        }
    }

    // A unit of a row of W as it is multiplied.
    struct Factor {
        float q[EIGHTS][8], scale;
        inline void make(const typename Form::Wide codes, thread const typename Form::Scale* of) {
#pragma unroll
            for (uint e = 0; e < EIGHTS; ++e) {
                float eight[8];
                Form::expand(codes, e, eight);
#pragma unroll
                for (uint i = 0; i < 8; ++i) q[e][i] = eight[i];
            }
            scale = of[0].value().x;
        }
        inline void settle() {
#pragma unroll
            for (uint i = 0; i < 8 * EIGHTS; ++i) q[i / 8][i % 8] = settled(q[i / 8][i % 8]);
        }
    };

    // Adds what one row of W gives.
    inline float dot(const thread Factor& w, float sum) const {
        float y = 0.0f;
#pragma unroll
        for (uint e = 0; e < EIGHTS; ++e) {
#pragma unroll
            for (uint i = 0; i < 8; ++i) y = fma(w.q[e][i], x[e][i], y);
        }
        return fma(there * w.scale, y, sum);
    }
};

// x as integers of 16 bits under one scale for a unit, their upper and lower bytes apart: dots with codes are exact.
template <typename Form> struct IntegerInput {
    enum { EIGHTS = Form::Wide::EIGHTS, UNIT = 8 * EIGHTS };
    // Columns that share a scale of W, of a unit.
    enum { SPAN = int(Form::SPAN) < int(UNIT) ? int(Form::SPAN) : int(UNIT), SPANS = UNIT / SPAN };
    enum { WORDS = UNIT / 4, VECTORS = WORDS / 2, FACTORS = 1 + SPANS };
    enum { AHEAD = 1 };
    uint high[WORDS], low[WORDS];
    float factor, total[SPANS];

    // Stores a group of eight of a tile of so many units; the lanes of a unit do so together.
    static inline void store(thread const float* v, uint eight, bool is_there, threadgroup uint4* staged,
                             threadgroup float* factors, uint units) {
        // What is no number, or has no end, is nothing as an integer: the factor carries it on. Else this stays zero.
        float largest = 0.0f, broken = 0.0f;
#pragma unroll
        for (uint i = 0; i < 8; ++i) largest = max(largest, abs(v[i])), broken += v[i] * 0.0f;
#pragma unroll
        for (uint m = 1; m < EIGHTS; m *= 2) {
            largest = max(largest, simd_shuffle_xor(largest, m));
            broken += simd_shuffle_xor(broken, m);
        }
        const float inverse = largest > 1e-30f && broken == 0.0f ? 32767.0f / largest : 0.0f;
        int q[8], whole = 0;
        float sum = 0.0f;
#pragma unroll
        for (uint i = 0; i < 8; ++i) {
            q[i] = broken == 0.0f ? nearest(v[i] * inverse) : 0;
            whole += q[i], sum += v[i];
        }
        // Codes around a middle need the sum of integers, minima that of numbers.
        if (Form::HAS_MIN) {
#pragma unroll
            for (uint m = 1; m < SPAN / 8; m *= 2) sum += simd_shuffle_xor(sum, m);
        } else {
#pragma unroll
            for (uint m = 1; m < SPAN / 8; m *= 2) whole += simd_shuffle_xor(whole, m);
        }
        if (!is_there) return;
        const uint unit = eight / EIGHTS, e = eight % EIGHTS;
        if (e == 0) factors[unit] = largest * (1.0f / 32767.0f) + broken;
        if (e % (SPAN / 8) == 0) factors[units * (1 + e / (SPAN / 8)) + unit] = Form::HAS_MIN ? sum : as_type<float>(whole);
        // Bytes in the order of the codes'.
        threadgroup uint* words = (threadgroup uint*)staged + 4 * unit;
        const uint pitch = units + 1, below = WORDS * pitch;
        if (Form::BITS < 4) {
            threadgroup ushort* pairs = (threadgroup ushort*)(words + e / 2 * 4 * pitch) + e % 2;
#pragma unroll
            for (uint i = 0; i < 4; ++i) {
                pairs[2 * i] = ushort(((q[i] >> 8) & 255) | (((q[i + 4] >> 8) & 255) << 8));
                pairs[2 * i + 2 * below] = ushort((q[i] & 255) | ((q[i + 4] & 255) << 8));
            }
            return;
        }
        threadgroup uint* to = words + e / 2 * 4 * pitch + e % 2 * 2;
        const uint step = Form::BITS == 8 ? 1 : 2;
#pragma unroll
        for (uint k = 0; k < 2; ++k) {
            const uint first = Form::BITS == 8 ? 4 * k : k;
            uint upper, lower;
            part_bytes(q[first], q[first + step], q[first + 2 * step], q[first + 3 * step], &upper, &lower);
            to[k] = upper, to[k + below] = lower;
        }
    }

    inline void load(threadgroup const uint4* staged, threadgroup const float* factors, uint units, uint unit, bool is_there) {
        const uint pitch = units + 1;
#pragma unroll
        for (uint v = 0; v < WORDS / 4; ++v) {
            const uint4 h = staged[v * pitch + unit], l = staged[(WORDS / 4 + v) * pitch + unit];
            high[4 * v] = h.x, high[4 * v + 1] = h.y, high[4 * v + 2] = h.z, high[4 * v + 3] = h.w;
            low[4 * v] = l.x, low[4 * v + 1] = l.y, low[4 * v + 2] = l.z, low[4 * v + 3] = l.w;
        }
        factor = is_there ? factors[unit] : 0.0f;
#pragma unroll
        for (uint s = 0; s < SPANS; ++s) total[s] = is_there ? factors[units * (1 + s) + unit] : 0.0f;
    }

    struct Factor {
        uint words[WORDS];
        float2 scale[SPANS];
        inline void make(const typename Form::Wide codes, thread const typename Form::Scale* of) {
#pragma unroll
            for (uint k = 0; k < WORDS; ++k) words[k] = codes.bytes(k);
#pragma unroll
            for (uint s = 0; s < SPANS; ++s) scale[s] = of[s].value();
        }
        inline void settle() {
#pragma unroll
            for (uint k = 0; k < WORDS; ++k) words[k] = settled(words[k]);
        }
    };

    inline float dot(const thread Factor& w, float sum) const {
#pragma unroll
        for (uint s = 0; s < SPANS; ++s) {
            int upper = 0;
            uint lower = 0;
#pragma unroll
            for (uint k = s * SPAN / 4; k < (s + 1) * SPAN / 4; ++k) {
                upper = dot_signed(w.words[k], high[k], upper), lower = dot_unsigned(w.words[k], low[k], lower);
            }
            int whole = 256 * upper + int(lower);
            if (Form::ZERO != 0) whole -= int(Form::ZERO) * as_type<int>(total[s]);
            sum = fma(factor * w.scale[s].x, float(whole), sum);
            if (Form::HAS_MIN) sum = fma(w.scale[s].y, total[s], sum);
        }
        return sum;
    }
};

// Eight numbers of x as a norm has them before its factor; gives the sum of their squares.
inline float wide_normed(device const uint4* vectors, PARAMS(GemvParams) p, uint eight, thread float* v) {
    float g[8], square = 0.0f;
    load_eight(plane<float>(vectors, p.norm), eight, g);
#pragma unroll
    for (uint i = 0; i < 8; ++i) {
        square = fma(v[i], v[i], square);
        v[i] *= g[i] + p.offset;
    }
    return square;
}

// Brings a tile of a row of x, times the norm's weight, to threadgroup memory; gives the sum of a thread's squares.
template <typename Input>
inline float wide_stage(device const uint4* vectors, device const float* x, PARAMS(GemvParams) p, uint first, uint eights,
                        threadgroup uint4* staged, threadgroup float* factors, uint thread_index) {
    float square = 0.0f, next[8];
    load_eight(x, first + min(thread_index, eights - 1), next);
    for (uint base = 0; base < eights; base += 32 * WIDE_GROUPS) {
        const uint eight = base + thread_index;
        const bool is_there = eight < eights;
        float v[8];
#pragma unroll
        for (uint i = 0; i < 8; ++i) v[i] = next[i];
        if (base + 32 * WIDE_GROUPS < eights) load_eight(x, first + min(eight + 32 * WIDE_GROUPS, eights - 1), next);
        if (p.norm != NONE) {
            const float part = wide_normed(vectors, p, first + min(eight, eights - 1), v);
            square += is_there ? part : 0.0f;
        }
        Input::store(v, eight, is_there, staged, factors, WIDE_STAGED / Input::UNIT);
    }
    return square;
}

// Which part a block belongs to; the block becomes one of that part's.
template <int ROWS> inline uint wide_part(PARAMS(GemvParams) p, thread uint* block) {
    if (p.gate) return 0;
    uint which = 0;
    const uint first = (p.part[0].rows + ROWS - 1) / ROWS, second = (p.part[1].rows + ROWS - 1) / ROWS;
    if (*block >= first) *block -= first, which = 1;
    if (which == 1 && *block >= second) *block -= second, which = 2;
    return which;
}

// Where a SIMD group is in its blocks of one tile.
template <int ROWS, int TURNS> struct WideCursor {
    // Rows of the gate in a block.
    enum { HALF = ROWS > 1 ? ROWS / 2 : 1 };
    Matrix a, b;
    uint block, step;
    uint start[ROWS]; // of the rows, in units

    inline void begin(PARAMS(GemvParams) p, uint row_units) {
        uint at = block;
        const uint which = wide_part<ROWS>(p, &at);
        const GemvPart first = part_of(p, which), second = part_of(p, p.gate ? 1 : which);
        a = first.matrix, b = second.matrix, step = 0;
        const uint row = at * (p.gate ? HALF : ROWS), last = first.rows - 1;
        // Rows beyond the last repeat it, and nothing is stored for them.
#pragma unroll
        for (uint r = 0; r < ROWS; ++r)
            start[r] = ((r < HALF ? a.first : b.first) + min(row + (p.gate ? r % HALF : r), last)) * row_units;
    }

    // Fetches what a lane takes next, from the units of a tile that begins at `tile`. Units beyond the last repeat it, and count for
    // nothing.
    template <typename Form, typename Input>
    inline void fetch(device const uint4* w, uint tile, uint units, uint lane,
                      thread WideLoad<Form, Input::SPANS, ROWS, TURNS>* load) const {
#pragma unroll
        for (uint t = 0; t < TURNS; ++t) {
            const uint unit = tile + min(lane + 32 * (TURNS * step + t), units - 1);
#pragma unroll
            for (uint r = 0; r < ROWS; ++r) {
                const uint at = (start[r] + unit) * Input::EIGHTS;
                if (r < HALF) load->codes[r][t].fetch(w, a, at);
                else load->codes[r][t].fetch(w, b, at);
#pragma unroll
                for (uint s = 0; s < Input::SPANS; ++s) {
                    if (r < HALF) load->scale[r][t][s].fetch(w, a, at + s * Input::SPAN / 8);
                    else load->scale[r][t][s].fetch(w, b, at + s * Input::SPAN / 8);
                }
            }
        }
    }
};

// Sums over a SIMD group: each row's get an equal share of its lanes.
template <int ROWS> inline float wide_sum(thread const float* sum, uint lane) {
    const bool upper = (lane & 16) != 0, odd = (lane & 8) != 0;
    float y;
    if (ROWS == 4) {
        const float a = (upper ? sum[2] : sum[0]) + simd_shuffle_xor(upper ? sum[0] : sum[2], 16);
        const float b = (upper ? sum[3] : sum[1]) + simd_shuffle_xor(upper ? sum[1] : sum[3], 16);
        y = (odd ? b : a) + simd_shuffle_xor(odd ? a : b, 8);
    } else {
        if (ROWS == 2) y = (upper ? sum[1] : sum[0]) + simd_shuffle_xor(upper ? sum[0] : sum[1], 16);
        else y = sum[0] + simd_shuffle_xor(sum[0], 16);
        y += simd_shuffle_xor(y, 8);
    }
    y += simd_shuffle_xor(y, 4);
    y += simd_shuffle_xor(y, 2);
    return y + simd_shuffle_xor(y, 1);
}

// Where the sum of a lane's row of a block goes, and what is added to it: fetched before it is needed.
template <int ROWS> struct WideOutput {
    enum { HALF = ROWS > 1 ? ROWS / 2 : 1, LANES = 32 / ROWS };
    uint place;
    bool writes;
    float bias, residual;

    // For row `y_row` of the output; of lanes that share a sum, one speaks.
    inline void begin(device const uint4* vectors, device const float* arena, PARAMS(GemvParams) p, uint block, uint y_row, uint lane,
                      bool speaks) {
        uint at = block;
        const uint which = wide_part<ROWS>(p, &at), r = lane / LANES;
        const GemvPart part = part_of(p, which);
        const uint row = p.gate ? at * HALF + r % HALF : at * ROWS + r;
        const uint from = p.gate && r >= HALF ? p.part[1].bias : part.bias;
        const bool is_there = row < part.rows;
        writes = is_there && speaks && (!p.gate || r < HALF);
        place = part.out + y_row * part.stride + row;
        bias = is_there && from != NONE ? plane<float>(vectors, from)[row] : 0.0f;
        residual = writes && part.residual != NONE ? arena[part.residual + y_row * part.stride + row] : 0.0f;
    }

    inline void finish(device float* arena, PARAMS(GemvParams) p, float sum) const {
        const float y = sum + bias, other = simd_shuffle_xor(y, 16);
        if (!writes) return;
        arena[place] = p.gate ? activate(y, p.activation) * other : soft_cap(p.scale * y, p.cap) + residual;
    }
};

template <typename Form, typename Input, int ROWS>
inline void gemv_wide(device const uint4* w, device const uint4* vectors, device float* arena, PARAMS(GemvParams) p,
                      threadgroup uint4* staged, threadgroup float* factors, threadgroup float* sums, threadgroup float* squares, uint3 group,
                      uint thread_index, uint lane, uint sg) {
    // With few rows a lane has as many loads under way as with four, but for what lies in another segment.
    enum { SEGMENT = WIDE_SEGMENT / (32 * Input::UNIT), TURNS = 4 / ROWS < SEGMENT ? 4 / ROWS : SEGMENT, LANES = 32 / ROWS };
    enum { UNITS = WIDE_STAGED / Input::UNIT };
    constexpr uint ahead = Input::AHEAD, segment = SEGMENT / TURNS;
    const uint row_units = p.cols / Input::UNIT, stride = p.groups * WIDE_GROUPS, first_block = sg * p.groups + group.x;
    // Blocks of this SIMD group, and of the first one, which has most.
    const uint rounds = p.rounds + (first_block < p.rest ? 1 : 0), most = p.rounds + (group.x < p.rest ? 1 : 0);
    const uint together = row_units <= UNITS ? most : WIDE_ROUNDS;
    device const float* x = arena + p.x + group.y * p.x_stride;
    float square = 0.0f, factor = 1.0f;
    for (uint begun = 0; begun < most; begun += together) {
        const uint mine = min(max(rounds, begun) - begun, together);
        for (uint tile = 0; tile < row_units; tile += UNITS) {
            const uint units = min(uint(UNITS), row_units - tile), steps = (units + 32 * TURNS - 1) / (32 * TURNS);
            const uint count = mine * steps;
            const bool is_last = tile + units == row_units;
            WideLoad<Form, Input::SPANS, ROWS, TURNS> loads[ahead];
            WideCursor<ROWS, TURNS> cursor;
            WideOutput<ROWS> output;
            cursor.block = first_block + begun * stride;
            uint block = cursor.block;
            if (count > 0) cursor.begin(p, row_units);
#pragma unroll
            for (uint d = 0; d < ahead; ++d) {
                if (d >= count) break;
                cursor.template fetch<Form, Input>(w, tile, units, lane, &loads[d]);
                if (++cursor.step == steps && d + 1 < count) cursor.block += stride, cursor.begin(p, row_units);
            }
            if (begun == 0 || row_units > UNITS) {
                // What is overwritten is no longer read.
                if (tile > 0 || begun > 0) whole_barrier();
                const float part =
                    wide_stage<Input>(vectors, x, p, tile * Input::EIGHTS, units * Input::EIGHTS, staged, factors, thread_index);
                if (p.norm != NONE && begun == 0) {
                    square += part;
                    const float of_group = simd_sum(square);
                    if (lane == 0) squares[sg] = of_group;
                }
                if (count > 0 && is_last) output.begin(vectors, arena, p, block, group.y, lane, lane % LANES == 0);
                whole_barrier();
                if (p.norm != NONE && is_last) {
                    float total = 0.0f;
                    for (uint i = 0; i < WIDE_GROUPS; ++i) total += squares[i];
                    factor = rsqrt(total / float(p.cols) + p.eps);
                }
            }
            float sum[ROWS], y = 0.0f;
#pragma unroll
            for (uint r = 0; r < ROWS; ++r) sum[r] = 0.0f;
            uint step = 0, place = sg * ROWS + lane / LANES;
            if (tile > 0) y = sums[place];
            for (uint i = 0; i < count; i += ahead) {
#pragma unroll
                for (uint d = 0; d < ahead; ++d) {
                    if (i + d >= count) break;
#pragma unroll
                    for (uint t = 0; t < TURNS; ++t) {
                        const uint unit = lane + 32 * (TURNS * step + t);
                        Input columns;
                        columns.load(staged, factors, UNITS, min(unit, units - 1), unit < units);
#pragma unroll
                        for (uint r = 0; r < ROWS; ++r) {
                            typename Input::Factor row;
                            row.make(loads[d].codes[r][t], loads[d].scale[r][t]);
                            sum[r] = settled(columns.dot(row, sum[r]));
                        }
                    }
                    if (i + d + ahead < count) {
                        cursor.template fetch<Form, Input>(w, tile, units, lane, &loads[d]);
                        if (++cursor.step == steps && i + d + ahead + 1 < count)
                            cursor.block += stride, cursor.begin(p, row_units);
                    }
                    ++step;
                    if (step % segment == 0 || step == steps) {
                        y += wide_sum<ROWS>(sum, lane);
#pragma unroll
                        for (uint r = 0; r < ROWS; ++r) sum[r] = 0.0f;
                    }
                    if (step < steps) continue;
                    step = 0, block += stride;
                    if (is_last) {
                        output.finish(arena, p, factor * y);
                        if (i + d + 1 < count) output.begin(vectors, arena, p, block, group.y, lane, lane % LANES == 0);
                    } else if (lane % LANES == 0) sums[place] = y;
                    place += WIDE_GROUPS * ROWS;
                    y = tile > 0 && i + d + 1 < count ? sums[place] : 0.0f;
                }
            }
        }
    }
}

#define WIDE(ROWS, name, Form, Input) \
    [[max_total_threads_per_threadgroup(512)]] kernel void wide##ROWS##_##name( \
        device const uint4* w [[buffer(0)]], device float* arena [[buffer(1)]], device const uint4* vectors [[buffer(2)]], \
        constant GemvParams& p [[buffer(3)]], \
        uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]], \
        uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { \
        threadgroup uint4 staged[Input<Form>::VECTORS * (WIDE_STAGED / Input<Form>::UNIT + 1)]; \
        threadgroup float factors[Input<Form>::FACTORS * (WIDE_STAGED / Input<Form>::UNIT) + 1]; \
        threadgroup float sums[WIDE_ROUNDS * WIDE_GROUPS * ROWS]; \
        threadgroup float squares[WIDE_GROUPS]; \
        gemv_wide<Form, Input<Form>, ROWS>(w, VECTORS_OF(w, vectors), arena, p, staged, factors, sums, squares, group, thread_index, \
                                           lane, sg); \
    }
#define WIDE_NUMBERS(name, Form) \
    WIDE(1, name, Form, FloatInput) WIDE(2, name, Form, FloatInput) WIDE(4, name, Form, FloatInput)
#define WIDE_INTEGERS(name, Form) \
    WIDE(1, name, Form, IntegerInput) WIDE(2, name, Form, IntegerInput) WIDE(4, name, Form, IntegerInput)
NUMBER_FORMS(WIDE_NUMBERS)
INTEGER_FORMS(WIDE_INTEGERS)
