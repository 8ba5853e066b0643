// float32 kernels of the training step for CPUs. No torch headers: plain C functions over raw pointers, called through
// ctypes, so that the file compiles in seconds and does not depend on torch's C++ ABI. kernels.py describes each one.
// Every function is deterministic for a given number of threads: work is cut statically and sums are added in order.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
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

static inline vf load(const float* p) { return *(const vf*)p; }
static inline void store(float* p, vf v) { *(vf*)p = v; }
static long round_up(long n, long m) { return (n + m - 1) / m * m; }

// Scratch of the calling thread, kept between calls: fresh pages cost more than the arithmetic on them.
template <int slot> static float* scratch(long floats) {
  static thread_local struct Buffer { float* data = nullptr; long size = 0; ~Buffer() { free(data); } } buffer;
  if (floats > buffer.size) {
    free(buffer.data);
    buffer.size = round_up(floats, 1024);
    buffer.data = (float*)aligned_alloc(64, buffer.size * sizeof(float));
  }
  return buffer.data;
}

// ---- elementwise -------------------------------------------------------------------------------------------------
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

// ---- matrix product ----------------------------------------------------------------------------------------------
// One tile of R x NR of C: base + A B, with A at strides (rs, cs) and B a packed panel.
template <int R, bool packed>
static void tile(long K, const float* __restrict a, long rs, const float* __restrict b, float* __restrict c, long ldc, const float* base, long ldbase) {
  vf s[R][2] = {};
  for (long k = 0; k < K; k++, b += NR) {
    vf b0 = load(b), b1 = load(b + VL);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      float x = packed ? a[k * MR + r] : a[r * rs + k];
      s[r][0] += x * b0; s[r][1] += x * b1;
    }
  }
  for (int r = 0; r < R; r++) {
    if (base) { s[r][0] += load(base + r * ldbase); s[r][1] += load(base + r * ldbase + VL); }
    store(c + r * ldc, s[r][0]); store(c + r * ldc + VL, s[r][1]);
  }
}
template <int R = MR>
static void tile_rows(int rows, bool packed, long K, const float* a, long rs, const float* b, float* c, long ldc, const float* base, long ldbase) {
  if constexpr (R > 1) if (rows < R) return tile_rows<R - 1>(rows, packed, K, a, rs, b, c, ldc, base, ldbase);
  packed ? tile<R, true>(K, a, rs, b, c, ldc, base, ldbase) : tile<R, false>(K, a, rs, b, c, ldc, base, ldbase);
}
// A panel of up to NR columns of B[K, n] as [K][NR], filled with zeros.
static void pack_panel(long K, long n, const float* b, long rs, long cs, float* out) {
  if (n == NR && cs == 1) {
    for (long k = 0; k < K; k++) { store(out + k * NR, load(b + k * rs)); store(out + k * NR + VL, load(b + k * rs + VL)); }
  } else if (n == NR && rs == 1) {
    for (long k0 = 0; k0 < K; k0 += 16)  // by cache line of the source
      for (long j = 0; j < NR; j++)
        for (long k = k0; k < std::min(K, k0 + 16); k++) out[k * NR + j] = b[j * cs + k];
  } else {
    for (long k = 0; k < K; k++) for (long j = 0; j < NR; j++) out[k * NR + j] = j < n ? b[k * rs + j * cs] : 0.f;
  }
}
// Rows of A[m, K] as [m / MR][K][MR]; for a transposed A (rs = 1), whose rows of tiles lie side by side in memory.
static void pack_rows(long m, long K, const float* a, long cs, float* out, float* sums) {
  for (long k = 0; k < K; k++) {
    const float* row = a + k * cs;
    long i = 0;
    for (float* o = out + k * MR; i + MR <= m; i += MR, o += K * MR) for (long r = 0; r < MR; r++) o[r] = row[i + r];
    for (long r = 0; i + r < m; r++) out[i * K + k * MR + r] = row[i + r];
    if (sums) for (long j = 0; j < m; j++) sums[j] += row[j];
  }
}
static void pack(long N, long K, const float* b, long rs, long cs, float* out, long first, long last) {  // blocks first..last
  long panels = (N + NR - 1) / NR;
  for (long p = first; p < last; p++) {
    long k0 = p / panels * KC, j = p % panels * NR, kc = std::min(KC, K - k0);
    pack_panel(kc, std::min(NR, N - j), b + k0 * rs + j * cs, rs, cs, out + k0 * panels * NR + j * kc);
  }
}
static long packed_panels(long N, long K) { return (N + NR - 1) / NR * ((K + KC - 1) / KC); }
static long packed_size(long N, long K) { return round_up(N, NR) * K; }
// C[M, N] = (accumulate ? C : bias or 0) + A B on one thread, B packed. `sums` (for a transposed A) receives the sums of A's rows.
static void multiply(long M, long N, long K, const float* A, long rs, long cs, const float* panels, float* C, long ldc,
                     bool accumulate, const float* bias, float* sums) {
  float edge[MR * NR], edge_base[MR * NR];
  float* rows = cs == 1 && !sums ? nullptr : scratch<7>(MC * KC);
  for (long k0 = 0; k0 < K; k0 += KC) {
    long kc = std::min(KC, K - k0);
    const float* block = panels + k0 * round_up(N, NR);
    for (long i0 = 0; i0 < M; i0 += MC) {
      long mc = std::min(MC, M - i0);
      const float* a = A + i0 * rs + k0 * cs;
      if (rows) pack_rows(mc, kc, a, cs, rows, sums ? sums + i0 : nullptr);
      for (long j = 0; j < N; j += NR)
        for (long i = 0; i < mc; i += MR) {
          int count = (int)std::min(MR, mc - i);
          float* c = C + (i0 + i) * ldc + j;
          const float* tile_a = rows ? rows + i * kc : a + i * rs;
          bool add = accumulate || k0;
          const float* base = add ? c : bias ? bias + j : nullptr;
          long ldbase = add ? ldc : 0;
          if (j + NR <= N) { tile_rows(count, rows != nullptr, kc, tile_a, rs, block + j * kc, c, ldc, base, ldbase); continue; }
          if (base) for (int r = 0; r < count; r++) for (long q = 0; q < N - j; q++) edge_base[r * NR + q] = base[r * ldbase + q];
          tile_rows(count, rows != nullptr, kc, tile_a, rs, block + j * kc, edge, NR, base ? edge_base : nullptr, NR);
          for (int r = 0; r < count; r++) for (long q = 0; q < N - j; q++) c[r * ldc + q] = edge[r * NR + q];
        }
    }
  }
}
// The same with B packed here, one thread; for the small products of attention.
static void product(long M, long N, long K, const float* A, long rs, long cs, const float* B, long rsb, long csb, float* C, long ldc) {
  float* panels = scratch<6>(packed_size(N, K));
  pack(N, K, B, rsb, csb, panels, 0, packed_panels(N, K));
  multiply(M, N, K, A, rs, cs, panels, C, ldc, false, nullptr, nullptr);
}
static void share(long count, long unit, long& begin, long& end) {  // this thread's part, in whole units
  long t = omp_get_num_threads(), i = omp_get_thread_num(), units = (count + unit - 1) / unit;
  begin = std::min(count, units * i / t * unit); end = std::min(count, units * (i + 1) / t * unit);
}

extern "C" {

void gemm(long threads, long M, long N, long K, const float* A, long rsa, long csa, const float* B, long rsb, long csb,
          float* C, long ldc, long accumulate, const float* bias, float* sums) {
  float* panels = scratch<0>(packed_size(N, K));
  long total = packed_panels(N, K);
  if (sums && !accumulate) std::fill(sums, sums + M, 0.f);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    long begin, end;
    share(total, 1, begin, end);
    pack(N, K, B, rsb, csb, panels, begin, end);
#pragma omp barrier
    share(M, MR, begin, end);
    if (end > begin)
      multiply(end - begin, N, K, A + begin * rsa, rsa, csa, panels, C + begin * ldc, ldc, accumulate, bias, sums ? sums + begin : nullptr);
  }
}

void gelu_forward(long threads, long n, const float* x, float* y) {
#pragma omp parallel for simd num_threads(threads) if (parallel : threads > 1) schedule(static)
  for (long i = 0; i < n; i++) y[i] = x[i] * normal(x[i]).cdf;
}
// y again (it is not kept) and dx, from x and dy.
void gelu_backward(long threads, long n, const float* x, const float* dy, float* y, float* dx) {
#pragma omp parallel for simd num_threads(threads) if (parallel : threads > 1) schedule(static)
  for (long i = 0; i < n; i++) {
    Normal g = normal(x[i]);
    float d = dy[i];
    y[i] = x[i] * g.cdf;
    dx[i] = d * (g.cdf + x[i] * g.pdf);
  }
}
// Gated: x is [rows, 2 n], y = gelu(x[:, :n]) * x[:, n:].
void geglu_forward(long threads, long rows, long n, const float* x, float* y, uint64_t key, double p) {
  Dropout kept(key, p);
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1) schedule(static)
  for (long r = 0; r < rows; r++) {
    const float *a = x + r * 2 * n, *b = a + n;
    float* out = y + r * n;
#pragma omp simd
    for (int i = 0; i < (int)n; i++) out[i] = a[i] * normal(a[i]).cdf * b[i] * (p > 0 ? kept((uint32_t)(r * n + i)) : 1.f);
  }
}
void geglu_backward(long threads, long rows, long n, const float* x, const float* dy, float* y, float* dx, uint64_t key, double p) {
  Dropout kept(key, p);
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1) schedule(static)
  for (long r = 0; r < rows; r++) {
    const float *a = x + r * 2 * n, *b = a + n, *d = dy + r * n;
    float *out = y + r * n, *da = dx + r * 2 * n, *db = da + n;
#pragma omp simd
    for (int i = 0; i < (int)n; i++) {
      Normal g = normal(a[i]);
      float gelu = a[i] * g.cdf, slope = g.cdf + a[i] * g.pdf, gate = b[i];
      float keep = p > 0 ? kept((uint32_t)(r * n + i)) : 1.f, up = d[i] * keep;
      out[i] = gelu * gate * keep; da[i] = up * gate * slope; db[i] = up * gelu;
    }
  }
}

void dropout(long threads, long n, const float* x, float* y, uint64_t key, double p) {
  Dropout kept(key, p);
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1) schedule(static)
  for (long block = 0; block < n; block += 4096) {
    int size = (int)std::min(4096L, n - block);
#pragma omp simd
    for (int i = 0; i < size; i++) y[block + i] = x[block + i] * kept((uint32_t)block + (uint32_t)i);
  }
}

// s = residual + dropout(x), y = (s - mean) / std * weight + bias; residual, weight, bias and s may be null.
void norm_forward(long threads, long rows, long n, const float* x, const float* residual, const float* weight,
                  const float* bias, double epsilon, uint64_t key, double p, float* s, float* y, float* statistics) {
  Dropout kept(key, p);
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1) schedule(static)
  for (long r = 0; r < rows; r++) {
    const float *in = x + r * n, *old = residual + r * n;
    float *out = y + r * n, *sum = s ? s + r * n : nullptr;
    if (sum) {
      uint32_t first = (uint32_t)(r * n);
      if (p > 0) {
#pragma omp simd
        for (int i = 0; i < (int)n; i++) sum[i] = in[i] * kept(first + (uint32_t)i);
      } else {
        std::copy(in, in + n, sum);
      }
      if (residual) {
#pragma omp simd
        for (long i = 0; i < n; i++) sum[i] += old[i];
      }
      in = sum;
    }
    float total = 0, squares = 0;
#pragma omp simd reduction(+ : total)
    for (long i = 0; i < n; i++) total += in[i];
    float mean = total / n;
#pragma omp simd reduction(+ : squares)
    for (long i = 0; i < n; i++) squares += (in[i] - mean) * (in[i] - mean);
    float scale = 1.f / std::sqrt(squares / n + (float)epsilon);
    statistics[2 * r] = mean; statistics[2 * r + 1] = scale;
    if (bias) {
#pragma omp simd
      for (long i = 0; i < n; i++) out[i] = (in[i] - mean) * scale * weight[i] + bias[i];
    } else {
#pragma omp simd
      for (long i = 0; i < n; i++) out[i] = (in[i] - mean) * scale * weight[i];
    }
  }
}
// ds (+ dsum, the gradient that reaches s besides through y), dx = dropout(ds); dweight and dbias are summed over rows.
void norm_backward(long threads, long rows, long n, const float* s, const float* statistics, const float* weight, const float* dy,
                   const float* dsum, uint64_t key, double p, float* ds, float* dx, float* dweight, float* dbias) {
  Dropout kept(key, p);
  float* partial = scratch<1>(threads * 2 * n);  // one sum a thread, added in the threads' order
  std::fill(partial, partial + threads * 2 * n, 0.f);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    float *dw = partial + omp_get_thread_num() * 2 * n, *db = dw + n;
    long begin, end;
    share(rows, 1, begin, end);
    for (long r = begin; r < end; r++) {
      const float *in = s + r * n, *g = dy + r * n, *extra = dsum ? dsum + r * n : nullptr;
      float *out = ds + r * n, mean = statistics[2 * r], scale = statistics[2 * r + 1], a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
      for (long i = 0; i < n; i++) {
        float h = (in[i] - mean) * scale, w = g[i] * weight[i];
        dw[i] += g[i] * h; db[i] += g[i];
        a += w; b += w * h;
      }
      a /= n; b /= n;
#pragma omp simd
      for (long i = 0; i < n; i++) out[i] = (g[i] * weight[i] - a - (in[i] - mean) * scale * b) * scale;
      if (extra) {
#pragma omp simd
        for (long i = 0; i < n; i++) out[i] += extra[i];
      }
      if (dx) {
        uint32_t first = (uint32_t)(r * n);
#pragma omp simd
        for (int i = 0; i < (int)n; i++) dx[r * n + i] = out[i] * kept(first + (uint32_t)i);
      }
    }
  }
  for (long i = 0; i < n; i++) {
    float w = 0, b = 0;
    for (long t = 0; t < threads; t++) { w += partial[t * 2 * n + i]; b += partial[t * 2 * n + n + i]; }
    dweight[i] = w;
    if (dbias) dbias[i] = b;
  }
}
}

// ---- attention ---------------------------------------------------------------------------------------------------
// One head of one row at a time, all of it in the second-level cache. qkv is [B, L, 3, H, d].
struct Attention {
  long L, H, d; const unsigned char* mask; const float *cosine, *sine; long window; Dropout kept; double p; float scale;
  // out[L, d] = rotated source times factor; the source has rows of `stride`. direction -1 turns back (for gradients).
  void rotate(const float* in, long in_stride, float* out, long out_stride, float direction, float factor) const {
    long half = d / 2;
    for (long i = 0; i < L; i++) {
      const float *x = in + i * in_stride, *c = cosine + i * half, *s = sine + i * half;
      float* o = out + i * out_stride;
      if (!cosine) { for (long j = 0; j < d; j++) o[j] = x[j] * factor; continue; }
      for (long j = 0; j < half; j++) {
        float a = x[j] * factor, b = x[j + half] * factor, turn = s[j] * direction;
        o[j] = a * c[j] - b * turn; o[j + half] = b * c[j] + a * turn;
      }
    }
  }
  void mask_scores(long b, float* S) const {
    if (mask) for (long i = 0; i < L; i++) for (long j = 0; j < L; j++) if (!mask[b * L + j]) S[i * L + j] = -INFINITY;
    if (window) for (long i = 0; i < L; i++) for (long j = 0; j < L; j++) if (std::labs(i - j) > window) S[i * L + j] = -INFINITY;
  }
};
extern "C" {
// context [B, L, H, d]; log_sums [B, H, L] is what the backward pass needs to find the probabilities again.
void attention_forward(long threads, long B, long L, long H, long d, const float* qkv, const unsigned char* mask, const float* cosine,
                       const float* sine, long window, uint64_t key, double p, float* context, float* log_sums) {
  Attention t{L, H, d, mask, cosine, sine, window, Dropout(key, p), p, 1.f / std::sqrt((float)d)};
  long D = H * d;
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1) schedule(static)
  for (long n = 0; n < B * H; n++) {
    long b = n / H, h = n % H;
    const float* q = qkv + b * L * 3 * D + h * d;
    float *Q = scratch<2>(2 * L * d), *K = Q + L * d, *S = scratch<3>(L * L);
    t.rotate(q, 3 * D, Q, d, 1.f, t.scale);
    t.rotate(q + D, 3 * D, K, d, 1.f, 1.f);
    product(L, L, d, Q, d, 1, K, 1, d, S, L);
    t.mask_scores(b, S);
    for (long i = 0; i < L; i++) {
      float *s = S + i * L, top = -INFINITY, total = 0;
#pragma omp simd reduction(max : top)
      for (long j = 0; j < L; j++) top = s[j] > top ? s[j] : top;
      if (top == -INFINITY) { std::fill(s, s + L, 0.f); log_sums[n * L + i] = INFINITY; continue; }  // a row that sees nothing
#pragma omp simd reduction(+ : total)
      for (long j = 0; j < L; j++) { s[j] = exp_(s[j] - top); total += s[j]; }
      log_sums[n * L + i] = top + std::log(total);
      float inverse = 1.f / total;
      uint32_t first = (uint32_t)((n * L + i) * L);
      if (p > 0) {
#pragma omp simd
        for (int j = 0; j < (int)L; j++) s[j] *= inverse * t.kept(first + (uint32_t)j);
      } else {
#pragma omp simd
        for (long j = 0; j < L; j++) s[j] *= inverse;
      }
    }
    product(L, d, L, S, L, 1, q + 2 * D, 3 * D, 1, context + b * L * D + h * d, D);
  }
}
void attention_backward(long threads, long B, long L, long H, long d, const float* qkv, const unsigned char* mask, const float* cosine,
                        const float* sine, long window, uint64_t key, double p, const float* dcontext, const float* log_sums, float* dqkv) {
  Attention t{L, H, d, mask, cosine, sine, window, Dropout(key, p), p, 1.f / std::sqrt((float)d)};
  long D = H * d;
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1) schedule(static)
  for (long n = 0; n < B * H; n++) {
    long b = n / H, h = n % H;
    const float *q = qkv + b * L * 3 * D + h * d, *v = q + 2 * D, *dc = dcontext + b * L * D + h * d;
    float *dq = dqkv + b * L * 3 * D + h * d, *dv = dq + 2 * D;
    float *Q = scratch<2>(3 * L * d), *K = Q + L * d, *turned = K + L * d, *P = scratch<3>(L * L), *dP = scratch<4>(L * L);
    t.rotate(q, 3 * D, Q, d, 1.f, t.scale);
    t.rotate(q + D, 3 * D, K, d, 1.f, 1.f);
    product(L, L, d, Q, d, 1, K, 1, d, P, L);
    t.mask_scores(b, P);
    product(L, L, d, dc, D, 1, v, 1, 3 * D, dP, L);
    for (long i = 0; i < L; i++) {
      float *s = P + i * L, *g = dP + i * L, log_sum = log_sums[n * L + i], delta = 0;
      uint32_t first = (uint32_t)((n * L + i) * L);
      float keep[L];
#pragma omp simd reduction(+ : delta)
      for (int j = 0; j < (int)L; j++) {
        float e = exp_(s[j] - log_sum);
        keep[j] = p > 0 ? t.kept(first + (uint32_t)j) : 1.f;
        s[j] = e;
        g[j] *= keep[j];
        delta += e * g[j];
      }
#pragma omp simd
      for (long j = 0; j < L; j++) { g[j] = s[j] * (g[j] - delta); s[j] *= keep[j]; }
    }
    product(L, d, L, P, 1, L, dc, D, 1, dv, 3 * D);
    product(L, d, L, dP, L, 1, K, d, 1, turned, d);
    t.rotate(turned, d, dq, 3 * D, -1.f, t.scale);
    product(L, d, L, dP, 1, L, Q, d, 1, turned, d);
    t.rotate(turned, d, dq + D, 3 * D, -1.f, 1.f);
  }
}

// ---- vocabulary head ---------------------------------------------------------------------------------------------
// Rows of logits [rows, V] in place: loss of the target, a sample by inverse CDF, whether the likeliest is the target; with
// row_weight the logits become their gradient weight * (softmax - onehot), else the probabilities' numerators.
void vocabulary_rows(long threads, long rows, long V, float* logits, const int64_t* targets, const double* uniforms, const float* row_weight,
                     float* losses, int64_t* samples, int64_t* likeliest) {
  constexpr long BLOCK = 256;
  long blocks = (V + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(threads) if (parallel : threads > 1) schedule(static)
  for (long r = 0; r < rows; r++) {
    float *x = logits + r * V, *sums = scratch<5>(blocks), top = -INFINITY, hit = x[targets[r]];
#pragma omp simd reduction(max : top)
    for (long j = 0; j < V; j++) top = x[j] > top ? x[j] : top;
    long best = 0;
    while (best < V - 1 && x[best] != top) best++;
    likeliest[r] = best;
    double total = 0;
    for (long k = 0; k < blocks; k++) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (long j = k * BLOCK; j < std::min(V, (k + 1) * BLOCK); j++) { x[j] = exp_(x[j] - top); sum += x[j]; }
      sums[k] = sum; total += sum;
    }
    losses[r] = (float)(std::log(total) + top - hit);
    // Two levels: the block, then the token in it. `last` is the last token seen that has any probability: rounding of the
    // sums can only ever lead past the end of a block, and then that token is the answer.
    double left = uniforms[r] * total;
    long k = 0, last = best;
    while (k < blocks - 1 && !(left < sums[k])) left -= sums[k++];
    for (long j = k * BLOCK; j < std::min(V, (k + 1) * BLOCK); j++) {
      if (x[j] > 0) last = j;
      left -= x[j];
      if (left < 0) break;
    }
    samples[r] = last;
    if (row_weight) {
      float scale = (float)(row_weight[r] / total);
#pragma omp simd
      for (long j = 0; j < V; j++) x[j] *= scale;
      x[targets[r]] -= row_weight[r];
    }
  }
}
}
