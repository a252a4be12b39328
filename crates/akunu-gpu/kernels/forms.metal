// Weights as they lie on the device: every dtype cut into planes, so that all loads are aligned and the eight weights a
// thread takes at a time are one word of codes.
//
// A form gives eight codes q and a pair (s, b): the weights are s q + b, and b is 0 unless HAS_MIN. `at` counts groups of eight
// from the start of the matrix; all groups that share a scale are whole multiples of eight.

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

// A scale for every 32.
struct HalfScale {
    enum { HAS_MIN = 0 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        return float2(float(plane<half>(w, m.scale)[at >> 2]), 0.0f);
    }
};

// A scale and a minimum for every 32.
struct HalfMin {
    enum { HAS_MIN = 1 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        const half2 v = plane<half2>(w, m.scale)[at >> 2];
        return float2(float(v.x), float(v.y));
    }
};

// K-quants with minima: two halves for 256, two bytes for every 8 << SHIFT.
template <int SHIFT> struct SuperMin {
    enum { HAS_MIN = 1 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        const half2 d = plane<half2>(w, m.super)[at >> 5];
        const uchar2 s = plane<uchar2>(w, m.scale)[at >> SHIFT];
        return float2(float(d.x) * float(s.x), -(float(d.y) * float(s.y)));
    }
};

// K-quants without minima: a half for 256, a signed byte for every 16.
struct SuperScale {
    enum { HAS_MIN = 0 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        return float2(float(plane<half>(w, m.super)[at >> 5]) * float(plane<char>(w, m.scale)[at >> 1]), 0.0f);
    }
};

// Affine: two floats for every 8 << shift.
struct Pair {
    enum { HAS_MIN = 1 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at) {
        return plane<float2>(w, m.scale)[at >> m.shift];
    }
};

template <int BITS, int ZERO, typename Scale> struct Packed {
    enum { HAS_MIN = Scale::HAS_MIN };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        unpack<BITS>(w, m, at, float(ZERO), q);
        return Scale::load(w, m, at);
    }
};

// Codes that stand for these numbers.
constant float IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct IQ4_NL {
    enum { HAS_MIN = 0 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        const uint v = plane<uint>(w, m.low)[at];
        for (uint i = 0; i < 8; ++i) q[i] = IQ4_VALUES[(v >> (4 * i)) & 15];
        return HalfScale::load(w, m, at);
    }
};

struct F32 {
    enum { HAS_MIN = 0 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        device const float4* v = plane<float4>(w, m.low) + 2 * at;
        const float4 a = v[0], b = v[1];
        q[0] = a.x, q[1] = a.y, q[2] = a.z, q[3] = a.w, q[4] = b.x, q[5] = b.y, q[6] = b.z, q[7] = b.w;
        return float2(1.0f, 0.0f);
    }
};

inline void halves(uint v, thread float* q) {
    const half2 h = as_type<half2>(v);
    q[0] = float(h.x), q[1] = float(h.y);
}

struct F16 {
    enum { HAS_MIN = 0 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        const uint4 v = plane<uint4>(w, m.low)[at];
        halves(v.x, q), halves(v.y, q + 2), halves(v.z, q + 4), halves(v.w, q + 6);
        return float2(1.0f, 0.0f);
    }
};

inline void upper_halves(uint v, thread float* q) {
    q[0] = as_type<float>(v << 16), q[1] = as_type<float>(v & 0xFFFF0000u);
}

struct BF16 {
    enum { HAS_MIN = 0 };
    static inline float2 load(device const uint4* w, const Matrix m, uint at, thread float* q) {
        const uint4 v = plane<uint4>(w, m.low)[at];
        upper_halves(v.x, q), upper_halves(v.y, q + 2), upper_halves(v.z, q + 4), upper_halves(v.w, q + 6);
        return float2(1.0f, 0.0f);
    }
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
#define ALL_FORMS(K) \
    K(f32, F32) K(f16, F16) K(bf16, BF16) \
    K(q4_0, Q4_0) K(q4_1, Q4_1) K(q5_0, Q5_0) K(q5_1, Q5_1) K(q8_0, Q8_0) K(iq4_nl, IQ4_NL) \
    K(q2_k, Q2_K) K(q3_k, Q3_K) K(q4_k, Q4_K) K(q5_k, Q5_K) K(q6_k, Q6_K) \
    K(affine2, Affine2) K(affine3, Affine3) K(affine4, Affine4) K(affine5, Affine5) K(affine6, Affine6) K(affine8, Affine8)
