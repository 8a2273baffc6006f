#include "kernels/cpu/attention.h"

#include "kernels/cpu/slots.h"

namespace zpp::kernels::cpu {

namespace {

int64_t accumulator_size(DType dtype) { return dtype == DType::kF64 ? 8 : 4; }

bool is_empty(const AttentionProblem& p) {
  return p.batch == 0 || p.tokens == 0 || p.heads == 0 || p.width == 0;
}

int64_t backward_items(const AttentionProblem& p) { return p.batch * p.kv_heads; }

int64_t backward_slot_scratch(const AttentionSimd& table, const AttentionProblem& p) {
  return table.backward_scratch(p.heads / p.kv_heads, p.tokens, p.width);
}

/// Causal, as if every sample were one document. `arrays` of the size of q, `kv_arrays` of that of
/// k; `products` of queries and keys.
Work work_of(const AttentionProblem& p, int arrays, int kv_arrays, int products) {
  const int64_t rows = p.batch * p.tokens * p.width;
  const int64_t pairs = p.batch * p.heads * p.tokens * (p.tokens + 1) / 2;
  return {.bytes = static_cast<double>((arrays * p.heads + kv_arrays * p.kv_heads) * rows *
                                       size_of(p.dtype)),
          .flops = 2.0 * static_cast<double>(products * pairs * p.width)};
}

/// What one stream keeps for its attention.
struct AttentionState {
  ScratchMemory scratch;
};

}  // namespace

void attention(CpuStream& stream, const AttentionProblem& p) {
  if (is_empty(p)) return;
  const AttentionSimd& table = simd<AttentionSimd>(stream);
  stream.launch("attention", work_of(p, 2, 2, 2), [&stream, &table, p](Workers& workers) {
    const int64_t slot_bytes = table.forward_scratch(p.width) * accumulator_size(p.dtype);
    std::byte* const scratch =
        stream.library_state<AttentionState>().scratch.at_least(slot_bytes * workers.threads());
    const int64_t groups = ceil_div(p.tokens, table.query_group), rows = p.batch * p.heads;
    // Late queries see the most keys: they start first, so that the threads end together.
    run_in_slots(workers, groups * rows, [&](int64_t item, int64_t slot) {
      const int64_t row = item % rows, group = groups - 1 - item / rows;
      table.forward(p, {row / p.heads, row % p.heads, group * table.query_group},
                    scratch + slot * slot_bytes);
    });
  });
}

void attention_backward(CpuStream& stream, const AttentionProblem& p, void* scratch) {
  if (is_empty(p)) return;
  const AttentionSimd& table = simd<AttentionSimd>(stream);
  stream.launch("attention_backward", work_of(p, 4, 4, 5), [&table, p, scratch](Workers& workers) {
    const int64_t slot_bytes = backward_slot_scratch(table, p) * accumulator_size(p.dtype);
    run_in_slots(workers, backward_items(p), [&](int64_t item, int64_t slot) {
      table.backward(p, {item / p.kv_heads, item % p.kv_heads, 0},
                     static_cast<std::byte*>(scratch) + slot * slot_bytes);
    });
  });
}

int64_t attention_backward_scratch(CpuStream& stream, const AttentionProblem& p) {
  if (is_empty(p)) return 0;
  const int64_t slots = std::min<int64_t>(backward_items(p), stream.workers().threads());
  return slots * backward_slot_scratch(simd<AttentionSimd>(stream), p);
}

}  // namespace zpp::kernels::cpu
