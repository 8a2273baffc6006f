// The inner loops of attention: one work item each, over blocks of queries and keys.
#pragma once

#include "kernels/cpu/isa.h"

namespace zpp::kernels {

/// A (B, T, heads, D) operand with dense channels: its memory and strides in elements.
struct HeadsView {
  void* data = nullptr;
  int64_t batch = 0, token = 0, head = 0;
};

/// Arguments of a forward or backward pass, as checked. What a pass does not use is absent.
struct AttentionProblem {
  HeadsView q, k, v, out, dout, dq, dk, dv;
  void* lse = nullptr;
  int64_t lse_batch = 0, lse_head = 0;
  const int32_t* doc_start = nullptr;
  int64_t doc_batch = 0;
  int64_t batch = 0, tokens = 0, heads = 0, kv_heads = 0, width = 0;
  float scale = 1.0f;
  DType dtype = DType::kF32;
};

/// Queries [begin, begin + query_group) of one head, or everything of one key head (backward).
struct AttentionItem {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t begin = 0;
};

struct AttentionSimd {
  /// `scratch`: forward_scratch(width) elements of the accumulation type.
  void (*forward)(const AttentionProblem& problem, const AttentionItem& item, void* scratch);
  int64_t (*forward_scratch)(int64_t width);
  int64_t query_group;

  /// `scratch`: backward_scratch(query heads per key head, tokens, width) elements, likewise.
  void (*backward)(const AttentionProblem& problem, const AttentionItem& item, void* scratch);
  int64_t (*backward_scratch)(int64_t heads, int64_t tokens, int64_t width);
};

ZPP_DECLARE_SIMD(AttentionSimd)

}  // namespace zpp::kernels
