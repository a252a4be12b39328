// What all kernels share: numbers, rows, and arithmetic that must be the same on every device.
#include <metal_stdlib>
using namespace metal;

// Stands for an operand that is not there.
constant constexpr uint NONE = 0xFFFFFFFFu;

// One row of a batch: its slot, its position, the token fed, and the position after the last one that its span was given with.
typedef uint4 Row;

inline float negative_infinity() {
    return as_type<float>(0xFF800000u);
}

// Natural logarithm of a positive normal number, to the last bits on every device.
inline float exact_log(float x) {
    uint bits = as_type<uint>(x);
    // Mantissas from sqrt(1/2) to sqrt(2), so that the series below converges fast on both sides of 1.
    const int exponent = int((bits - 0x3F3504F3u) >> 23) - (bits < 0x3F3504F3u ? 512 : 0);
    const float m = as_type<float>(bits - (uint(exponent) << 23));
    const float f = (m - 1.0f) / (m + 1.0f), g = f * f;
    const float series = 2.0f * f * (1.0f + g * (1.0f / 3 + g * (1.0f / 5 + g * (1.0f / 7 + g * (1.0f / 9)))));
    return series + float(exponent) * 0.69314718056f;
}

// -log(1 - x) for 0 < x < 1, exact for small x.
inline float minus_log_complement(float x) {
    if (x > 0.25f) return -exact_log(1.0f - x);
    const float f = x / (2.0f - x), g = f * f;
    return 2.0f * f * (1.0f + g * (1.0f / 3 + g * (1.0f / 5 + g * (1.0f / 7 + g * (1.0f / 9)))));
}

inline float exact_tanh(float x) {
    const float a = abs(x), g = x * x;
    if (a < 0.15f) return x * (1.0f - g * (1.0f / 3 - g * (2.0f / 15 - g * (17.0f / 315))));
    const float y = 1.0f - 2.0f / (exp(2.0f * min(a, 20.0f)) + 1.0f);
    return x < 0.0f ? -y : y;
}

// Abramowitz and Stegun 7.1.26: within 1.5e-7.
inline float error_function(float x) {
    const float a = min(abs(x), 6.0f), t = 1.0f / (1.0f + 0.3275911f * a);
    const float series =
        t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const float y = 1.0f - series * exp(-a * a);
    return x < 0.0f ? -y : y;
}

// Activations by number: 0 SiLU, 1 GELU by tanh, 2 GELU by the error function.
inline float activate(float x, uint kind) {
    if (kind == 0) return x / (1.0f + exp(-x));
    if (kind == 1) return 0.5f * x * (1.0f + exact_tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    return 0.5f * x * (1.0f + error_function(x * 0.70710678119f));
}

// Parameters where they lie.
#ifndef PARAMS
#define PARAMS(T) constant T&
#endif

// Where norms' weights and biases lie: in a buffer of their own, because matrices may lie in the model's file. NVIDIA GPUs have both in
// one, and no register for a second address.
#ifdef SHIM_NVIDIA
#define VECTORS_OF(w, vectors) w
#else
#define VECTORS_OF(w, vectors) vectors
#endif

// The nearest integer to a number of up to 22 bits, ties to even: through the mantissa of 1.5 x 2^23.
inline int nearest(float x) {
    return as_type<int>(x + 12582912.0f) - 0x4B400000;
}

#ifndef SHIM_NVIDIA
// What is read once, and before it is needed.
template <typename T> inline T once(device const T* from) {
    return *from;
}
// The upper and the lower bytes of four numbers of 16 bits.
inline void part_bytes(int a, int b, int c, int d, thread uint* upper, thread uint* lower) {
    *upper = uint((a >> 8) & 255) | (uint((b >> 8) & 255) << 8) | (uint((c >> 8) & 255) << 16) | (uint((d >> 8) & 255) << 24);
    *lower = uint(a & 255) | (uint(b & 255) << 8) | (uint(c & 255) << 16) | (uint(d & 255) << 24);
}
// c plus the products of four bytes: those of a count from 0, those of b from -128 or from 0.
inline int dot_signed(uint a, uint b, int c) {
    for (uint i = 0; i < 4; ++i) c += int((a >> (8 * i)) & 255) * (int(b << (24 - 8 * i)) >> 24);
    return c;
}
inline uint dot_unsigned(uint a, uint b, uint c) {
    for (uint i = 0; i < 4; ++i) c += ((a >> (8 * i)) & 255) * ((b >> (8 * i)) & 255);
    return c;
}
// x, computed here and not later: what it is made of need not be kept.
template <typename T> inline T settled(T x) {
    return x;
}
// Counts an arrival and gives how many came before. Only asked for where threadgroups of a launch see what others wrote before they
// arrived.
inline uint arrive(device uint* count) {
    return (*count)++;
}
// The threads of a threadgroup of 512 meet.
inline void whole_barrier() {
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
#endif

// cap tanh(x / cap), or x where there is no cap.
inline float soft_cap(float x, float cap) {
    return cap > 0.0f ? cap * exact_tanh(x / cap) : x;
}

// The sum over a threadgroup of up to 32 SIMD groups; `scratch` holds 32 numbers and may be reused at once.
inline float group_sum(float x, threadgroup float* scratch, uint lane, uint sg, uint groups) {
    const float part = simd_sum(x);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) scratch[sg] = part;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return simd_sum(lane < groups ? scratch[lane] : 0.0f);
}

// The largest number of a threadgroup, as group_sum.
inline float group_max(float x, threadgroup float* scratch, uint lane, uint sg, uint groups) {
    const float part = simd_max(x);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) scratch[sg] = part;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return simd_max(lane < groups ? scratch[lane] : negative_infinity());
}
