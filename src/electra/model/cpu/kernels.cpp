// Kernels of the training step for CPUs. No torch headers: plain functions over raw pointers, called through ctypes, so that
// the files compile in seconds and do not depend on torch's C++ ABI. kernels.py describes each one. Every function is
// deterministic for a given number of threads: work is cut statically and sums are added in order.
#include "attention.h"
#include "elementwise.h"
#include "gemm.h"
#include "vocabulary.h"

// Each kernel's address under a name without C++ in it: for float activations and for bfloat16 ones. Weights, statistics and
// arithmetic are float in both.
#define KERNEL(name) void *float32_##name = (void*)&name<float>, *bfloat16_##name = (void*)&name<bf16>;
extern "C" {
void* float32_gemm = (void*)&gemm;
KERNEL(gelu_forward)
KERNEL(gelu_backward)
KERNEL(geglu_forward)
KERNEL(geglu_backward)
KERNEL(dropout)
KERNEL(norm_forward)
KERNEL(norm_backward)
KERNEL(attention_forward)
KERNEL(attention_backward)
KERNEL(vocabulary_rows)
}
