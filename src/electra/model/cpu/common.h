// What all kernels share: vectors, scratch memory, bfloat16, exp, the normal distribution, dropout.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <omp.h>

#if defined(__AVX512F__)
constexpr long VL = 16, MR = 14;  // 28 accumulators of 32 registers
#else
constexpr long VL = 8, MR = 6;    // 12 accumulators of 16 registers
#endif
constexpr long NR = 2 * VL;       // columns of one tile
constexpr long KC = 256;          // depth of a block: a panel of KC x NR floats stays in the first-level cache
constexpr long MC = 16 * MR;      // rows of a block: it stays in the second-level cache
typedef float vf __attribute__((vector_size(VL * 4), aligned(4)));
// Loops over a row live in functions of their own, with everything they need by value: inside an OpenMP region gcc reads
// the shared variables through memory and then does not vectorise.
#define ROW static __attribute__((noinline)) void
#define ROWS(count) _Pragma("omp parallel for num_threads(threads) if (parallel : threads > 1) schedule(static)") for (long r = 0; r < count; r++)

static inline vf load(const float* p) { return *(const vf*)p; }
static inline void store(float* p, vf v) { *(vf*)p = v; }
static long round_up(long n, long m) { return (n + m - 1) / m * m; }

struct bf16 { uint16_t bits; };  // the upper half of a float
static inline float get(float x) { return x; }
static inline float get(bf16 x) { return std::bit_cast<float>((uint32_t)x.bits << 16); }
static inline void put(float& to, float x) { to = x; }
static inline void put(bf16& to, float x) {  // to nearest, ties to even; the processor's own NaNs stay NaNs
  uint32_t u = std::bit_cast<uint32_t>(x);
  to.bits = (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// Scratch of the calling thread, kept between calls: fresh pages cost more than the arithmetic on them.
template <int slot> static float* scratch(long floats) {
  static thread_local struct Buffer { float* data = nullptr; long size = 0; ~Buffer() { free(data); } } buffer;
  if (floats > buffer.size) {
    free(buffer.data);
    buffer.size = round_up(floats, 1024);
    buffer.data = (float*)aligned_alloc(64, buffer.size * sizeof(float));
    if (!buffer.data) { std::fprintf(stderr, "electra: no memory for %ld more bytes\n", buffer.size * (long)sizeof(float)); std::abort(); }
  }
  return buffer.data;
}
static void share(long count, long unit, long& begin, long& end) {  // this thread's part, in whole units
  long t = omp_get_num_threads(), i = omp_get_thread_num(), units = (count + unit - 1) / unit;
  begin = std::min(count, units * i / t * unit); end = std::min(count, units * (i + 1) / t * unit);
}

static inline float exp_(float x) {  // relative error 1e-7; exactly 0 below -87, so that masked scores weigh nothing
  float clamped = x < -87.f ? -87.f : x > 88.f ? 88.f : x;
  float shifted = clamped * 1.44269504f + 12582912.f;  // adding 1.5 * 2^23 rounds to a whole number
  float n = shifted - 12582912.f;
  float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.f / 720;
  p = p * r + 1.f / 120; p = p * r + 1.f / 24; p = p * r + 1.f / 6; p = p * r + 0.5f; p = p * r + 1.f; p = p * r + 1.f;
  float scale = std::bit_cast<float>((std::bit_cast<int32_t>(shifted) << 23) + 0x3f800000);
  return x < -87.f ? 0.f : p * scale;
}
struct Normal { float cdf, pdf; };
static inline Normal normal(float x) {  // Abramowitz and Stegun 7.1.26, absolute error 1e-7, as in torch's own erf
  float z = std::fabs(x) * 0.70710678f, t = 1.f / (1.f + 0.3275911f * z), e = exp_(-z * z);
  float tail = 0.5f * e * t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  return {x < 0.f ? tail : 1.f - tail, 0.39894228f * e};
}

struct Dropout {  // a counter-based generator: what is kept is a function of key and index alone
  uint32_t low, high; int32_t threshold; float scale;
  Dropout(uint64_t key, double p)
      : low((uint32_t)key), high((uint32_t)(key >> 32)),
        threshold((int32_t)((int64_t)std::llround(p * 4294967296.0) - 2147483648LL)), scale((float)(1.0 / (1.0 - p))) {}
  inline float operator()(uint32_t index) const {  // 0 or 1/(1-p)
    uint32_t x = index * 0x9E3779B9u + low;
    x ^= x >> 16; x *= 0x7FEB352Du; x ^= x >> 15; x += high; x *= 0x846CA68Bu; x ^= x >> 16;
    return (int32_t)x >= threshold ? scale : 0.f;
  }
};
