// The CPU's side of kernels/attention.h.
#pragma once

#include "core/cpu_stream.h"
#include "kernels/cpu/attention_simd.h"

namespace zpp::kernels::cpu {

void attention(CpuStream& stream, const AttentionProblem& problem);

/// `scratch`: attention_backward_scratch() elements of the accumulation type.
void attention_backward(CpuStream& stream, const AttentionProblem& problem, void* scratch);
int64_t attention_backward_scratch(CpuStream& stream, const AttentionProblem& problem);

}  // namespace zpp::kernels::cpu
