// Products of long rows with several rows of x: as in wide.metal, and to the same bits, but W is read once for all of them.
//
// A threadgroup brings up to M rows of x to threadgroup memory. A SIMD group makes numbers of the codes it fetched once, and multiplies
// them with one row of x after the other. Where the rows do not fit, they come in tiles, and each SIMD group keeps to one block of rows
// of W until it has seen all tiles.

// Rows of W of a block: with more, sums would take too many registers.
constant constexpr uint SEVERAL_ROWS = 2;
// Vectors of threadgroup memory that rows of x may take.
#ifndef SEVERAL_ROOM
#define SEVERAL_ROOM 1536
#endif

// Units of a row that fit when so many rows share the room: all, or as many as leave lanes the units they have in wide.metal.
template <typename Input> inline uint several_units(PARAMS(GemvParams) p, uint batch) {
    const uint all = p.cols / Input::UNIT;
    const uint room = min(p.room, uint(16 * SEVERAL_ROOM)) / batch - 16 * (Input::VECTORS + 1);
    const uint fit = room / (16 * Input::VECTORS + 4 * Input::FACTORS);
    return fit >= all ? all : fit / 32 * 32;
}

// Vectors from one row of x to the next.
template <typename Input> inline uint several_pitch(uint units) {
    return Input::VECTORS * (units + 1) + (Input::FACTORS * units + 3) / 4;
}

// Brings a tile of the rows of x, times the norm's weight, to threadgroup memory, and sums of squares where asked for.
template <typename Input>
inline void several_stage(device const uint4* vectors, device const float* x, PARAMS(GemvParams) p, uint batch, uint first, uint units,
                          uint tile_units, threadgroup uint4* room, threadgroup float* squares, bool adds_squares, uint thread_index) {
    constexpr uint ahead = 2, threads = 32 * WIDE_GROUPS;
    const uint eights = units * Input::EIGHTS, turns = (eights + threads - 1) / threads, count = batch * turns;
    const uint pitch = several_pitch<Input>(tile_units);
    float next[ahead][8], square = 0.0f;
    // The row and the turn of what is loaded, and of what is stored.
    uint row = 0, turn = 0, stored_row = 0, stored_turn = 0;
#pragma unroll
    for (uint d = 0; d < ahead; ++d) {
        if (d >= count) break;
        load_eight(x + row * p.x_stride, first + min(turn * threads + thread_index, eights - 1), next[d]);
        if (++turn == turns) turn = 0, ++row;
    }
    for (uint i = 0; i < count; i += ahead) {
#pragma unroll
        for (uint d = 0; d < ahead; ++d) {
            if (i + d >= count) break;
            const uint eight = stored_turn * threads + thread_index;
            const bool is_there = eight < eights;
            float v[8];
#pragma unroll
            for (uint j = 0; j < 8; ++j) v[j] = next[d][j];
            if (i + d + ahead < count) {
                load_eight(x + row * p.x_stride, first + min(turn * threads + thread_index, eights - 1), next[d]);
                if (++turn == turns) turn = 0, ++row;
            }
            if (p.norm != NONE) {
                const float part = wide_normed(vectors, p, first + min(eight, eights - 1), v);
                square += is_there ? part : 0.0f;
            }
            threadgroup uint4* to = room + stored_row * pitch;
            Input::store(v, eight, is_there, to, (threadgroup float*)(to + Input::VECTORS * (tile_units + 1)), tile_units);
            if (++stored_turn < turns) continue;
            if (p.norm != NONE && adds_squares) {
                const float of_group = simd_sum(square);
                if (thread_index % 32 == 0) squares[stored_row * WIDE_GROUPS + thread_index / 32] = of_group;
            }
            square = 0.0f, stored_turn = 0, ++stored_row;
        }
    }
}

// Sums of squares of rows that have several tiles here or in wide.metal, added in the order they have there.
inline void several_squares(device const float* x, PARAMS(GemvParams) p, uint batch, threadgroup float* squares, uint thread_index) {
    const uint all = p.cols / 8;
    for (uint row = 0; row < batch; ++row) {
        float sum = 0.0f;
        for (uint tile = 0; tile < all; tile += WIDE_STAGED / 8) {
            const uint end = min(tile + WIDE_STAGED / 8, all);
            float of_tile = 0.0f;
            for (uint eight = tile + thread_index; eight < end; eight += 32 * WIDE_GROUPS) {
                float v[8], square = 0.0f;
                load_eight(x + row * p.x_stride, eight, v);
#pragma unroll
                for (uint i = 0; i < 8; ++i) square = fma(v[i], v[i], square);
                of_tile += square;
            }
            sum += of_tile;
        }
        const float of_group = simd_sum(sum);
        if (thread_index % 32 == 0) squares[row * WIDE_GROUPS + thread_index / 32] = of_group;
    }
}

// Sums over a SIMD group of numbers of each lane: half of them stay with half of the lanes at every level, until one is left.
template <int LEFT, int MASK> struct SeveralSum {
    static METAL_FUNC void add(thread float* sum, uint lane) {
        const bool upper = (lane & MASK) != 0;
        if (LEFT == 0) sum[0] += simd_shuffle_xor(sum[0], MASK);
#pragma unroll
        for (uint i = 0; i < LEFT; ++i) {
            const float a = sum[i], b = sum[i + LEFT];
            sum[i] = (upper ? b : a) + simd_shuffle_xor(upper ? a : b, MASK);
        }
        SeveralSum<LEFT / 2, MASK / 2>::add(sum, lane);
    }
};
template <int LEFT> struct SeveralSum<LEFT, 0> {
    static METAL_FUNC void add(thread float*, uint) {}
};

// Adds the products of a unit of the rows of W with the rows of x from one on. A loop over them would leave the sums in memory.
template <typename Input, int M, int ROW> struct SeveralRows {
    static METAL_FUNC void add(thread const typename Input::Factor* w, threadgroup const uint4* room, uint from, uint pitch,
                               uint tile_units, uint unit, bool is_there, uint batch, thread float* sum) {
        // Not known before, or where all rows begin would be kept in registers.
        const uint here = settled(from);
        threadgroup const uint4* staged = room + here;
        Input columns;
        columns.load(staged, (threadgroup const float*)(staged + Input::VECTORS * (tile_units + 1)), tile_units, unit, is_there);
#pragma unroll
        for (uint r = 0; r < SEVERAL_ROWS; ++r) sum[r * M + ROW] = settled(columns.dot(w[r], sum[r * M + ROW]));
        if (ROW + 1 < batch)
            SeveralRows<Input, M, ROW + 1>::add(w, room, here + pitch, pitch, tile_units, unit, is_there, batch, sum);
    }
};
template <typename Input, int M> struct SeveralRows<Input, M, M> {
    static METAL_FUNC void add(thread const typename Input::Factor*, threadgroup const uint4*, uint, uint, uint, uint, bool, uint,
                               thread float*) {}
};

template <typename Form, typename Input, int M>
inline void gemv_several(device const uint4* w, device const uint4* vectors, device float* arena, PARAMS(GemvParams) p,
                         threadgroup uint4* room, threadgroup float* squares, uint3 group, uint thread_index, uint lane, uint sg) {
    enum { ROWS = SEVERAL_ROWS, SEGMENT = WIDE_SEGMENT / (32 * Input::UNIT), SUMS = M * ROWS };
    const uint row_units = p.cols / Input::UNIT, stride = p.groups * WIDE_GROUPS, first_block = sg * p.groups + group.x;
    // Blocks of this SIMD group, and of the first one, which has most.
    const uint rounds = p.rounds + (first_block < p.rest ? 1 : 0), most = p.rounds + (group.x < p.rest ? 1 : 0);
    const uint first_row = group.y * M, batch = min(p.batch - first_row, uint(M));
    const uint tile_units = several_units<Input>(p, batch), pitch = several_pitch<Input>(tile_units);
    const bool is_whole = tile_units == row_units, adds_squares = is_whole && p.cols <= WIDE_STAGED;
    // The row of x whose sum this lane has in the end.
    const uint row = lane / (32 / SUMS) % M;
    const bool speaks = lane % (32 / SUMS) == 0 && row < batch;
    device const float* x = arena + p.x + first_row * p.x_stride;
    float factor = 1.0f;
    if (p.norm != NONE && !adds_squares) several_squares(x, p, batch, squares, thread_index);
    for (uint begun = 0; begun < most; begun += is_whole ? most : 1) {
        const uint mine = is_whole ? rounds : begun < rounds ? 1 : 0;
        float sum[SUMS], y = 0.0f;
#pragma unroll
        for (uint i = 0; i < SUMS; ++i) sum[i] = 0.0f;
        for (uint tile = 0; tile < row_units; tile += tile_units) {
            const uint units = min(tile_units, row_units - tile), steps = (units + 31) / 32;
            const uint count = mine * steps;
            const bool is_last = tile + units == row_units;
            WideLoad<Form, Input::SPANS, ROWS, 1> load;
            WideCursor<ROWS, 1> cursor;
            WideOutput<ROWS> output;
            cursor.block = first_block + begun * stride;
            uint block = cursor.block;
            if (count > 0) {
                cursor.begin(p, row_units);
                cursor.template fetch<Form, Input>(w, tile, units, lane, &load);
                if (++cursor.step == steps && 1 < count) cursor.block += stride, cursor.begin(p, row_units);
            }
            // What is overwritten is no longer read.
            if (tile > 0 || begun > 0) whole_barrier();
            several_stage<Input>(vectors, x, p, batch, tile * Input::EIGHTS, units, tile_units, room, squares, adds_squares, thread_index);
            if (count > 0 && is_last) output.begin(vectors, arena, p, block, first_row + min(row, batch - 1), lane, speaks);
            whole_barrier();
            if (p.norm != NONE && is_last) {
                float total = 0.0f;
                for (uint i = 0; i < WIDE_GROUPS; ++i) total += squares[min(row, batch - 1) * WIDE_GROUPS + i];
                factor = rsqrt(total / float(p.cols) + p.eps);
            }
            uint step = 0;
            for (uint i = 0; i < count; ++i) {
                const uint unit = lane + 32 * step;
                typename Input::Factor factors[ROWS];
#pragma unroll
                for (uint r = 0; r < ROWS; ++r) factors[r].make(load.codes[r][0], load.scale[r][0]), factors[r].settle();
                // The next codes are under way while these are multiplied.
                if (i + 1 < count) {
                    cursor.template fetch<Form, Input>(w, tile, units, lane, &load);
                    if (++cursor.step == steps && i + 2 < count) cursor.block += stride, cursor.begin(p, row_units);
                }
                SeveralRows<Input, M, 0>::add(factors, room, 0, pitch, tile_units, min(unit, units - 1), unit < units, batch, sum);
                ++step;
                const uint done = tile + min(32 * step, units);
                if (done % (32 * SEGMENT) == 0 || done == row_units) {
                    SeveralSum<SUMS / 2, 16>::add(sum, lane);
                    y += sum[0];
#pragma unroll
                    for (uint s = 0; s < SUMS; ++s) sum[s] = 0.0f;
                }
                if (step < steps) continue;
                step = 0, block += stride;
                if (!is_last) continue;
                output.finish(arena, p, factor * y);
                if (i + 1 < count) output.begin(vectors, arena, p, block, first_row + min(row, batch - 1), lane, speaks);
                y = 0.0f;
            }
        }
    }
}

#define SEVERAL(M, name, Form, Input) \
    [[max_total_threads_per_threadgroup(512)]] kernel void several_##name( \
        device const uint4* w [[buffer(0)]], device float* arena [[buffer(1)]], device const uint4* vectors [[buffer(2)]], \
        constant GemvParams& p [[buffer(3)]], \
        uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]], \
        uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { \
        threadgroup float squares[M * WIDE_GROUPS]; \
        threadgroup uint4 room[SEVERAL_ROOM]; \
        gemv_several<Form, Input<Form>, M>(w, VECTORS_OF(w, vectors), arena, p, room, squares, group, thread_index, lane, sg); \
    }
#define SEVERAL_NUMBERS(name, Form) SEVERAL(8, name, Form, FloatInput)
#define SEVERAL_INTEGERS(name, Form) SEVERAL(8, name, Form, IntegerInput)
SEVERAL_NUMBERS(f32, F32)
SEVERAL_NUMBERS(f16, F16)
SEVERAL_NUMBERS(bf16, BF16)
// Its units are so long as floats that only four rows of them are sure to fit.
SEVERAL(4, iq4_nl, IQ4_NL, FloatInput)
INTEGER_FORMS(SEVERAL_INTEGERS)
