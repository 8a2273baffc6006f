// The frame that every kernel test is written in: one struct says how to make the arguments of an
// operation and what it should compute in f64; the frame runs it over dtypes, instruction sets,
// thread counts and devices.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/runtime.h"

namespace zpp::kernels {

/// A device and how it computes.
struct Target {
  Device device;
  Isa isa = Isa::kAvx2;
  int threads = 1;
  std::string str() const;
};

/// Everything that this machine can run: each instruction set with 1, 2 and 3 threads.
std::vector<Target> targets();

/// The element type of an argument, given the dtype that a case is run in.
enum class Role : uint8_t {
  kData,   // the case's dtype
  kAccum,  // f64 for f64, else f32
  kF64,
  kI32,
};
DType dtype_of(Role role, DType data);

/// Element i of an argument, before it is rounded to its dtype; `seed` differs between arguments.
using Fill = std::function<double(uint64_t seed, int64_t i)>;
Fill normal(float stddev = 1.0f, float mean = 0.0f);
Fill constant(double value);
Fill listed(std::vector<double> values);
/// Integers in [begin, end).
Fill integers(int64_t begin, int64_t end);

/// An argument. Its fill is seeded by its name and the `seed` of the case.
struct Slot {
  std::string name;
  Shape shape = {};
  Role role = Role::kData;
  /// Inputs: their values (`normal()` when empty). Outputs: what is there before, for operations
  /// that accumulate or work in place; when empty the output starts as NaNs, so that an element
  /// that was not written is found.
  Fill fill = {};
  /// Outputs: how many terms an element is the sum of, for the tolerance.
  double terms = 1;
  /// Outputs: a factor on the tolerance, where an operation is allowed to be less exact.
  double slack = 1;
  /// Scratch has no value to compare (and may differ between thread counts).
  bool scratch = false;
};

using Values = std::vector<double>;
using Views = std::vector<View>;

struct OpCase {
  std::string name;
  std::vector<Slot> inputs;
  std::vector<Slot> outputs;
  std::function<void(Stream&, const Views& in, const Views& out)> run;
  /// Naive, in f64. Inputs come as the kernel sees them (rounded to their dtype), outputs hold what
  /// `fill` put there.
  std::function<void(const std::vector<Values>& in, std::vector<Values>& out)> reference;
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16, DType::kF64};
  double flops = 0;
  uint64_t seed = 1;
  /// False for operations whose split (and so their rounding) may depend on the thread count.
  bool same_bits_on_any_threads = true;
};

/// Runs the case everywhere and reports as test failures: results off the reference, elements not
/// written, bytes touched before or after an output or in an input, other bits on a second run or
/// another thread count.
void run_op_case(const OpCase& op);

/// Largest acceptable |got - want| for a sum of `terms` terms stored in `stored` and computed in
/// f32 (f64 for f64), where `scale` is the largest value around.
double tolerance(DType stored, DType data, double terms, double want, double scale);

/// Bytes that one run reads and writes, scratch not counted.
double bytes_of(const OpCase& op, DType dtype);
/// Best of `runs` times of the case in seconds, without checks.
double seconds_of(const OpCase& op, DType dtype, const Target& target, int runs);

/// A forward operation and its gradient.
struct GradientCase {
  OpCase forward;
  std::vector<size_t> wrt;      // inputs to differentiate by
  std::vector<size_t> through;  // outputs that a gradient comes in by
  /// `in`, `out`: arguments and results of the forward run; `dout` in the order of `through`; `din`
  /// in the order of `wrt` (filled with NaNs); `scratch(n)` gives n f64 elements.
  std::function<void(Stream&, const Views& in, const Views& out, const Views& dout,
                     const Views& din, const std::function<View(int64_t)>& scratch)>
      backward;
};

/// Compares the backward kernel with central differences of the forward kernel, in f64, at up to 48
/// elements of each input.
void check_gradient(const GradientCase& grad);

/// The message of the Error that `call` raises, or "accepted".
std::string complaint_of(const std::function<void()>& call);

}  // namespace zpp::kernels
