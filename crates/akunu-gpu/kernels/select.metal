// Choosing the next token, by the definition in akunu-program's `select`.

// How a slot chooses its tokens.
struct Sampling {
    float temperature;
    uint top_k;
    float top_p;
    float log_min_p; // minus infinity: off
    float repeat_penalty;
    float frequency_penalty;
    float presence_penalty;
    uint repeat_last_n; // 0: no penalties
    uint seed_low;
    uint seed_high;
    uint pad[2];
};

struct SelectParams {
    uint logits; // in the arena
    uint stride;
    uint vocabulary;
    uint context;    // tokens of a slot's history
    uint thresholds; // in the arena: one per output
    uint best;       // in the arena: pairs (value, token), `blocks` per output
    uint blocks;
    uint advance;    // a chain: the token chosen becomes the row's next
    uint outputs;
    uint turns;      // of a chain, whose tokens are remembered
    uint pad[2];
};

inline uint mix_bits(uint h) {
    h ^= h >> 16;
    h *= 0x7feb352du;
    h ^= h >> 15;
    h *= 0x846ca68bu;
    return h ^ (h >> 16);
}

inline float gumbel(uint seed_low, uint seed_high, uint position, uint token) {
    uint h = mix_bits(seed_low ^ 0x9e3779b9u);
    h = mix_bits(h ^ seed_high);
    h = mix_bits(h + position * 0x85ebca6bu);
    h = mix_bits(h + token * 0xc2b2ae35u);
    const float w = min((float(h) + 0.5f) * (1.0f / 4294967296.0f), 1.0f - 5.9604645e-8f);
    return -exact_log(minus_log_complement(w));
}

// Larger floats give larger keys; both zeros give the same.
inline uint key_of(float z) {
    const uint u = as_type<uint>(z + 0.0f);
    return (u >> 31) ? ~u : (u | 0x80000000u);
}

inline float of_key(uint key) {
    return as_type<float>((key >> 31) ? (key & 0x7FFFFFFFu) : ~key);
}

// Penalties over the last tokens: the thread of a token's first occurrence in the window changes its logit.
[[max_total_threads_per_threadgroup(256)]]
kernel void penalize(
    device float*          arena     [[buffer(0)]],
    device const Row*      rows      [[buffer(1)]],
    device const uint*     outputs   [[buffer(2)]],
    device const uint*     tokens    [[buffer(3)]],
    device const Sampling* samplings [[buffer(4)]],
    constant SelectParams& p         [[buffer(5)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]])
{
    const Row row = rows[outputs[group.x]];
    const Sampling s = samplings[row.x];
    const uint end = row.y + 1, count = min(s.repeat_last_n, end);
    device const uint* window = tokens + row.x * p.context + (end - count);
    for (uint i = thread_index; i < count; i += 256) {
        const uint token = window[i];
        if (token >= p.vocabulary) continue;
        bool repeated = false;
        uint times = 0;
        for (uint j = 0; j < count; ++j) {
            if (window[j] != token) continue;
            repeated = repeated || j < i;
            ++times;
        }
        if (repeated) continue;
        device float* logit = arena + p.logits + group.x * p.stride + token;
        const float z = *logit > 0.0f ? *logit / s.repeat_penalty : *logit * s.repeat_penalty;
        *logit = z - (s.presence_penalty + s.frequency_penalty * float(times));
    }
}

// The smallest logit, divided by the temperature, that top-k, top-p and min-p leave. Both are found bit by bit: the largest key
// that enough tokens, or tokens of enough probability, reach.
[[max_total_threads_per_threadgroup(1024)]]
kernel void threshold(
    device float*          arena     [[buffer(0)]],
    device const Row*      rows      [[buffer(1)]],
    device const uint*     outputs   [[buffer(2)]],
    device const Sampling* samplings [[buffer(3)]],
    constant SelectParams& p         [[buffer(4)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]],
    uint  lane         [[thread_index_in_simdgroup]],
    uint  sg           [[simdgroup_index_in_threadgroup]])
{
    threadgroup float scratch[32];
    const Sampling s = samplings[rows[outputs[group.x]].x];
    if (s.temperature <= 0.0f) return;
    device const float* logits = arena + p.logits + group.x * p.stride;
    float largest = negative_infinity(), finite = 0.0f;
    for (uint i = thread_index; i < p.vocabulary; i += 1024) {
        const float z = logits[i] / s.temperature;
        if (z > negative_infinity()) largest = max(largest, z), finite += 1.0f;
    }
    largest = group_max(largest, scratch, lane, sg, 32);
    finite = group_sum(finite, scratch, lane, sg, 32);
    uint least = 0;
    if (s.top_k > 0 && float(s.top_k) < finite) {
        for (uint bit = 0x80000000u; bit != 0; bit >>= 1) {
            float count = 0.0f;
            for (uint i = thread_index; i < p.vocabulary; i += 1024) {
                const float z = logits[i] / s.temperature;
                if (z > negative_infinity() && key_of(z) >= (least | bit)) count += 1.0f;
            }
            if (group_sum(count, scratch, lane, sg, 32) >= float(s.top_k)) least |= bit;
        }
    }
    if (s.top_p < 1.0f) {
        float total = 0.0f;
        for (uint i = thread_index; i < p.vocabulary; i += 1024) {
            const float z = logits[i] / s.temperature;
            if (z > negative_infinity() && key_of(z) >= least) total += exp(z - largest);
        }
        total = group_sum(total, scratch, lane, sg, 32);
        uint crossing = 0;
        for (uint bit = 0x80000000u; bit != 0; bit >>= 1) {
            float mass = 0.0f;
            for (uint i = thread_index; i < p.vocabulary; i += 1024) {
                const float z = logits[i] / s.temperature;
                if (z > negative_infinity() && key_of(z) >= max(least, crossing | bit)) mass += exp(z - largest);
            }
            if (group_sum(mass, scratch, lane, sg, 32) >= s.top_p * total) crossing |= bit;
        }
        least = min(max(least, crossing), key_of(largest));
    }
    float bound = least == 0 ? negative_infinity() : of_key(least);
    bound = max(bound, largest + s.log_min_p);
    if (thread_index == 0) arena[p.thresholds + group.x] = bound;
}

inline bool better(float value, uint token, float other, uint other_token) {
    return value > other || (value == other && token < other_token);
}

// The best token of a share of the vocabulary.
[[max_total_threads_per_threadgroup(128)]]
kernel void best_of_block(
    device float*          arena     [[buffer(0)]],
    device const Row*      rows      [[buffer(1)]],
    device const uint*     outputs   [[buffer(2)]],
    device const Sampling* samplings [[buffer(3)]],
    constant SelectParams& p         [[buffer(4)]],
    uint3 group        [[threadgroup_position_in_grid]],
    uint  thread_index [[thread_index_in_threadgroup]],
    uint  lane         [[thread_index_in_simdgroup]],
    uint  sg           [[simdgroup_index_in_threadgroup]])
{
    threadgroup float values[4];
    threadgroup uint tokens[4];
    const Row row = rows[outputs[group.y]];
    const Sampling s = samplings[row.x];
    device const float* logits = arena + p.logits + group.y * p.stride;
    const float bound = s.temperature > 0.0f ? arena[p.thresholds + group.y] : 0.0f;
    float value = negative_infinity();
    uint token = NONE;
    for (uint i = group.x * 128 + thread_index; i < p.vocabulary; i += p.blocks * 128) {
        float z = logits[i];
        if (s.temperature > 0.0f) {
            z = z / s.temperature;
            z = z >= bound && z > negative_infinity() ? z + gumbel(s.seed_low, s.seed_high, row.y, i) : negative_infinity();
        }
        if (z > value) value = z, token = i;
    }
    const float best = simd_max(value);
    const uint winner = simd_min(value == best ? token : NONE);
    if (lane == 0) values[sg] = best, tokens[sg] = winner;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index != 0) return;
    value = values[0], token = tokens[0];
    for (uint i = 1; i < 4; ++i)
        if (better(values[i], tokens[i], value, token)) value = values[i], token = tokens[i];
    device float* out = arena + p.best + 2 * (group.y * p.blocks + group.x);
    out[0] = value, out[1] = as_type<float>(token);
}

// The best of all blocks; in a chain it becomes the row's next token.
[[max_total_threads_per_threadgroup(32)]]
kernel void choose(
    device float*          arena   [[buffer(0)]],
    device Row*            rows    [[buffer(1)]],
    device const uint*     outputs [[buffer(2)]],
    device uint*           tokens  [[buffer(3)]],
    device uint*           chosen  [[buffer(4)]],
    constant SelectParams& p       [[buffer(5)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint  lane  [[thread_index_in_simdgroup]])
{
    device const float* best = arena + p.best + 2 * group.x * p.blocks;
    float value = negative_infinity();
    uint token = NONE;
    for (uint i = lane; i < p.blocks; i += 32) {
        const uint other = as_type<uint>(best[2 * i + 1]);
        if (better(best[2 * i], other, value, token)) value = best[2 * i], token = other;
    }
    const float largest = simd_max(value);
    token = simd_min(value == largest ? token : NONE);
    if (lane != 0) return;
    const uint at = outputs[group.x];
    Row row = rows[at];
    // A chain begins with spans of one row.
    const uint turn = p.advance ? (row.y + 1 - row.w) % p.turns : 0;
    chosen[turn * p.outputs + group.x] = token;
    if (!p.advance) return;
    // Where nothing could be chosen the host reports it; what follows must only stay within bounds.
    if (token == NONE) token = 0;
    row.y += 1, row.z = token;
    if (row.y < p.context) tokens[row.x * p.context + row.y] = token;
    rows[at] = row;
}
