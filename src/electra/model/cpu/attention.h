// Softmax attention with rotary positions: one head of one row at a time, all of it in the second-level cache, in float
// whatever the type of the activations. qkv is [B, L, 3, H, d].
#pragma once
#include "gemm.h"

struct Attention {
  long L, H, d; const unsigned char* mask; const float *cosine, *sine; long window; Dropout kept; double p; float scale;

  // out[L, d] = source times factor, its rows `stride` apart; turned by rotary positions if asked.
  template <class T> void read(const T* in, long stride, float* out, float factor, bool turned) const {
    for (long i = 0; i < L; i++) {
      turned && cosine ? turn_row((int)(d / 2), in + i * stride, out + i * d, cosine + i * (d / 2), sine + i * (d / 2), 1.f, factor)
                       : scale_row((int)d, in + i * stride, out + i * d, factor);
    }
  }
  // The way back: gradients are turned the other way.
  template <class T> void write(const float* in, T* out, long stride, float factor, bool turned) const {
    for (long i = 0; i < L; i++) {
      turned && cosine ? turn_row((int)(d / 2), in + i * d, out + i * stride, cosine + i * (d / 2), sine + i * (d / 2), -1.f, factor)
                       : scale_row((int)d, in + i * d, out + i * stride, factor);
    }
  }
  template <class From, class To> static void scale_row(int n, const From* __restrict x, To* __restrict y, float factor) {
#pragma omp simd
    for (int j = 0; j < n; j++) put(y[j], get(x[j]) * factor);
  }
  template <class From, class To> static __attribute__((noinline)) void turn_row(int half, const From* __restrict x, To* __restrict y, const float* __restrict c,
                                                                                 const float* __restrict s, float direction, float factor) {
#pragma omp simd
    for (int j = 0; j < half; j++) {
      float a = get(x[j]) * factor, b = get(x[j + half]) * factor, turn = s[j] * direction;
      put(y[j], a * c[j] - b * turn); put(y[j + half], b * c[j] + a * turn);
    }
  }
  void mask_scores(long b, float* S) const {
    if (mask) for (long i = 0; i < L; i++) for (long j = 0; j < L; j++) if (!mask[b * L + j]) S[i * L + j] = -INFINITY;
    if (window) for (long i = 0; i < L; i++) for (long j = 0; j < L; j++) if (std::labs(i - j) > window) S[i * L + j] = -INFINITY;
  }
};
// Scores to probabilities with dropout, in place. Returns the log of the sum of exponentials; INFINITY for a row that sees nothing.
template <bool dropping> static __attribute__((noinline)) float softmax_row(int L, float* s, uint32_t first, Dropout kept) {
  float top = -INFINITY, total = 0;
#pragma omp simd reduction(max : top)
  for (int j = 0; j < L; j++) top = s[j] > top ? s[j] : top;
  if (top == -INFINITY) { std::fill(s, s + L, 0.f); return INFINITY; }
#pragma omp simd reduction(+ : total)
  for (int j = 0; j < L; j++) { s[j] = exp_(s[j] - top); total += s[j]; }
  float inverse = 1.f / total;
#pragma omp simd
  for (int j = 0; j < L; j++) s[j] *= dropping ? inverse * kept(first + (uint32_t)j) : inverse;
  return top + std::log(total);
}
// From scores s and the gradient g of the dropped probabilities: g becomes the gradient of the scores, s the dropped probabilities.
template <bool dropping> ROW softmax_backward_row(int L, float* __restrict s, float* __restrict g, float* __restrict keep, float log_sum, uint32_t first, Dropout kept) {
  float delta = 0;
#pragma omp simd reduction(+ : delta)
  for (int j = 0; j < L; j++) {
    float e = exp_(s[j] - log_sum), d = g[j];
    if (dropping) { keep[j] = kept(first + (uint32_t)j); d *= keep[j]; }
    s[j] = e; g[j] = d;
    delta += e * d;
  }
#pragma omp simd
  for (int j = 0; j < L; j++) { g[j] = s[j] * (g[j] - delta); if (dropping) s[j] *= keep[j]; }
}

// context [B, L, H, d]; log_sums [B, H, L] is what the backward pass needs to find the probabilities again.
template <class T> static void attention_forward(long threads, long B, long L, long H, long d, const T* qkv, const unsigned char* mask, const float* cosine,
                                                 const float* sine, long window, uint64_t key, double p, T* context, float* log_sums) {
  Attention t{L, H, d, mask, cosine, sine, window, Dropout(key, p), p, 1.f / std::sqrt((float)d)};
  auto softmax = p > 0 ? softmax_row<true> : softmax_row<false>;
  long D = H * d;
  ROWS(B * H) {
    long b = r / H, h = r % H;
    const T* q = qkv + b * L * 3 * D + h * d;
    float *Q = scratch<2>(3 * L * d), *K = Q + L * d, *V = K + L * d, *S = scratch<3>(L * L);
    t.read(q, 3 * D, Q, t.scale, true);
    t.read(q + D, 3 * D, K, 1.f, true);
    t.read(q + 2 * D, 3 * D, V, 1.f, false);
    product(L, L, d, Q, d, 1, K, 1, d, S, L);
    t.mask_scores(b, S);
    for (long i = 0; i < L; i++) log_sums[r * L + i] = softmax((int)L, S + i * L, (uint32_t)((r * L + i) * L), t.kept);
    product(L, d, L, S, L, 1, V, d, 1, Q, d);
    t.write(Q, context + b * L * D + h * d, D, 1.f, false);
  }
}
template <class T> static void attention_backward(long threads, long B, long L, long H, long d, const T* qkv, const unsigned char* mask, const float* cosine,
                                                  const float* sine, long window, uint64_t key, double p, const T* dcontext, const float* log_sums, T* dqkv) {
  Attention t{L, H, d, mask, cosine, sine, window, Dropout(key, p), p, 1.f / std::sqrt((float)d)};
  auto softmax_backward = p > 0 ? softmax_backward_row<true> : softmax_backward_row<false>;
  long D = H * d;
  ROWS(B * H) {
    long b = r / H, h = r % H;
    const T* q = qkv + b * L * 3 * D + h * d;
    T* dq = dqkv + b * L * 3 * D + h * d;
    float *Q = scratch<2>(5 * L * d + L), *K = Q + L * d, *V = K + L * d, *dC = V + L * d, *out = dC + L * d, *keep = out + L * d;
    float *P = scratch<3>(L * L), *dP = scratch<4>(L * L);
    t.read(q, 3 * D, Q, t.scale, true);
    t.read(q + D, 3 * D, K, 1.f, true);
    t.read(q + 2 * D, 3 * D, V, 1.f, false);
    t.read(dcontext + b * L * D + h * d, D, dC, 1.f, false);
    product(L, L, d, Q, d, 1, K, 1, d, P, L);
    t.mask_scores(b, P);
    product(L, L, d, dC, d, 1, V, 1, d, dP, L);
    for (long i = 0; i < L; i++)
      softmax_backward((int)L, P + i * L, dP + i * L, keep, log_sums[r * L + i], (uint32_t)((r * L + i) * L), t.kept);
    product(L, d, L, P, 1, L, dC, d, 1, out, d);
    t.write(out, dq + 2 * D, 3 * D, 1.f, false);
    product(L, d, L, dP, L, 1, K, d, 1, out, d);
    t.write(out, dq, 3 * D, t.scale, true);
    product(L, d, L, dP, 1, L, Q, d, 1, out, d);
    t.write(out, dq + D, 3 * D, 1.f, true);
  }
}
