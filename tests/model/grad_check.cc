#include "tests/model/grad_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/rng.h"

namespace zpp::test {
namespace {

template <class T>
std::vector<double> read_as(Stream& stream, const View& from) {
  std::vector<double> out;
  for (const T v : copy_to_host<T>(stream, from)) {
    if constexpr (std::is_same_v<T, bf16>) {
      out.push_back(to_f32(v));
    } else {
      out.push_back(static_cast<double>(v));
    }
  }
  return out;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Compares `gradient` with central differences of dot(y, dy) at up to 24 elements of `at`.
void check_numerically(OpBench& bench, std::vector<double>& at, const std::vector<double>& gradient,
                       const std::string& what) {
  ASSERT_EQ(at.size(), gradient.size()) << what;
  constexpr double kStep = 1e-4;
  const size_t stride = std::max<size_t>(1, at.size() / 24);
  double scale = 1.0;
  for (double g : gradient) scale = std::max(scale, std::abs(g));
  for (size_t i = 0; i < at.size(); i += stride) {
    const double start = at[i];
    const auto value = [&](double moved) {
      at[i] = moved;
      const std::vector<double> y = bench.run().y;
      return dot(y, OpBench::dy(static_cast<int64_t>(y.size())));
    };
    const double slope = (value(start + kStep) - value(start - kStep)) / (2 * kStep);
    at[i] = start;
    EXPECT_NEAR(gradient[i], slope, 2e-6 * scale) << what << ", element " << i;
  }
}

void compare(const OpResult& got, const OpResult& want, double tolerance, const std::string& what) {
  EXPECT_LE(relative_error(got.y, want.y), tolerance) << what << ": y";
  for (size_t i = 0; i < want.dx.size(); ++i) {
    EXPECT_LE(relative_error(got.dx[i], want.dx[i]), tolerance) << what << ": dx " << i;
  }
  for (size_t i = 0; i < want.dw.size(); ++i) {
    EXPECT_LE(relative_error(got.dw[i], want.dw[i]), tolerance) << what << ": dw " << i;
  }
}

void check_accumulation(const OpCheck& check, const OpResult& plain) {
  OpBench bench(check, DType::kF64);
  bench.accumulate = true;
  bench.gradients_before = 1.5;
  const OpResult added = bench.run();
  for (size_t i = 0; i < plain.dx.size(); ++i) {
    for (size_t j = 0; j < plain.dx[i].size(); ++j) {
      ASSERT_NEAR(added.dx[i][j], plain.dx[i][j] + 1.5, 1e-9)
          << "accumulated dx " << i << ", element " << j;
    }
  }
}

}  // namespace

std::vector<double> read(Stream& stream, const View& from) {
  switch (from.dtype) {
    case DType::kF64:
      return read_as<double>(stream, from);
    case DType::kBF16:
      return read_as<bf16>(stream, from);
    default:
      return read_as<float>(stream, from);
  }
}

void write(Stream& stream, const std::vector<double>& values, const View& to) {
  if (to.dtype == DType::kF64) return copy_from_host(stream, values, to);
  const std::vector<float> rounded(values.begin(), values.end());
  if (to.dtype == DType::kF32) return copy_from_host(stream, rounded, to);
  std::vector<bf16> halves;
  for (float v : rounded) halves.push_back(to_bf16(v));
  copy_from_host(stream, halves, to);
}

std::vector<double> normals(std::string_view name, int64_t count, double stddev) {
  const RngKey key{.seed = 7, .name_hash = hash_name(name), .offset = 0};
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    const double value = stddev * normal_at(key, static_cast<uint64_t>(i));
    values.push_back(to_f32(to_bf16(static_cast<float>(value))));
  }
  return values;
}

Tensor ints(const Tape& tape, const Shape& shape, const std::vector<int32_t>& values) {
  Tensor t = tape.empty(shape, DType::kI32);
  copy_from_host(tape.stream(), values, t.view());
  return t;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double error = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(norm > 0 ? error / norm : error);
}

OpBench::OpBench(const OpCheck& check, DType dtype)
    : check_(check), runtime_({.device = {}, .threads = 2}), table_(dtype) {
  const Scope scope(table_);
  for (size_t i = 0; i < check.parameters.size(); ++i) {
    const std::string name = "w" + std::to_string(i);
    parameters_.push_back(&scope.parameter(name, check.parameters[i]));
    w.push_back(normals(name, check.parameters[i].numel()));
  }
  for (size_t i = 0; i < check.inputs.size(); ++i) {
    x.push_back(normals("x" + std::to_string(i), check.inputs[i].numel()));
  }
  hooks_ = std::make_unique<ResidentHooks>(table_, runtime_);
}

Tensor OpBench::upload(const Shape& shape, DType dtype, const std::vector<double>& values) {
  Tensor t = runtime_.tensor(shape, dtype);
  write(runtime_.compute(), values, t.view());
  return t;
}

void OpBench::upload_parameters() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t begin = parameters_[i]->offset();
    write(runtime_.compute(), w[i],
          hooks_->weights(0).slice(0, begin, begin + parameters_[i]->numel()));
  }
  table_.root().restart_grads();
}

OpResult OpBench::run() {
  upload_parameters();
  TapeOptions options = check_.options;
  Tensor doc_start;
  if (!check_.doc_start.empty()) {
    doc_start = runtime_.tensor(check_.doc_shape, DType::kI32);
    copy_from_host(runtime_.compute(), check_.doc_start, doc_start.view());
    options.doc_start = doc_start.view();
  }
  Tape tape(runtime_.pool(), runtime_.compute(), *hooks_, options);
  std::vector<Tensor> gradients;
  std::vector<Value> values;
  for (size_t i = 0; i < x.size(); ++i) {
    const Shape& shape = check_.inputs[i];
    const std::vector<double> before(x[i].size(), gradients_before);
    gradients.push_back(upload(shape, table_.dtype(), before));
    values.push_back(
        tape.leaf(upload(shape, table_.dtype(), x[i]), {gradients.back().view(), accumulate}));
  }
  const Value y = check_.op(tape, values, parameters_);
  values.clear();
  tape.backward(y, upload(y.shape(), y.dtype(), dy(y.shape().numel())));
  OpResult result;
  result.y = read(runtime_.compute(), y.view());
  for (const Tensor& g : gradients) result.dx.push_back(read(runtime_.compute(), g.view()));
  table_.root().finish_grads(runtime_.compute());
  for (const Parameter* p : parameters_) {
    const View grads = table_.root().grads().slice(0, p->offset(), p->offset() + p->numel());
    result.dw.push_back(read(runtime_.compute(), grads));
  }
  return result;
}

std::vector<double> OpBench::evaluate() {
  upload_parameters();
  TapeOptions options = check_.options;
  options.training = false;
  Tensor doc_start;
  if (!check_.doc_start.empty()) {
    doc_start = runtime_.tensor(check_.doc_shape, DType::kI32);
    copy_from_host(runtime_.compute(), check_.doc_start, doc_start.view());
    options.doc_start = doc_start.view();
  }
  Tape tape(runtime_.pool(), runtime_.compute(), *hooks_, options);
  std::vector<Value> values;
  for (size_t i = 0; i < x.size(); ++i) {
    values.push_back(tape.constant(upload(check_.inputs[i], table_.dtype(), x[i])));
  }
  const Value y = check_.op(tape, values, parameters_);
  return read(runtime_.compute(), y.view());
}

void check_op(const OpCheck& check) {
  OpBench wide(check, DType::kF64);
  const OpResult exact = wide.run();
  EXPECT_EQ(wide.run().y, exact.y) << "another run gave other bits";
  for (size_t i = 0; i < wide.x.size(); ++i) {
    check_numerically(wide, wide.x[i], exact.dx[i], "dx " + std::to_string(i));
  }
  for (size_t i = 0; i < wide.w.size(); ++i) {
    check_numerically(wide, wide.w[i], exact.dw[i], "dw " + std::to_string(i));
  }
  check_accumulation(check, exact);
  compare(OpBench(check, DType::kF32).run(), exact, check.f32_tolerance, "f32");
  compare(OpBench(check, DType::kBF16).run(), exact, check.bf16_tolerance, "bf16");
}

}  // namespace zpp::test
