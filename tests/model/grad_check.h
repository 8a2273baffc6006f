// The frame that every test of a differentiable operation is written in: an operation, run through
// a tape in f64, f32 and bf16, against its own numerical derivative in f64 and against the f64
// result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "model/nn/resident.h"

namespace zpp::test {

/// Elements of a dense f32, bf16 or f64 view as f64, read after everything enqueued on `stream` has
/// run; and the way back.
std::vector<double> read(Stream& stream, const View& from);
void write(Stream& stream, const std::vector<double>& values, const View& to);
/// Normal numbers that bf16 holds exactly, so that all dtypes start from the same.
std::vector<double> normals(std::string_view name, int64_t count, double stddev = 1.0);
/// An i32 tensor on the tape's device.
Tensor ints(const Tape& tape, const Shape& shape, const std::vector<int32_t>& values);
/// |a - b| / |b| over all elements (|a| when b is zero).
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

/// An operation on inputs and parameters of the given shapes.
struct OpCheck {
  std::vector<Shape> inputs;
  std::vector<Shape> parameters;
  std::function<Value(Tape&, const std::vector<Value>&, const std::vector<Parameter*>&)> op;
  TapeOptions options = {};
  /// (B, T), for operations that know documents.
  std::vector<int32_t> doc_start = {};
  Shape doc_shape = {};
  double f32_tolerance = 2e-6;
  double bf16_tolerance = 2e-2;
};

/// Result and gradients, by input and parameter.
struct OpResult {
  std::vector<double> y;
  std::vector<std::vector<double>> dx, dw;
};

/// A runtime with the parameters of one OpCheck in one dtype.
class OpBench {
 public:
  OpBench(const OpCheck& check, DType dtype);

  /// Starting values of inputs and parameters, to be changed at will between runs.
  std::vector<std::vector<double>> x, w;
  /// Gradients are added to this value instead of stored.
  double gradients_before = 0.0;
  bool accumulate = false;

  /// Forward and, from a fixed random gradient of the result, backward.
  OpResult run();
  /// Forward without recording.
  std::vector<double> evaluate();
  /// What the gradient of the result was.
  static std::vector<double> dy(int64_t count) { return normals("dy", count); }

  Runtime& runtime() { return runtime_; }

 private:
  Tensor upload(const Shape& shape, DType dtype, const std::vector<double>& values);
  void upload_parameters();

  const OpCheck& check_;
  Runtime runtime_;
  ParameterTable table_;
  std::vector<Parameter*> parameters_;
  std::unique_ptr<ResidentHooks> hooks_;
};

/// All checks on one operation; failures are reported to GoogleTest.
void check_op(const OpCheck& check);

}  // namespace zpp::test
