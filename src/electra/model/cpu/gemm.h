// Product of float matrices with any strides.
#pragma once
#include "common.h"

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
  if (K == 0 && !accumulate)  // an empty sum: no block below would write it
    for (long i = 0; i < M; i++) for (long j = 0; j < N; j++) C[i * ldc + j] = bias ? bias[j] : 0.f;
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

static void gemm(long threads, long M, long N, long K, const float* A, long rsa, long csa, const float* B, long rsb, long csb,
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
