#include "kernels/elementwise.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/elementwise_simd.h"
#include "kernels/cpu/launch.h"
#include "kernels/dispatch.h"

namespace zpp::kernels::cpu {
namespace {

using Fn = ElementwiseSimd::Fn;

Fn* copy_function(const ElementwiseSimd& table, DType from, DType to) {
  switch (from) {
    case DType::kBF16:
      return table.copy_from_bf16[to];
    case DType::kF64:
      return table.copy_from_f64[to];
    default:
      return table.copy_from_f32[to];
  }
}

/// Whether stores should go past the caches, which saves reading the lines first: for outputs that
/// would have left the caches before they are read. From 12 MiB on that was faster by half on two
/// cores with 32 MiB of third-level cache.
bool streams(const Grad& out) {
  constexpr int64_t kBytes = int64_t{16} << 20;
  return !out.accumulate && out.view.bytes() >= kBytes;
}

/// Enqueues fn over n elements.
void launch_elements(CpuStream& stream, const char* name, const Work& work, Fn* fn,
                     const Elements& elements, int64_t n) {
  stream.launch(name, work, [=](Workers& workers) {
    workers.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { fn(elements, begin, end); });
  });
}

void launch_rows(CpuStream& stream, const char* name, const Work& work, Fn* fn, Elements elements,
                 int64_t rows, int64_t row) {
  elements.row = row;
  stream.launch(name, work, [=](Workers& workers) {
    workers.parallel_for(rows, row_grain(row),
                         [&](int64_t begin, int64_t end) { fn(elements, begin, end); });
  });
}

/// The value as an element of type T.
template <class T>
T converted(double value) {
  return static_cast<T>(value);
}
template <>
bf16 converted<bf16>(double value) {
  return to_bf16(static_cast<float>(value));
}

template <class T>
void fill_with(Workers& workers, const View& out, double value) {
  T* data = static_cast<T*>(out.data);
  const T element = converted<T>(value);
  const T zero{};
  const bool clear = std::memcmp(&element, &zero, sizeof(T)) == 0;
  workers.parallel_for(out.numel(), kGrain, [=](int64_t begin, int64_t end) {
    if (clear) {
      std::memset(static_cast<void*>(data + begin), 0,
                  static_cast<size_t>(end - begin) * sizeof(T));
    } else {
      std::fill(data + begin, data + end, element);
    }
  });
}

void fill_any(Workers& workers, const View& out, double value) {
  switch (out.dtype) {
    case DType::kF32:
      return fill_with<float>(workers, out, value);
    case DType::kBF16:
      return fill_with<bf16>(workers, out, value);
    case DType::kF64:
      return fill_with<double>(workers, out, value);
    case DType::kI32:
      return fill_with<int32_t>(workers, out, value);
    case DType::kI64:
      return fill_with<int64_t>(workers, out, value);
    case DType::kI8:
      return fill_with<int8_t>(workers, out, value);
    case DType::kU8:
      return fill_with<uint8_t>(workers, out, value);
  }
}

}  // namespace

void add(CpuStream& stream, const View& a, const View& b, const View& out) {
  const Elements elements{
      .a = a.data, .b = b.data, .out = out.data, .stream = streams({out, false})};
  launch_elements(stream, "add", one_pass(a, b, out), simd<ElementwiseSimd>(stream).add[a.dtype],
                  elements, a.numel());
}

void copy(CpuStream& stream, const View& from, const Grad& to, double scale) {
  const Elements elements{.a = from.data,
                          .out = to.view.data,
                          .accumulate = to.accumulate,
                          .stream = streams(to),
                          .scale = scale};
  if (from.dtype == to.view.dtype && scale == 1.0 && !to.accumulate) {
    stream.launch("copy", one_pass(from, to), [elements, bytes = from.bytes()](Workers& workers) {
      workers.parallel_for(bytes, 4 * kGrain, [&](int64_t begin, int64_t end) {
        std::memmove(static_cast<char*>(elements.out) + begin,
                     static_cast<const char*>(elements.a) + begin,
                     static_cast<size_t>(end - begin));
      });
    });
    return;
  }
  Fn* fn = copy_function(simd<ElementwiseSimd>(stream), from.dtype, to.view.dtype);
  launch_elements(stream, "copy", one_pass(from, to), fn, elements, from.numel());
}

void scale_by(CpuStream& stream, const View& from, const View& factor, const Grad& to) {
  Fn* fn = copy_function(simd<ElementwiseSimd>(stream), from.dtype, to.view.dtype);
  stream.launch("scale_by", one_pass(from, to), [=](Workers& workers) {
    const double scale =
        factor.dtype == DType::kF64 ? *factor.as<double>() : double{*factor.as<float>()};
    const Elements elements{
        .a = from.data, .out = to.view.data, .accumulate = to.accumulate, .scale = scale};
    workers.parallel_for(from.numel(), kGrain,
                         [&](int64_t begin, int64_t end) { fn(elements, begin, end); });
  });
}

void fill(CpuStream& stream, const View& out, double value) {
  stream.launch("fill", one_pass(out), [=](Workers& workers) { fill_any(workers, out, value); });
}

void activation(CpuStream& stream, Activation kind, const View& x, const View& y) {
  const ElementwiseSimd& table = simd<ElementwiseSimd>(stream);
  const auto& by_type = kind == Activation::kGeluTanh ? table.gelu_tanh : table.gelu_erf;
  launch_elements(stream, "activation", one_pass(x, y), by_type[x.dtype],
                  {.a = x.data, .out = y.data, .stream = streams({y, false})}, x.numel());
}

void activation_backward(CpuStream& stream, Activation kind, const View& dy, const View& x,
                         const Grad& dx) {
  const ElementwiseSimd& table = simd<ElementwiseSimd>(stream);
  const auto& by_type =
      kind == Activation::kGeluTanh ? table.gelu_tanh_backward : table.gelu_erf_backward;
  const Elements elements{.a = dy.data,
                          .b = x.data,
                          .out = dx.view.data,
                          .accumulate = dx.accumulate,
                          .stream = streams(dx)};
  launch_elements(stream, "activation_backward", one_pass(dy, x, dx), by_type[x.dtype], elements,
                  x.numel());
}

void swiglu(CpuStream& stream, const View& x, const View& y) {
  launch_rows(stream, "swiglu", one_pass(x, y), simd<ElementwiseSimd>(stream).swiglu[x.dtype],
              {.a = x.data, .out = y.data, .stream = streams({y, false})}, y.dim(0), y.dim(1));
}

void swiglu_backward(CpuStream& stream, const View& dy, const View& x, const Grad& dx) {
  const Elements elements{
      .a = dy.data, .b = x.data, .out = dx.view.data, .accumulate = dx.accumulate};
  launch_rows(stream, "swiglu_backward", one_pass(dy, x, dx),
              simd<ElementwiseSimd>(stream).swiglu_backward[x.dtype], elements, dy.dim(0),
              dy.dim(1));
}

void dropout(CpuStream& stream, const Dropout& args) {
  auto* fn = simd<ElementwiseSimd>(stream).dropout[args.x.dtype];
  // uniform_from_bits(word) >= p, without the conversion; both sides are exact.
  const double first_kept = std::ceil(std::ldexp(double{args.p}, 23) - 0.5);
  const double scale =
      args.x.dtype == DType::kF64 ? 1.0 / (1.0 - double{args.p}) : double{1.0f / (1.0f - args.p)};
  const DropoutElements elements{
      args.x.data, args.y.view.data, args.y.accumulate, scale, static_cast<int32_t>(first_kept),
      args.key};
  stream.launch("dropout", one_pass(args.x, args.y), [=, n = args.x.numel()](Workers& workers) {
    workers.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { fn(elements, begin, end); });
  });
}

void fill_normal(CpuStream& stream, const View& out, float mean, float stddev, const RngKey& key) {
  auto* fn = simd<ElementwiseSimd>(stream).fill_normal[out.dtype];
  const NormalElements elements{out.data, mean, stddev, key};
  stream.launch("fill_normal", one_pass(out), [=, n = out.numel()](Workers& workers) {
    workers.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { fn(elements, begin, end); });
  });
}

}  // namespace zpp::kernels::cpu
