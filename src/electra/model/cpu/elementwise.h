// GELU, gated GELU, dropout, residual + dropout + norm. T is the type of the activations (float or bf16); arithmetic,
// weights, statistics and the weights' gradients are float.
#pragma once
#include "common.h"

template <class T> ROW gelu_row(int n, const T* __restrict x, T* __restrict y) {
#pragma omp simd
  for (int i = 0; i < n; i++) { float a = get(x[i]); put(y[i], a * normal(a).cdf); }
}
template <class T> ROW gelu_backward_row(int n, const T* __restrict x, const T* dy, T* y, T* __restrict dx) {
#pragma omp simd
  for (int i = 0; i < n; i++) {
    float a = get(x[i]), d = get(dy[i]);
    Normal g = normal(a);
    put(y[i], a * g.cdf); put(dx[i], d * (g.cdf + a * g.pdf));
  }
}
template <bool dropping, class T> ROW geglu_row(int n, const T* __restrict a, const T* __restrict b, T* __restrict y, uint32_t first, Dropout kept) {
#pragma omp simd
  for (int i = 0; i < n; i++) {
    float value = get(a[i]), out = value * normal(value).cdf * get(b[i]);
    put(y[i], dropping ? out * kept(first + (uint32_t)i) : out);
  }
}
template <bool dropping, class T> ROW geglu_backward_row(int n, const T* __restrict a, const T* __restrict b, const T* dy, T* y,
                                                         T* __restrict da, T* __restrict db, uint32_t first, Dropout kept) {
#pragma omp simd
  for (int i = 0; i < n; i++) {
    float value = get(a[i]), gate = get(b[i]), up = get(dy[i]), keep = dropping ? kept(first + (uint32_t)i) : 1.f;
    Normal g = normal(value);
    float gelu = value * g.cdf;
    up *= keep;
    put(y[i], gelu * gate * keep); put(da[i], up * gate * (g.cdf + value * g.pdf)); put(db[i], up * gelu);
  }
}
template <class T> ROW dropout_row(int n, const T* __restrict x, T* __restrict y, uint32_t first, Dropout kept) {
#pragma omp simd
  for (int i = 0; i < n; i++) put(y[i], get(x[i]) * kept(first + (uint32_t)i));
}
// sum = residual + dropout(x), rounded to T, and as float.
template <bool dropping, class T> ROW add_row(int n, const T* __restrict x, const T* __restrict residual, T* __restrict sum, uint32_t first, Dropout kept) {
  if (residual) {
#pragma omp simd
    for (int i = 0; i < n; i++) put(sum[i], (dropping ? get(x[i]) * kept(first + (uint32_t)i) : get(x[i])) + get(residual[i]));
  } else {
#pragma omp simd
    for (int i = 0; i < n; i++) put(sum[i], dropping ? get(x[i]) * kept(first + (uint32_t)i) : get(x[i]));
  }
}
template <class T> ROW norm_row(int n, const T* __restrict x, const float* __restrict weight, const float* __restrict bias, float epsilon,
                                T* __restrict y, float* __restrict statistics) {
  float total = 0, squares = 0;
#pragma omp simd reduction(+ : total)
  for (int i = 0; i < n; i++) total += get(x[i]);
  float mean = total / n;
#pragma omp simd reduction(+ : squares)
  for (int i = 0; i < n; i++) { float d = get(x[i]) - mean; squares += d * d; }
  float scale = 1.f / std::sqrt(squares / n + epsilon);
  statistics[0] = mean; statistics[1] = scale;
  if (bias) {
#pragma omp simd
    for (int i = 0; i < n; i++) put(y[i], (get(x[i]) - mean) * scale * weight[i] + bias[i]);
  } else {
#pragma omp simd
    for (int i = 0; i < n; i++) put(y[i], (get(x[i]) - mean) * scale * weight[i]);
  }
}
// ds from dy (+ extra, the gradient that reaches s besides through y), and sums of the weights' gradients over rows.
template <class T> ROW norm_backward_row(int n, const T* __restrict s, const float* __restrict statistics, const float* __restrict weight,
                                         const T* __restrict dy, const T* __restrict extra, T* __restrict ds, float* __restrict dw, float* __restrict db) {
  float mean = statistics[0], scale = statistics[1], a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
  for (int i = 0; i < n; i++) {
    float g = get(dy[i]), h = (get(s[i]) - mean) * scale, w = g * weight[i];
    dw[i] += g * h; db[i] += g;
    a += w; b += w * h;
  }
  a /= n; b /= n;
  if (extra) {
#pragma omp simd
    for (int i = 0; i < n; i++) put(ds[i], (get(dy[i]) * weight[i] - a - (get(s[i]) - mean) * scale * b) * scale + get(extra[i]));
  } else {
#pragma omp simd
    for (int i = 0; i < n; i++) put(ds[i], (get(dy[i]) * weight[i] - a - (get(s[i]) - mean) * scale * b) * scale);
  }
}

constexpr long BLOCK = 4096;  // elements of a long row that are done at once
static long blocks(long n) { return (n + BLOCK - 1) / BLOCK; }
static int size_of_block(long n, long r) { return (int)std::min(BLOCK, n - r * BLOCK); }

template <class T> static void gelu_forward(long threads, long n, const T* x, T* y) {
  ROWS(blocks(n)) gelu_row(size_of_block(n, r), x + r * BLOCK, y + r * BLOCK);
}
// y again (it is not kept) and dx, from x and dy; y may lie where dy does.
template <class T> static void gelu_backward(long threads, long n, const T* x, const T* dy, T* y, T* dx) {
  ROWS(blocks(n)) gelu_backward_row(size_of_block(n, r), x + r * BLOCK, dy + r * BLOCK, y + r * BLOCK, dx + r * BLOCK);
}
// Gated: x is [rows, 2 n], y = gelu(x[:, :n]) * x[:, n:].
template <class T> static void geglu_forward(long threads, long rows, long n, const T* x, T* y, uint64_t key, double p) {
  Dropout kept(key, p);
  auto row = p > 0 ? geglu_row<true, T> : geglu_row<false, T>;
  ROWS(rows) row((int)n, x + r * 2 * n, x + r * 2 * n + n, y + r * n, (uint32_t)(r * n), kept);
}
template <class T> static void geglu_backward(long threads, long rows, long n, const T* x, const T* dy, T* y, T* dx, uint64_t key, double p) {
  Dropout kept(key, p);
  auto row = p > 0 ? geglu_backward_row<true, T> : geglu_backward_row<false, T>;
  ROWS(rows) row((int)n, x + r * 2 * n, x + r * 2 * n + n, dy + r * n, y + r * n, dx + r * 2 * n, dx + r * 2 * n + n, (uint32_t)(r * n), kept);
}
template <class T> static void dropout(long threads, long n, const T* x, T* y, uint64_t key, double p) {
  Dropout kept(key, p);
  ROWS(blocks(n)) dropout_row(size_of_block(n, r), x + r * BLOCK, y + r * BLOCK, (uint32_t)(r * BLOCK), kept);
}
// s = residual + dropout(x), y = (s - mean) / std * weight + bias; residual, bias and s may be null (then s is x).
template <class T> static void norm_forward(long threads, long rows, long n, const T* x, const T* residual, const float* weight, const float* bias,
                                            double epsilon, uint64_t key, double p, T* s, T* y, float* statistics) {
  Dropout kept(key, p);
  auto add = p > 0 ? add_row<true, T> : add_row<false, T>;
  ROWS(rows) {
    const T* in = x + r * n;
    if (s) { add((int)n, in, residual ? residual + r * n : nullptr, s + r * n, (uint32_t)(r * n), kept); in = s + r * n; }
    norm_row((int)n, in, weight, bias, (float)epsilon, y + r * n, statistics + 2 * r);
  }
}
// ds, dx = dropout(ds), dweight and dbias.
template <class T> static void norm_backward(long threads, long rows, long n, const T* s, const float* statistics, const float* weight, const T* dy,
                                             const T* dsum, uint64_t key, double p, T* ds, T* dx, float* dweight, float* dbias) {
  Dropout kept(key, p);
  float* partial = scratch<1>(threads * 2 * n);  // one sum a thread, added in the threads' order
  std::fill(partial, partial + threads * 2 * n, 0.f);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    float *dw = partial + omp_get_thread_num() * 2 * n, *db = dw + n;
    long begin, end;
    share(rows, 1, begin, end);
    for (long r = begin; r < end; r++) {
      norm_backward_row((int)n, s + r * n, statistics + 2 * r, weight, dy + r * n, dsum ? dsum + r * n : nullptr, ds + r * n, dw, db);
      if (dx) dropout_row((int)n, ds + r * n, dx + r * n, (uint32_t)(r * n), kept);
    }
  }
  for (long i = 0; i < n; i++) {
    float w = 0, b = 0;
    for (long t = 0; t < threads; t++) { w += partial[t * 2 * n + i]; b += partial[t * 2 * n + n + i]; }
    dweight[i] = w;
    if (dbias) dbias[i] = b;
  }
}
