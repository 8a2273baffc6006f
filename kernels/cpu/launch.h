// The CPU side of the kernels: arguments are checked by the caller, the work is enqueued on the
// stream.
#pragma once

#include <algorithm>

#include "core/cpu_stream.h"
#include "core/rng.h"
#include "core/types.h"

namespace zpp::kernels {

struct RmsNorm;
struct RmsNormBackward;
struct LayerNorm;
struct LayerNormBackward;
struct Embedding;
struct EmbeddingBackward;
struct CrossEntropy;
struct Rope;
struct AdamW;
struct Sgd;
struct Dropout;
enum class Activation : uint8_t;

namespace cpu {

void rms_norm(CpuStream& stream, const RmsNorm& args);
void rms_norm_backward(CpuStream& stream, const RmsNormBackward& args);
void layer_norm(CpuStream& stream, const LayerNorm& args);
void layer_norm_backward(CpuStream& stream, const LayerNormBackward& args);

void add(CpuStream& stream, const View& a, const View& b, const View& out);
void copy(CpuStream& stream, const View& from, const Grad& to, double scale);
void scale_by(CpuStream& stream, const View& from, const View& factor, const Grad& to);
void fill(CpuStream& stream, const View& out, double value);
void activation(CpuStream& stream, Activation kind, const View& x, const View& y);
void activation_backward(CpuStream& stream, Activation kind, const View& dy, const View& x,
                         const Grad& dx);
void swiglu(CpuStream& stream, const View& x, const View& y);
void swiglu_backward(CpuStream& stream, const View& dy, const View& x, const Grad& dx);
void dropout(CpuStream& stream, const Dropout& args);
void fill_normal(CpuStream& stream, const View& out, float mean, float stddev, const RngKey& key);

void embedding(CpuStream& stream, const Embedding& args);
void embedding_backward(CpuStream& stream, const EmbeddingBackward& args);

void cross_entropy(CpuStream& stream, const CrossEntropy& args);

void rope(CpuStream& stream, const Rope& args);

void sum_squares(CpuStream& stream, const View& x, const Grad& out);
void sum_rows(CpuStream& stream, const View& x, const Grad& out);
void any_nonfinite(CpuStream& stream, const View& x, const View& out);

void step_guard(CpuStream& stream, const View& sum_squares, const View& loss, double max_norm,
                const View& guard);
void adamw(CpuStream& stream, const AdamW& args);
void sgd(CpuStream& stream, const Sgd& args);

/// Bytes of an argument, for Work: a gradient that is added to is read too.
inline double traffic(const View& view) { return view ? static_cast<double>(view.bytes()) : 0.0; }
inline double traffic(const Grad& grad) {
  return (grad.accumulate ? 2.0 : 1.0) * traffic(grad.view);
}
/// The work of a kernel that passes once over its arguments.
template <class... Args>
Work one_pass(const Args&... args) {
  return {.bytes = (traffic(args) + ...)};
}

/// Elements that are worth waking another thread for.
inline constexpr int64_t kGrain = 16384;
/// The same in rows of `cols` elements.
inline int64_t row_grain(int64_t cols) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, cols));
}

}  // namespace cpu
}  // namespace zpp::kernels
