// Weights as they lie on the device: every dtype cut into planes, so that all loads are aligned and the eight weights a
// thread takes at a time are one word of codes.
//
// A form gives eight codes q and a pair (s, b): the weights are s q + b, and b is 0 unless HAS_MIN. `at` counts groups of eight
// from the start of the matrix; at least SPAN weights, from a multiple of SPAN on, share a pair.

// Where a matrix lies: planes as offsets of 16 bytes from the start of the weights.
struct Matrix {
    uint low;    // codes, or their low bits
    uint high;   // the upper bits of 3-, 5- and 6-bit codes
    uint scale;  // one per group
    uint super;  // K-quants: one per 256
    uint first;  // the first row of the slice
    uint eights; // groups of eight in a row
    uint shift;  // affine: log2(group / 8)
    uint pad;
};

template <typename T> inline device const T* plane(device const uint4* w, uint offset) {
    return (device const T*)(w + offset);
}

// code - zero, through the mantissa of 2^23: cheaper than a conversion, and exact.
inline float centred(uint code, float zero) {
    return as_type<float>(0x4B000000u | code) - (8388608.0f + zero);
}

template <int BITS> inline void unpack(device const uint4* w, const Matrix m, uint at, float zero, thread float* q);

template <> inline void unpack<2>(device const uint4* w, const Matrix m, uint at, float zero, thread float* q) {
    const uint v = plane<ushort>(w, m.low)[at];
    for (uint i = 0; i < 8; ++i) q[i] = centred((v >> (2 * i)) & 3, zero);
}

template <> inline void unpack<3>(device const uint4* w, const Matrix m, uint at, float zero, thread float* q) {
    const uint v = plane<ushort>(w, m.low)[at], h = plane<uchar>(w, m.high)[at];
    for (uint i = 0; i < 8; ++i) q[i] = centred(((v >> (2 * i)) & 3) | (((h >> i) & 1) << 2), zero);
}

template <> inline void unpack<4>(device const uint4* w, const Matrix m, uint at, float zero, thread float* q) {
    const uint v = plane<uint>(w, m.low)[at];
    for (uint i = 0; i < 8; ++i) q[i] = centred((v >> (4 * i)) & 15, zero);
}

template <> inline void unpack<5>(device const uint4* w, const Matrix m, uint at, float zero, thread float* q) {
    const uint v = plane<uint>(w, m.low)[at], h = plane<uchar>(w, m.high)[at];
    for (uint i = 0; i < 8; ++i) q[i] = centred(((v >> (4 * i)) & 15) | (((h >> i) & 1) << 4), zero);
}

template <> inline void unpack<6>(device const uint4* w, const Matrix m, uint at, float zero, thread float* q) {
    const uint v = plane<uint>(w, m.low)[at], h = plane<ushort>(w, m.high)[at];
    for (uint i = 0; i < 8; ++i) q[i] = centred(((v >> (4 * i)) & 15) | (((h >> (2 * i)) & 3) << 4), zero);
}

template <> inline void unpack<8>(device const uint4* w, const Matrix m, uint at, float zero, thread float* q) {
    const uint2 v = plane<uint2>(w, m.low)[at];
    for (uint i = 0; i < 4; ++i) {
        q[i] = centred((v.x >> (8 * i)) & 255, zero);
        q[i + 4] = centred((v.y >> (8 * i)) & 255, zero);
    }
}

// Codes as a wide product takes them: sixteen bytes (fewer for 2 and 3 bits) at a time, expanded when they have arrived.
//
// EIGHTS groups of eight make one load. A group's weights come as (q - zero) 2^shift(i): the codes of 4 and 8 bits stay at the
// bits where they lie, which saves instructions, and the input is divided by the same powers of two, which rounds nothing.
template <int BITS> struct Codes;

template <> struct Codes<2> {
    enum { EIGHTS = 4 };
    uint2 low;
    static inline uint shift(uint i) { return 2 * i; }
    inline void fetch(device const uint4* w, const Matrix m, uint at) { low = plane<uint2>(w, m.low)[at >> 2]; }
    inline void expand(uint eight, float zero, thread float* q) const {
        const uint v = (eight < 2 ? low.x : low.y) >> (16 * (eight & 1));
        for (uint i = 0; i < 8; ++i)
            q[i] = as_type<float>((v & (3u << (2 * i))) | 0x4B000000u) - (8388608.0f + zero * float(1 << (2 * i)));
    }
};

template <> struct Codes<3> {
    enum { EIGHTS = 4 };
    uint2 low;
    uint high;
    static inline uint shift(uint) { return 0; }
    inline void fetch(device const uint4* w, const Matrix m, uint at) {
        low = plane<uint2>(w, m.low)[at >> 2], high = plane<uint>(w, m.high)[at >> 2];
    }
    inline void expand(uint eight, float zero, thread float* q) const {
        const uint v = (eight < 2 ? low.x : low.y) >> (16 * (eight & 1)), h = high >> (8 * eight);
        for (uint i = 0; i < 8; ++i) q[i] = centred(((v >> (2 * i)) & 3) | (((h >> i) & 1) << 2), zero);
    }
};

// One of the words of a vector, by a number known to the compiler.
inline uint word_of(const uint4 v, uint i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <> struct Codes<4> {
    enum { EIGHTS = 4 };
    uint4 low;
    static inline uint shift(uint i) { return 4 * (i & 3); }
    inline void fetch(device const uint4* w, const Matrix m, uint at) { low = plane<uint4>(w, m.low)[at >> 2]; }
    inline void expand(uint eight, float zero, thread float* q) const {
        const uint v = word_of(low, eight), u = v >> 16;
        for (uint i = 0; i < 4; ++i) {
            const uint mask = 15u << (4 * i);
            const float middle = 8388608.0f + zero * float(1 << (4 * i));
            q[i] = as_type<float>((v & mask) | 0x4B000000u) - middle;
            q[i + 4] = as_type<float>((u & mask) | 0x4B000000u) - middle;
        }
    }
};

template <> struct Codes<5> {
    enum { EIGHTS = 4 };
    uint4 low;
    uint high;
    static inline uint shift(uint) { return 0; }
    inline void fetch(device const uint4* w, const Matrix m, uint at) {
        low = plane<uint4>(w, m.low)[at >> 2], high = plane<uint>(w, m.high)[at >> 2];
    }
    inline void expand(uint eight, float zero, thread float* q) const {
        const uint v = word_of(low, eight), h = high >> (8 * eight);
        for (uint i = 0; i < 8; ++i) q[i] = centred(((v >> (4 * i)) & 15) | (((h >> i) & 1) << 4), zero);
    }
};

template <> struct Codes<6> {
    enum { EIGHTS = 4 };
    uint4 low;
    uint2 high;
    static inline uint shift(uint) { return 0; }
    inline void fetch(device const uint4* w, const Matrix m, uint at) {
        low = plane<uint4>(w, m.low)[at >> 2], high = plane<uint2>(w, m.high)[at >> 2];
    }
    inline void expand(uint eight, float zero, thread float* q) const {
        const uint v = word_of(low, eight), h = (eight < 2 ? high.x : high.y) >> (16 * (eight & 1));
        for (uint i = 0; i < 8; ++i) q[i] = centred(((v >> (4 * i)) & 15) | (((h >> (2 * i)) & 3) << 4), zero);
    }
};

template <> struct Codes<8> {
    enum { EIGHTS = 2 };
    uint4 low;
    static inline uint shift(uint i) { return 8 * (i & 1); }
    inline void fetch(device const uint4* w, const Matrix m, uint at) { low = plane<uint4>(w, m.low)[at >> 1]; }
    inline void expand(uint eight, float zero, thread float* q) const {
        const uint a = word_of(low, 2 * eight), b = word_of(low, 2 * eight + 1);
        const uint words[4] = {a, a >> 16, b, b >> 16};
        for (uint i = 0; i < 4; ++i) {
            q[2 * i] = as_type<float>((words[i] & 0x00FFu) | 0x4B000000u) - (8388608.0f + zero);
            q[2 * i + 1] = as_type<float>((words[i] & 0xFF00u) | 0x4B000000u) - (8388608.0f + 256.0f * zero);
        }
    }
};

// A scale for every 32.
struct HalfScale {
    enum { HAS_MIN = 0, SPAN = 32 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        return float2(float(plane<half>(w, m.scale)[at >> 2]), 0.0f);
    }
};

// A scale and a minimum for every 32.
struct HalfMin {
    enum { HAS_MIN = 1, SPAN = 32 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        const half2 v = plane<half2>(w, m.scale)[at >> 2];
        return float2(float(v.x), float(v.y));
    }
};

// K-quants with minima: two halves for 256, two bytes for every 8 << SHIFT.
template <int SHIFT> struct SuperMin {
    enum { HAS_MIN = 1, SPAN = 8 << SHIFT };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        const half2 d = plane<half2>(w, m.super)[at >> 5];
        const uchar2 s = plane<uchar2>(w, m.scale)[at >> SHIFT];
        return float2(float(d.x) * float(s.x), -(float(d.y) * float(s.y)));
    }
};

// K-quants without minima: a half for 256, a signed byte for every 16.
struct SuperScale {
    enum { HAS_MIN = 0, SPAN = 16 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        return float2(float(plane<half>(w, m.super)[at >> 5]) * float(plane<char>(w, m.scale)[at >> 1]), 0.0f);
    }
};

// Affine: two floats for every 8 << shift.
struct Pair {
    enum { HAS_MIN = 1, SPAN = 32 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        return plane<float2>(w, m.scale)[at >> m.shift];
    }
};

template <int BITS, int ZERO, typename Scale> struct Packed {
    enum { HAS_MIN = Scale::HAS_MIN, SPAN = Scale::SPAN };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        unpack<BITS>(w, m, at, float(ZERO), q);
        return scale(w, m, at);
    }
    typedef Codes<BITS> Wide;
    static inline void expand(const Wide c, uint eight, thread float* q) { c.expand(eight, float(ZERO), q); }
    static inline float2 scale(device const uint4* w, const Matrix m, uint at) { return Scale::load(w, m, at); }
};

// Codes that stand for these numbers.
constant float IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct IQ4_NL {
    enum { HAS_MIN = 0, SPAN = 32 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        const uint v = plane<uint>(w, m.low)[at];
        for (uint i = 0; i < 8; ++i) q[i] = IQ4_VALUES[(v >> (4 * i)) & 15];
        return scale(w, m, at);
    }
    struct Wide {
        enum { EIGHTS = 4 };
        uint4 low;
        static inline uint shift(uint) { return 0; }
        inline void fetch(device const uint4* w, const Matrix m, uint at) { low = plane<uint4>(w, m.low)[at >> 2]; }
    };
    static inline void expand(const Wide c, uint eight, thread float* q) {
        for (uint i = 0; i < 8; ++i) q[i] = IQ4_VALUES[(word_of(c.low, eight) >> (4 * i)) & 15];
    }
    static inline float2 scale(device const uint4* w, const Matrix m, uint at) { return HalfScale::load(w, m, at); }
};

// The scale of weights that are numbers themselves.
inline float2 plain() {
    return float2(1.0f, 0.0f);
}

struct F32 {
    enum { HAS_MIN = 0, SPAN = 32 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        Wide c;
        c.fetch(w, m, at);
        expand(c, 0, q);
        return plain();
    }
    struct Wide {
        enum { EIGHTS = 1 };
        static inline uint shift(uint) { return 0; }
        float4 a, b;
        inline void fetch(device const uint4* w, const Matrix m, uint at) {
            device const float4* v = plane<float4>(w, m.low) + 2 * at;
            a = v[0], b = v[1];
        }
    };
    static inline void expand(const Wide c, uint, thread float* q) {
        q[0] = c.a.x, q[1] = c.a.y, q[2] = c.a.z, q[3] = c.a.w, q[4] = c.b.x, q[5] = c.b.y, q[6] = c.b.z, q[7] = c.b.w;
    }
    static inline float2 scale(device const uint4*, const Matrix, uint) { return plain(); }
};

inline void halves(uint v, thread float* q) {
    const half2 h = as_type<half2>(v);
    q[0] = float(h.x), q[1] = float(h.y);
}

struct F16 {
    enum { HAS_MIN = 0, SPAN = 32 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        Wide c;
        c.fetch(w, m, at);
        expand(c, 0, q);
        return plain();
    }
    struct Wide {
        enum { EIGHTS = 1 };
        static inline uint shift(uint) { return 0; }
        uint4 v;
        inline void fetch(device const uint4* w, const Matrix m, uint at) { v = plane<uint4>(w, m.low)[at]; }
    };
    static inline void expand(const Wide c, uint, thread float* q) {
        halves(c.v.x, q), halves(c.v.y, q + 2), halves(c.v.z, q + 4), halves(c.v.w, q + 6);
    }
    static inline float2 scale(device const uint4*, const Matrix, uint) { return plain(); }
};

inline void upper_halves(uint v, thread float* q) {
    q[0] = as_type<float>(v << 16), q[1] = as_type<float>(v & 0xFFFF0000u);
}

struct BF16 {
    enum { HAS_MIN = 0, SPAN = 32 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        Wide c;
        c.fetch(w, m, at);
        expand(c, 0, q);
        return plain();
    }
    struct Wide {
        enum { EIGHTS = 1 };
        static inline uint shift(uint) { return 0; }
        uint4 v;
        inline void fetch(device const uint4* w, const Matrix m, uint at) { v = plane<uint4>(w, m.low)[at]; }
    };
    static inline void expand(const Wide c, uint, thread float* q) {
        upper_halves(c.v.x, q), upper_halves(c.v.y, q + 2), upper_halves(c.v.z, q + 4), upper_halves(c.v.w, q + 6);
    }
    static inline float2 scale(device const uint4*, const Matrix, uint) { return plain(); }
};

typedef Packed<4, 8, HalfScale> Q4_0;
typedef Packed<4, 0, HalfMin> Q4_1;
typedef Packed<5, 16, HalfScale> Q5_0;
typedef Packed<5, 0, HalfMin> Q5_1;
typedef Packed<8, 128, HalfScale> Q8_0;
typedef Packed<2, 0, SuperMin<1> > Q2_K;
typedef Packed<3, 4, SuperScale> Q3_K;
typedef Packed<4, 0, SuperMin<2> > Q4_K;
typedef Packed<5, 0, SuperMin<2> > Q5_K;
typedef Packed<6, 32, SuperScale> Q6_K;
typedef Packed<2, 0, Pair> Affine2;
typedef Packed<3, 0, Pair> Affine3;
typedef Packed<4, 0, Pair> Affine4;
typedef Packed<5, 0, Pair> Affine5;
typedef Packed<6, 0, Pair> Affine6;
typedef Packed<8, 0, Pair> Affine8;

// Makes a kernel for every form; K(name, type).
#define ALL_FORMS(K) K(f32, F32) REDUCED_FORMS(K)
// The same but for F32.
#define REDUCED_FORMS(K) \
    K(f16, F16) K(bf16, BF16) \
    K(q4_0, Q4_0) K(q4_1, Q4_1) K(q5_0, Q5_0) K(q5_1, Q5_1) K(q8_0, Q8_0) K(iq4_nl, IQ4_NL) \
    K(q2_k, Q2_K) K(q3_k, Q3_K) K(q4_k, Q4_K) K(q5_k, Q5_K) K(q6_k, Q6_K) \
    K(affine2, Affine2) K(affine3, Affine3) K(affine4, Affine4) K(affine5, Affine5) K(affine6, Affine6) K(affine8, Affine8)
