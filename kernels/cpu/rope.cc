#include "kernels/rope.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/rope_simd.h"

namespace zpp::kernels::cpu {
namespace {

RopeSide side(const View& view) {
  return {view.data, view.stride(0), view.stride(1), view.stride(2)};
}

std::array<double, kRopePairs> frequencies(const Rope& args, int64_t first, int64_t pairs) {
  std::array<double, kRopePairs> values{};
  for (int64_t i = 0; i < pairs; ++i) {
    const double exponent =
        -2.0 * static_cast<double>(first + i) / static_cast<double>(args.rotary_dims);
    const double frequency = std::pow(args.theta, exponent);
    values[static_cast<size_t>(i)] = args.inverse ? -frequency : frequency;
  }
  return values;
}

}  // namespace

void rope(CpuStream& stream, const Rope& args) {
  auto* rotate = simd<RopeSimd>(stream).rotate[args.x.dtype];
  stream.launch("rope", one_pass(args.x, args.y), [args, rotate](Workers& workers) {
    RopePass pass{};
    pass.x = side(args.x);
    pass.y = side(args.y);
    pass.length = args.x.dim(1);
    pass.heads = args.x.dim(2);
    pass.width = args.x.dim(3);
    pass.rotary_dims = args.rotary_dims;
    pass.doc_start = args.doc_start ? args.doc_start.as<int32_t>() : nullptr;
    const int64_t half = args.rotary_dims / 2;
    // At least one pass, for the channels that are not rotated.
    for (int64_t first = 0; first == 0 || first < half; first += kRopePairs) {
      const int64_t pairs = std::min(kRopePairs, half - first);
      const std::array<double, kRopePairs> own = frequencies(args, first, pairs);
      pass.first_pair = first;
      pass.pairs = pairs;
      pass.frequencies = own.data();
      pass.copy_rest = first == 0 && args.x.data != args.y.data;
      workers.parallel_for(args.x.dim(0) * pass.length, row_grain(pass.heads * pass.width),
                           [&](int64_t begin, int64_t end) { rotate(pass, begin, end); });
    }
  });
}

}  // namespace zpp::kernels::cpu
