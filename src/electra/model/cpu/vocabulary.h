// The vocabulary head: loss, sample, likeliest token and gradient from one buffer of scores.
#pragma once
#include "common.h"

static __attribute__((noinline)) float largest(long n, const float* x) {
  float top = -INFINITY;
#pragma omp simd reduction(max : top)
  for (long j = 0; j < n; j++) top = x[j] > top ? x[j] : top;
  return top;
}
static __attribute__((noinline)) float exponentials(long n, float* x, float top) {  // in place; returns their sum
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (long j = 0; j < n; j++) { x[j] = exp_(x[j] - top); sum += x[j]; }
  return sum;
}
template <class T> ROW widen(long n, const T* __restrict x, float* __restrict y) {
#pragma omp simd
  for (long j = 0; j < n; j++) y[j] = get(x[j]);
}
template <class T> ROW scaled(long n, const float* x, T* y, float factor) {
#pragma omp simd
  for (long j = 0; j < n; j++) put(y[j], x[j] * factor);
}

// Rows of logits [rows, V] in place: loss of the target, a sample by inverse CDF, the likeliest token; with row_weight the
// logits become their gradient weight * (softmax - onehot), else they are left undefined.
template <class T> static void vocabulary_rows(long threads, long rows, long V, T* logits, const int64_t* targets, const double* uniforms, const float* row_weight,
                                               float* losses, int64_t* samples, int64_t* likeliest) {
  constexpr long PART = 256;
  long parts = (V + PART - 1) / PART;
  ROWS(rows) {
    T* row = logits + r * V;
    float *sums = scratch<5>(parts), *x;
    if constexpr (sizeof(T) == sizeof(float)) x = row;
    else widen(V, row, x = scratch<4>(V));
    float top = largest(V, x), hit = x[targets[r]];
    long best = 0;
    while (best < V - 1 && x[best] != top) best++;
    likeliest[r] = best;
    double total = 0;
    for (long k = 0; k < parts; k++) total += sums[k] = exponentials(std::min(PART, V - k * PART), x + k * PART, top);
    losses[r] = (float)(std::log(total) + top - hit);
    // Two levels: the part, then the token in it. `last` is the last token seen that has any probability: rounding of the
    // sums can only ever lead past the end of a part, and then that token is the answer.
    double left = uniforms[r] * total;
    long k = 0, last = best;
    while (k < parts - 1 && !(left < sums[k])) left -= sums[k++];
    for (long j = k * PART; j < std::min(V, (k + 1) * PART); j++) {
      if (x[j] > 0) last = j;
      left -= x[j];
      if (left < 0) break;
    }
    samples[r] = last;
    if (row_weight) {
      float scale = (float)(row_weight[r] / total), target = x[targets[r]];
      scaled(V, x, row, scale);
      put(row[targets[r]], target * scale - row_weight[r]);
    }
  }
}
