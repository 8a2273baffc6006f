#include "tests/kernels/op_case.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/rng.h"

namespace zpp::kernels {
namespace {

constexpr int64_t kGuardBytes = 64;
constexpr uint8_t kCanary = 0xA5;
using Bytes = std::vector<uint8_t>;

double get(const uint8_t* at, DType dtype) {
  switch (dtype) {
    case DType::kF32: {
      float x;
      std::memcpy(&x, at, sizeof x);
      return x;
    }
    case DType::kBF16: {
      bf16 x;
      std::memcpy(&x, at, sizeof x);
      return to_f32(x);
    }
    case DType::kF64: {
      double x;
      std::memcpy(&x, at, sizeof x);
      return x;
    }
    default: {
      int32_t x;
      std::memcpy(&x, at, sizeof x);
      return x;
    }
  }
}

void put(uint8_t* at, DType dtype, double value) {
  switch (dtype) {
    case DType::kF32: {
      const float x = static_cast<float>(value);
      std::memcpy(at, &x, sizeof x);
      return;
    }
    case DType::kBF16: {
      const bf16 x = to_bf16(static_cast<float>(value));
      std::memcpy(at, &x, sizeof x);
      return;
    }
    case DType::kF64:
      std::memcpy(at, &value, sizeof value);
      return;
    default: {
      const int32_t x = static_cast<int32_t>(value);
      std::memcpy(at, &x, sizeof x);
    }
  }
}

/// An argument on a device, with guard bytes around it.
class Buffer {
 public:
  Buffer(Runtime& runtime, const Slot& slot, DType data, uint64_t seed, bool output)
      : slot_(slot), dtype_(dtype_of(slot.role, data)) {
    const int64_t bytes = slot.shape.numel() * size_of(dtype_);
    initial_.assign(static_cast<size_t>(bytes + 2 * kGuardBytes), kCanary);
    const bool garbage = output && !slot.fill;
    const Fill fill = slot.fill ? slot.fill : normal();
    const uint64_t own_seed = mix_hash(seed, hash_name(slot.name));
    for (int64_t i = 0; i < slot.shape.numel(); ++i) {
      uint8_t* at = initial_.data() + kGuardBytes + i * size_of(dtype_);
      if (garbage) {
        std::memset(at, 0xFF, static_cast<size_t>(size_of(dtype_)));
      } else {
        put(at, dtype_, fill(own_seed, i));
      }
    }
    memory_ = runtime.tensor({static_cast<int64_t>(initial_.size())}, DType::kU8);
    uint8_t* data_at = memory_.view().as<uint8_t>() + kGuardBytes;
    view_ = make_view(data_at, slot.shape, dtype_, runtime.device());
    reset(runtime);
  }

  void reset(Runtime& runtime) { copy_from_host(runtime.compute(), initial_, memory_.view()); }
  Bytes read(Runtime& runtime) const {
    return copy_to_host<uint8_t>(runtime.compute(), memory_.view());
  }
  Values values(const Bytes& bytes) const {
    Values values(static_cast<size_t>(slot_.shape.numel()));
    const uint8_t* at = bytes.data() + kGuardBytes;
    for (double& v : values) {
      v = get(at, dtype_);
      at += size_of(dtype_);
    }
    return values;
  }
  bool guards_intact(const Bytes& bytes) const {
    const auto intact = [](uint8_t b) { return b == kCanary; };
    return std::all_of(bytes.begin(), bytes.begin() + kGuardBytes, intact) &&
           std::all_of(bytes.end() - kGuardBytes, bytes.end(), intact);
  }
  const Bytes& initial() const { return initial_; }
  const View& view() const { return view_; }
  const Slot& slot() const { return slot_; }

 private:
  Slot slot_;
  DType dtype_;
  Bytes initial_;
  Tensor memory_;
  View view_;
};

struct Arguments {
  std::vector<Buffer> in, out;

  Arguments(Runtime& runtime, const OpCase& op, DType dtype) {
    for (const Slot& slot : op.inputs) in.emplace_back(runtime, slot, dtype, op.seed, false);
    for (const Slot& slot : op.outputs) out.emplace_back(runtime, slot, dtype, op.seed, true);
  }
  static Views views(const std::vector<Buffer>& buffers) {
    Views views;
    for (const Buffer& b : buffers) views.push_back(b.view());
    return views;
  }
  std::vector<Values> reference(const OpCase& op) const {
    std::vector<Values> inputs, outputs;
    for (const Buffer& b : in) inputs.push_back(b.values(b.initial()));
    for (const Buffer& b : out) outputs.push_back(b.values(b.initial()));
    op.reference(inputs, outputs);
    return outputs;
  }
};

Runtime::Options options_for(const Target& target) {
  Runtime::Options options;
  options.device = target.device;
  options.threads = target.threads;
  options.isa = target.isa;
  return options;
}

bool close(double got, double want, double tolerated) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= tolerated;
}

void compare(const Buffer& buffer, const Values& got, const Values& want, DType data,
             const std::string& where) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 0;
  for (double w : want) {
    if (std::isfinite(w)) scale = std::max(scale, std::abs(w));
  }
  int64_t wrong = 0;
  std::string first;
  for (size_t i = 0; i < got.size(); ++i) {
    const double tolerated = buffer.slot().slack * tolerance(buffer.view().dtype, data,
                                                             buffer.slot().terms, want[i], scale);
    if (close(got[i], want[i], tolerated)) continue;
    if (wrong++ == 0) {
      first = fmt::format("element {} is {} but should be {} (tolerance {})", i, got[i], want[i],
                          tolerated);
    }
  }
  if (wrong > 0) {
    ADD_FAILURE() << where << ": " << buffer.slot().name << buffer.slot().shape.str() << ": "
                  << wrong << " of " << got.size() << " wrong; first: " << first;
  }
}

std::vector<Bytes> run_once(Runtime& runtime, const OpCase& op, Arguments& args) {
  for (Buffer& b : args.out) b.reset(runtime);
  op.run(runtime.compute(), Arguments::views(args.in), Arguments::views(args.out));
  std::vector<Bytes> results;
  for (const Buffer& b : args.out) results.push_back(b.read(runtime));
  return results;
}

/// Runs on one target; `bits` holds the results of the first thread count.
void run_on(Runtime& runtime, const OpCase& op, DType dtype, const std::string& where,
            std::vector<Bytes>& bits) {
  Arguments args(runtime, op, dtype);
  const std::vector<Bytes> first = run_once(runtime, op, args);
  const std::vector<Bytes> second = run_once(runtime, op, args);
  const std::vector<Values> want = args.reference(op);
  const bool know_bits = !bits.empty();
  for (size_t i = 0; i < args.out.size(); ++i) {
    const Buffer& b = args.out[i];
    EXPECT_TRUE(b.guards_intact(first[i]))
        << where << ": wrote outside of " << b.slot().name << b.slot().shape.str();
    if (b.slot().scratch) continue;
    compare(b, b.values(first[i]), want[i], dtype, where);
    EXPECT_TRUE(first[i] == second[i]) << where << ": " << b.slot().name << " differs between runs";
    if (know_bits && op.same_bits_on_any_threads) {
      EXPECT_TRUE(first[i] == bits[i])
          << where << ": " << b.slot().name << " depends on the number of threads";
    }
  }
  for (const Buffer& b : args.in) {
    EXPECT_TRUE(b.read(runtime) == b.initial()) << where << ": changed input " << b.slot().name;
  }
  if (!know_bits) bits = first;
}

/// Sum of out * dout over the outputs that a gradient comes in by, after a forward run.
double objective(Runtime& runtime, const GradientCase& grad, Arguments& args,
                 const std::vector<Values>& dout) {
  const std::vector<Bytes> results = run_once(runtime, grad.forward, args);
  double sum = 0;
  for (size_t j = 0; j < grad.through.size(); ++j) {
    const Values out = args.out[grad.through[j]].values(results[grad.through[j]]);
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[j][i];
  }
  return sum;
}

double central_difference(Runtime& runtime, const GradientCase& grad, Arguments& args,
                          const std::vector<Values>& dout, size_t input, int64_t element) {
  double* at = args.in[input].view().as<double>() + element;
  const double before = *at;
  const double h = 1e-5 * std::max(1.0, std::abs(before));
  *at = before + h;
  const double above = objective(runtime, grad, args, dout);
  *at = before - h;
  const double below = objective(runtime, grad, args, dout);
  *at = before;
  return (above - below) / (2 * h);
}

}  // namespace

std::string Target::str() const {
  return fmt::format("{} {} threads {}", to_string(device), to_string(isa), threads);
}

std::vector<Target> targets() {
  std::vector<Target> all;
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (isa > best_isa()) continue;
    for (int threads : {1, 2, 3}) all.push_back({{DeviceType::kCpu, 0}, isa, threads});
  }
  return all;
}

DType dtype_of(Role role, DType data) {
  switch (role) {
    case Role::kData:
      return data;
    case Role::kAccum:
      return accumulator_of(data);
    case Role::kF64:
      return DType::kF64;
    default:
      return DType::kI32;
  }
}

Fill normal(float stddev, float mean) {
  return [=](uint64_t seed, int64_t i) {
    return double{mean} + stddev * normal_at(RngKey{seed, 0, 0}, static_cast<uint64_t>(i));
  };
}

Fill constant(double value) {
  return [=](uint64_t, int64_t) { return value; };
}

Fill listed(std::vector<double> values) {
  return [values = std::move(values)](uint64_t, int64_t i) {
    return values[static_cast<size_t>(i) % values.size()];
  };
}

Fill integers(int64_t begin, int64_t end) {
  return [=](uint64_t seed, int64_t i) {
    const uint32_t bits = RngKey{seed, 1, 0}.bits(static_cast<uint64_t>(i));
    return static_cast<double>(begin + static_cast<int64_t>(bits) % (end - begin));
  };
}

double tolerance(DType stored, DType data, double terms, double want, double scale) {
  constexpr double kEpsF32 = 1.0 / (1 << 23);
  // In f64 the reference rounds as much as the kernel does.
  constexpr double kEpsF64 = 4 * std::numeric_limits<double>::epsilon();
  const double computed = data == DType::kF64 ? kEpsF64 : kEpsF32;
  const double rounding = stored == DType::kBF16 ? 1.0 / 256 : 0;
  return rounding * std::abs(want) + (8 + 2 * std::sqrt(terms)) * computed * scale;
}

void run_op_case(const OpCase& op) {
  std::map<std::string, std::vector<Bytes>> bits;
  for (const Target& target : targets()) {
    Runtime runtime(options_for(target));
    for (DType dtype : op.dtypes) {
      const std::string where = fmt::format("{} {} [{}]", op.name, to_string(dtype), target.str());
      const std::string family = fmt::format("{} {} {}", to_string(target.device),
                                             to_string(target.isa), to_string(dtype));
      run_on(runtime, op, dtype, where, bits[family]);
    }
  }
}

double bytes_of(const OpCase& op, DType dtype) {
  double bytes = 0;
  for (const Slot& slot : op.inputs) {
    bytes += static_cast<double>(slot.shape.numel() * size_of(dtype_of(slot.role, dtype)));
  }
  for (const Slot& slot : op.outputs) {
    if (slot.scratch) continue;
    const auto size = static_cast<double>(slot.shape.numel() * size_of(dtype_of(slot.role, dtype)));
    bytes += slot.fill ? 2 * size : size;
  }
  return bytes;
}

double seconds_of(const OpCase& op, DType dtype, const Target& target, int runs) {
  Runtime runtime(options_for(target));
  Arguments args(runtime, op, dtype);
  const Views in = Arguments::views(args.in);
  const Views out = Arguments::views(args.out);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs + 1; ++i) {
    runtime.compute().synchronize();
    const auto begin = std::chrono::steady_clock::now();
    op.run(runtime.compute(), in, out);
    runtime.compute().synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i > 0) best = std::min(best, took.count());
  }
  return best;
}

void check_gradient(const GradientCase& grad) {
  Runtime runtime(options_for({{DeviceType::kCpu, 0}, best_isa(), 2}));
  Arguments args(runtime, grad.forward, DType::kF64);
  std::vector<Buffer> dout, din;
  std::vector<Values> dout_values;
  for (size_t j : grad.through) {
    const Slot slot{"dout of " + grad.forward.outputs[j].name, grad.forward.outputs[j].shape};
    dout.emplace_back(runtime, slot, DType::kF64, grad.forward.seed, false);
    dout_values.push_back(dout.back().values(dout.back().initial()));
  }
  for (size_t j : grad.wrt) {
    const Slot slot{"gradient of " + grad.forward.inputs[j].name, grad.forward.inputs[j].shape};
    din.emplace_back(runtime, slot, DType::kF64, grad.forward.seed, true);
  }
  run_once(runtime, grad.forward, args);
  std::vector<Tensor> scratch;
  grad.backward(runtime.compute(), Arguments::views(args.in), Arguments::views(args.out),
                Arguments::views(dout), Arguments::views(din), [&](int64_t n) {
                  scratch.push_back(runtime.tensor({n}, DType::kF64));
                  return scratch.back().view();
                });
  for (size_t j = 0; j < grad.wrt.size(); ++j) {
    const Bytes bytes = din[j].read(runtime);
    EXPECT_TRUE(din[j].guards_intact(bytes)) << grad.forward.name << ": " << din[j].slot().name;
    const Values got = din[j].values(bytes);
    double scale = 1e-3;
    for (double g : got) scale = std::max(scale, std::abs(g));
    const auto n = static_cast<int64_t>(got.size());
    const int64_t step = std::max<int64_t>(1, n / 48) | 1;
    for (int64_t i = 0; i < n; i += step) {
      const double want = central_difference(runtime, grad, args, dout_values, grad.wrt[j], i);
      EXPECT_NEAR(got[static_cast<size_t>(i)], want, 1e-7 * scale)
          << grad.forward.name << ": " << din[j].slot().name << " element " << i;
    }
  }
}

std::string complaint_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace zpp::kernels
