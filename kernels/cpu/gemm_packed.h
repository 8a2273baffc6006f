// A matrix product of our own: for bf16 on CPUs without bf16 arithmetic (operands are widened while
// they are packed, so that it costs no extra pass), for f64, and where it is measured faster than
// the library.
//
// The operand with fewer lines (rows of a or columns of b) is packed once, by all threads, into
// memory they share; then each thread packs a piece of the other operand, which nobody else needs,
// and multiplies it with all of the first while it is in its cache. So every element is packed
// once, sums of 384 terms stay in registers, and the last-level cache is asked for little.
// The order of each sum depends on its length alone.
#pragma once

#include "core/workers.h"
#include "kernels/cpu/gemm_simd.h"
#include "kernels/cpu/slots.h"

namespace zpp::kernels::cpu {

struct GemmBatch;

/// Computes all products of the batch, each with all workers, or one worker each when they are
/// small. `scratch` belongs to the stream whose task calls this.
void multiply_packed(Workers& workers, const GemmBatch& batch, const GemmSimd& simd,
                     ScratchMemory& scratch);

}  // namespace zpp::kernels::cpu
