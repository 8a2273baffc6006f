#include "kernels/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

namespace zpp::kernels {

namespace {

constexpr std::string_view kName = "gemm";

/// Strides of a matrix with one dense dimension.
struct Layout {
  int64_t row = 0;
  int64_t col = 0;
};

// Where an extent is 1 the stride is free: it becomes what a dense matrix would have.
Layout layout_of(const Arg& arg) {
  const View& view = arg.view;
  const int64_t rows = view.dim(-2), cols = view.dim(-1);
  const int64_t row = view.stride(-2), col = view.stride(-1);
  if ((col == 1 || cols <= 1) && (rows <= 1 || row >= cols)) {
    return {rows <= 1 ? std::max<int64_t>(cols, 1) : row, 1};
  }
  if ((row == 1 || rows <= 1) && (cols <= 1 || col >= rows)) {
    return {1, cols <= 1 ? std::max<int64_t>(rows, 1) : col};
  }
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: {} {} has strides {} but one of the last two dimensions should be "
                          "dense, with the other's stride no shorter than it",
                          kName, arg.name, view.shape.str(), view.strides.str()));
}

void check_shapes(const Gemm& args) {
  const Shape& a = args.a.shape;
  const Shape& b = args.b.shape;
  const int rank = a.rank();
  check_that(rank == 2 || rank == 3, kName,
             fmt::format("a is {} but should be (M, K) or (batch, M, K)", a.str()));
  check_that(b.rank() == rank && b[-2] == a[-1] && (rank == 2 || b[0] == a[0]), kName,
             fmt::format("a is {} and b is {}: the inner dimensions{} should agree", a.str(),
                         b.str(), rank == 3 ? " and the batches" : ""));
  check_shape(kName, {"c", args.c.view}, rank == 2 ? Shape{a[0], b[1]} : Shape{a[0], a[1], b[2]});
  if (args.bias) check_shape(kName, {"bias", args.bias}, {b[-1]});
}

void check_dtypes(const Gemm& args) {
  const DType dtype = args.a.dtype;
  check_dtype(kName, {"a", args.a}, {DType::kF32, DType::kBF16, DType::kF64});
  check_dtype(kName, {"b", args.b}, {dtype});
  if (dtype == DType::kBF16) {
    check_dtype(kName, {"c", args.c.view}, {DType::kBF16, DType::kF32});
  } else {
    check_dtype(kName, {"c", args.c.view}, {dtype});
  }
  if (!args.bias) return;
  check_dtype(kName, {"bias", args.bias}, {dtype, DType::kF32});
  check_that(args.bias.numel() <= 1 || args.bias.stride(0) == 1, kName, "bias should be dense");
}

cpu::GemmBatch batch_of(const Gemm& args) {
  const bool batched = args.a.shape.rank() == 3;
  const Layout a = layout_of({"a", args.a});
  const Layout b = layout_of({"b", args.b});
  const Layout c = layout_of({"c", args.c.view});
  cpu::GemmBatch batch;
  batch.first = {.a = args.a.data,
                 .b = args.b.data,
                 .bias = args.bias.data,
                 .c = args.c.view.data,
                 .m = args.a.dim(-2),
                 .n = args.b.dim(-1),
                 .k = args.a.dim(-1),
                 .a_m = a.row,
                 .a_k = a.col,
                 .b_k = b.row,
                 .b_n = b.col,
                 .c_m = c.row,
                 .dtype = args.a.dtype,
                 .bias_dtype = args.bias.dtype,
                 .c_dtype = args.c.view.dtype,
                 .accumulate = args.c.accumulate};
  if (batched) {
    batch.count = args.a.dim(0);
    batch.a_step = args.a.stride(0);
    batch.b_step = args.b.stride(0);
    batch.c_step = args.c.view.stride(0);
  }
  if (c.col == 1) return batch;
  // The columns of c are apart: compute its transpose, b^T a^T.
  check_that(!args.bias, kName, "a bias needs a c whose rows are dense");
  GemmProblem& p = batch.first;
  std::swap(p.a, p.b);
  std::swap(p.m, p.n);
  std::swap(p.a_m, p.b_n);
  std::swap(p.a_k, p.b_k);
  std::swap(batch.a_step, batch.b_step);
  p.c_m = c.col;
  return batch;
}

// Large enough for the best rate, and a few milliseconds long: on a loaded machine some of the
// repetitions then run undisturbed.
constexpr int64_t kPeakSize = 640;

}  // namespace

void gemm(Stream& stream, const Gemm& args) {
  check_args(kName, stream,
             {{"a", args.a}, {"b", args.b}, {"bias", args.bias}, {"c", args.c.view}});
  check_shapes(args);
  check_dtypes(args);
  cpu::gemm(cpu_stream(kName, stream), batch_of(args));
}

std::string gemm_path(Stream& stream, DType dtype) {
  return cpu::gemm_path(cpu_stream(kName, stream), dtype);
}

int64_t gemm_peak_scratch_bytes(DType dtype) { return 3 * kPeakSize * kPeakSize * size_of(dtype); }

double measure_gemm_peak(Stream& stream, DType dtype, const View& scratch) {
  using Clock = std::chrono::steady_clock;
  constexpr double kBudgetSeconds = 0.4;
  constexpr int kMinRuns = 3;
  check_args("measure_gemm_peak", stream, {{"scratch", scratch}});
  check_that(scratch.bytes() >= gemm_peak_scratch_bytes(dtype), "measure_gemm_peak",
             fmt::format("scratch has {} bytes but should have {}", scratch.bytes(),
                         gemm_peak_scratch_bytes(dtype)));
  const View all = make_view(scratch.data, {3, kPeakSize, kPeakSize}, dtype, scratch.device);
  fill(stream, all, 0.5);
  const Gemm product{
      .a = all.select(0, 0), .b = all.select(0, 1), .bias = {}, .c = {all.select(0, 2)}};
  gemm(stream, product);  // compiles what it needs
  stream.synchronize();
  const Clock::time_point start = Clock::now();
  const auto seconds_since = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  double best = 1e30;
  for (int run = 0; run < kMinRuns || seconds_since(start) < kBudgetSeconds; ++run) {
    const Clock::time_point begin = Clock::now();
    gemm(stream, product);
    stream.synchronize();
    best = std::min(best, seconds_since(begin));
  }
  return 2.0 * kPeakSize * kPeakSize * kPeakSize / best;
}

}  // namespace zpp::kernels
