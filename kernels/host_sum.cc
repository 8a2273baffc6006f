#include "kernels/host_sum.h"

#include <fmt/format.h>

#include "kernels/cpu/host_sum.h"

namespace zpp::kernels {
namespace {

void refuse(const HostReduce& args, const char* why) {
  throw Error(Code::kInvalidArgument,
              fmt::format("host_reduce: {} arrays of {} to {}: {}", args.count,
                          to_string(args.dtype), to_string(args.out_dtype), why));
}

}  // namespace

void host_reduce(Isa isa, const HostReduce& args) {
  const bool integer = args.dtype == DType::kI32 || args.dtype == DType::kI64;
  const bool bytes = args.dtype == DType::kI8 || args.dtype == DType::kU8;
  const bool widened = args.dtype == DType::kBF16 && args.out_dtype == DType::kF32;
  if (args.count < 1) refuse(args, "there is nothing to reduce");
  if (bytes) refuse(args, "8-bit integers are not reduced");
  if (args.dtype != args.out_dtype && !widened) refuse(args, "the dtypes do not fit");
  if (integer && args.scale != 1) refuse(args, "integers cannot be scaled");
  cpu::host_reduce(isa, args);
}

}  // namespace zpp::kernels
