// How CPU kernels are compiled for several instruction sets and chosen at run time.
//
// A family `norm` that wants SIMD has
//   cpu/norm_simd.h   struct NormSimd { void (*rows)(const RmsNorm&, int64_t begin, int64_t end); };
//                     ZPP_DECLARE_SIMD(NormSimd)
//   cpu/norm_simd.cc  loops in plain C++ in an anonymous namespace inside zpp::kernels::ZPP_ISA, and
//                     ZPP_DEFINE_SIMD(NormSimd, .rows = ...)
//   cpu/norm.cc       splits the work over the workers and calls simd<NormSimd>(stream).rows(...)
// The build compiles the _simd file once per instruction set with ZPP_ISA set to avx2 or avx512.
// Those files hold loops over raw pointers only: an inline function of the standard library compiled
// there would be merged by the linker with the copies of other files and run on CPUs that lack the
// instructions (tests/isa_symbols_test checks this).
#pragma once

#include "core/cpu_stream.h"

// Declares Table& access for both instruction sets; use at namespace zpp::kernels.
#define ZPP_DECLARE_SIMD(Table)                                                   \
  namespace avx2 {                                                                \
  const Table& simd_table(const Table*);                                          \
  }                                                                               \
  namespace avx512 {                                                              \
  const Table& simd_table(const Table*);                                          \
  }                                                                               \
  inline const Table& simd_table_for(Isa isa, const Table* tag) {                 \
    return isa == Isa::kAvx512 ? avx512::simd_table(tag) : avx2::simd_table(tag); \
  }

// Defines the table of the instruction set being compiled; use at namespace zpp::kernels, with the
// table's initialisers.
#define ZPP_DEFINE_SIMD(Table, ...)            \
  namespace ZPP_ISA {                          \
  const Table& simd_table(const Table*) {      \
    static constexpr Table table{__VA_ARGS__}; \
    return table;                              \
  }                                            \
  }

namespace zpp::kernels {

/// The functions of `Table` for the instruction set of `stream`.
template <class Table>
const Table& simd(const CpuStream& stream) {
  return simd_table_for(stream.isa(), static_cast<const Table*>(nullptr));
}

/// One function per floating-point dtype, for tables: `{f<float>, f<bf16>, f<double>}`.
template <class Fn>
struct ByType {
  Fn* f32;
  Fn* bf16;
  Fn* f64;

  Fn* operator[](DType dtype) const {
    return dtype == DType::kF64 ? f64 : dtype == DType::kBF16 ? bf16 : f32;
  }
};

}  // namespace zpp::kernels
