#include "kernels/cpu/host_sum.h"

#include "kernels/cpu/host_sum_simd.h"

namespace zpp::kernels::cpu {

void host_reduce(Isa isa, const HostReduce& args) {
  const HostSumSimd& table = simd_table_for(isa, static_cast<const HostSumSimd*>(nullptr));
  const HostReducers& reducers = args.reduction == HostReduction::kSum ? table.sum : table.max;
  HostReducer* reduce = nullptr;
  switch (args.dtype) {
    case DType::kF64:
      reduce = reducers.f64;
      break;
    case DType::kBF16:
      reduce = args.out_dtype == DType::kF32 ? reducers.bf16_to_f32 : reducers.bf16;
      break;
    case DType::kI32:
      reduce = reducers.i32;
      break;
    case DType::kI64:
      reduce = reducers.i64;
      break;
    default:
      reduce = reducers.f32;
  }
  reduce(args.sources, args.count, args.out, args.n, args.scale);
}

}  // namespace zpp::kernels::cpu
