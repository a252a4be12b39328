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

// Codes as a wide product takes them: sixteen bytes (fewer for 2 and 3 bits) at a time.
//
// EIGHTS groups of eight make one load. Codes are bytes when they are used, four at a time in the order that is cheapest to make:
// IntegerInput in wide.metal knows it.
template <int BITS> struct Codes;

// Bits 0, 4, 8 and 12 of x (and the ones above them, where the mask has them) at the lowest bits of the four bytes.
inline uint spread(uint x, uint mask) {
    const uint pairs = (x | (x << 8)) & (mask * 0x00110011u);
    return (pairs | (pairs << 4)) & (mask * 0x01010101u);
}

// One of the words of a vector, by a number known to the compiler.
inline uint word_of(const uint4 v, uint i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <> struct Codes<2> {
    enum { EIGHTS = 4 };
    uint2 low;
    inline void fetch(device const uint4* w, const Matrix m, uint at) { low = once(plane<uint2>(w, m.low) + (at >> 2)); }
    inline uint bytes(uint k) const { return ((k < 4 ? low.x : low.y) >> (2 * (k % 4))) & 0x03030303u; }
};

template <> struct Codes<3> {
    enum { EIGHTS = 4 };
    uint2 low;
    uint high;
    inline void fetch(device const uint4* w, const Matrix m, uint at) {
        low = once(plane<uint2>(w, m.low) + (at >> 2)), high = once(plane<uint>(w, m.high) + (at >> 2));
    }
    inline uint bytes(uint k) const {
        const uint upper = spread((high >> (16 * (k / 4) + k % 4)) & 0x1111u, 1);
        return (((k < 4 ? low.x : low.y) >> (2 * (k % 4))) & 0x03030303u) | (upper << 2);
    }
};

template <> struct Codes<4> {
    enum { EIGHTS = 4 };
    uint4 low;
    inline void fetch(device const uint4* w, const Matrix m, uint at) { low = once(plane<uint4>(w, m.low) + (at >> 2)); }
    inline uint bytes(uint k) const { return (word_of(low, k / 2) >> (4 * (k % 2))) & 0x0F0F0F0Fu; }
};

template <> struct Codes<5> {
    enum { EIGHTS = 4 };
    uint4 low;
    uint high;
    inline void fetch(device const uint4* w, const Matrix m, uint at) {
        low = once(plane<uint4>(w, m.low) + (at >> 2)), high = once(plane<uint>(w, m.high) + (at >> 2));
    }
    inline uint bytes(uint k) const {
        // Bits 0, 2, 4 and 6 to bits 4, 12, 20 and 28: one product has them there among others.
        const uint upper = (((high >> (8 * (k / 2) + k % 2)) & 0x55u) * 0x00410410u) & 0x10101010u;
        return ((word_of(low, k / 2) >> (4 * (k % 2))) & 0x0F0F0F0Fu) | upper;
    }
};

template <> struct Codes<6> {
    enum { EIGHTS = 4 };
    uint4 low;
    uint2 high;
    inline void fetch(device const uint4* w, const Matrix m, uint at) {
        low = once(plane<uint4>(w, m.low) + (at >> 2)), high = once(plane<uint2>(w, m.high) + (at >> 2));
    }
    inline uint bytes(uint k) const {
        const uint pairs = (k < 4 ? high.x : high.y) >> (16 * (k / 2 % 2) + 2 * (k % 2));
        return ((word_of(low, k / 2) >> (4 * (k % 2))) & 0x0F0F0F0Fu) | (spread(pairs & 0x3333u, 3) << 4);
    }
};

template <> struct Codes<8> {
    enum { EIGHTS = 2 };
    uint4 low;
    inline void fetch(device const uint4* w, const Matrix m, uint at) { low = once(plane<uint4>(w, m.low) + (at >> 1)); }
    inline uint bytes(uint k) const { return word_of(low, k); }
};

// Scales are fetched as they lie, so that a wide product need not wait for them, and made numbers when they are used.

// A scale for every 32.
struct HalfScale {
    enum { HAS_MIN = 0, SPAN = 32 };
    ushort scale;
    inline void fetch(device const uint4* w, const Matrix m, uint at) { scale = once(plane<ushort>(w, m.scale) + (at >> 2)); }
    inline float2 value() const { return float2(float(as_type<half>(scale)), 0.0f); }
};

// A scale and a minimum for every 32.
struct HalfMin {
    enum { HAS_MIN = 1, SPAN = 32 };
    uint pair;
    inline void fetch(device const uint4* w, const Matrix m, uint at) { pair = once(plane<uint>(w, m.scale) + (at >> 2)); }
    inline float2 value() const { return float2(as_type<half2>(pair)); }
};

// K-quants with minima: two halves for 256, two bytes for every 8 << SHIFT.
template <int SHIFT> struct SuperMin {
    enum { HAS_MIN = 1, SPAN = 8 << SHIFT };
    uint super;
    ushort pair;
    inline void fetch(device const uint4* w, const Matrix m, uint at) {
        super = once(plane<uint>(w, m.super) + (at >> 5)), pair = once(plane<ushort>(w, m.scale) + (at >> SHIFT));
    }
    inline float2 value() const {
        const float2 d = float2(as_type<half2>(super));
        return float2(d.x * float(pair & 255), -(d.y * float(pair >> 8)));
    }
};

// K-quants without minima: a half for 256, a signed byte for every 16.
struct SuperScale {
    enum { HAS_MIN = 0, SPAN = 16 };
    ushort super;
    uchar scale;
    inline void fetch(device const uint4* w, const Matrix m, uint at) {
        super = once(plane<ushort>(w, m.super) + (at >> 5)), scale = once(plane<uchar>(w, m.scale) + (at >> 1));
    }
    inline float2 value() const {
        return float2(float(as_type<half>(super)) * (float(scale ^ 128) - 128.0f), 0.0f);
    }
};

// Affine: two floats for every 8 << shift.
struct Pair {
    enum { HAS_MIN = 1, SPAN = 32 };
    float2 pair;
    inline void fetch(device const uint4* w, const Matrix m, uint at) {
        pair = as_type<float2>(once(plane<uint2>(w, m.scale) + (at >> m.shift)));
    }
    inline float2 value() const { return pair; }
};

// The scale of weights that are numbers themselves.
inline float2 plain() {
    return float2(1.0f, 0.0f);
}
struct NoScale {
    inline void fetch(device const uint4*, const Matrix, uint) {}
    inline float2 value() const { return plain(); }
};

template <int BITS_, int ZERO_, typename Scale_> struct Packed {
    enum { HAS_MIN = Scale_::HAS_MIN, SPAN = Scale_::SPAN, BITS = BITS_, ZERO = ZERO_ };
    typedef Codes<BITS_> Wide;
    typedef Scale_ Scale;
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        unpack<BITS_>(w, m, at, float(ZERO_), q);
        Scale_ scale;
        scale.fetch(w, m, at);
        return scale.value();
    }
};

// Codes that stand for these numbers.
constant float IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct IQ4_NL {
    enum { HAS_MIN = 0, SPAN = 32 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        const uint v = plane<uint>(w, m.low)[at];
        for (uint i = 0; i < 8; ++i) q[i] = IQ4_VALUES[(v >> (4 * i)) & 15];
        Scale scale;
        scale.fetch(w, m, at);
        return scale.value();
    }
    typedef HalfScale Scale;
    struct Wide {
        enum { EIGHTS = 4 };
        uint4 low;
        inline void fetch(device const uint4* w, const Matrix m, uint at) { low = once(plane<uint4>(w, m.low) + (at >> 2)); }
    };
    static inline void expand(const Wide c, uint eight, thread float* q) {
        for (uint i = 0; i < 8; ++i) q[i] = IQ4_VALUES[(word_of(c.low, eight) >> (4 * i)) & 15];
    }
};

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
        float4 a, b;
        inline void fetch(device const uint4* w, const Matrix m, uint at) {
            device const uint4* v = plane<uint4>(w, m.low) + 2 * at;
            a = as_type<float4>(once(v)), b = as_type<float4>(once(v + 1));
        }
    };
    static inline void expand(const Wide c, uint, thread float* q) {
        q[0] = c.a.x, q[1] = c.a.y, q[2] = c.a.z, q[3] = c.a.w, q[4] = c.b.x, q[5] = c.b.y, q[6] = c.b.z, q[7] = c.b.w;
    }
    typedef NoScale Scale;
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
        uint4 v;
        inline void fetch(device const uint4* w, const Matrix m, uint at) { v = once(plane<uint4>(w, m.low) + at); }
    };
    static inline void expand(const Wide c, uint, thread float* q) {
        halves(c.v.x, q), halves(c.v.y, q + 2), halves(c.v.z, q + 4), halves(c.v.w, q + 6);
    }
    typedef NoScale Scale;
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
        uint4 v;
        inline void fetch(device const uint4* w, const Matrix m, uint at) { v = once(plane<uint4>(w, m.low) + at); }
    };
    static inline void expand(const Wide c, uint, thread float* q) {
        upper_halves(c.v.x, q), upper_halves(c.v.y, q + 2), upper_halves(c.v.z, q + 4), upper_halves(c.v.w, q + 6);
    }
    typedef NoScale Scale;
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
#define REDUCED_FORMS(K) K(f16, F16) K(bf16, BF16) K(iq4_nl, IQ4_NL) INTEGER_FORMS(K)
// Those whose codes are numbers, or stand for some.
#define NUMBER_FORMS(K) K(f32, F32) K(f16, F16) K(bf16, BF16) K(iq4_nl, IQ4_NL)
// Those whose codes count in equal steps.
#define INTEGER_FORMS(K) \
    K(q4_0, Q4_0) K(q4_1, Q4_1) K(q5_0, Q5_0) K(q5_1, Q5_1) K(q8_0, Q8_0) \
    K(q2_k, Q2_K) K(q3_k, Q3_K) K(q4_k, Q4_K) K(q5_k, Q5_K) K(q6_k, Q6_K) \
    K(affine2, Affine2) K(affine3, Affine3) K(affine4, Affine4) K(affine5, Affine5) K(affine6, Affine6) K(affine8, Affine8)
