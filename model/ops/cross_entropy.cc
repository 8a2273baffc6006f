#include "model/ops/cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "model/ops/shapes.h"

namespace zpp {
namespace {

void check(const char* op, const Value& x, const Batch& batch) {
  const Shape& shape = x.shape();
  if (!batch.targets) {
    throw Error(Code::kInvalidArgument, fmt::format("{}: the batch has no targets", op));
  }
  if (shape.rank() != 3 || batch.targets.shape() != Shape{shape[0], shape[1]}) {
    throw Error(Code::kInvalidArgument, fmt::format("{}: targets are {} but the input is {}", op,
                                                    batch.targets.shape().str(), shape.str()));
  }
}

double mean_scale(const Batch& batch) {
  return 1.0 / static_cast<double>(std::max<int64_t>(batch.valid, 1));
}

/// Calls fn(begin, end) for consecutive chunks of rows.
template <class Fn>
void for_chunks(int64_t rows, int64_t chunk, Fn&& fn) {
  for (int64_t begin = 0; begin < rows; begin += chunk) fn(begin, std::min(begin + chunk, rows));
}

/// Memory for a chunk of logits, reused by all chunks.
class LogitsScratch {
 public:
  LogitsScratch(const Tape& tape, int64_t rows, int64_t vocab, DType compute, bool gradient)
      : rows_(std::min(rows, logits_chunk_rows(vocab))), vocab_(vocab) {
    // Rows start on cache lines.
    const int64_t stride = (vocab + 63) / 64 * 64;
    const DType sum = accumulator_of(compute);
    logits_ = tape.empty({rows_, stride}, sum);
    row_loss_ = tape.empty({rows_}, sum);
    if (gradient) dlogits_ = compute == sum ? logits_ : tape.empty({rows_, stride}, compute);
  }

  int64_t rows() const { return rows_; }
  View logits(int64_t rows) const { return part(logits_, rows); }
  View dlogits(int64_t rows) const { return dlogits_ ? part(dlogits_, rows) : View{}; }
  View row_loss(int64_t rows) const { return row_loss_.view().slice(0, 0, rows); }

 private:
  View part(const Tensor& t, int64_t rows) const {
    return t.view().slice(0, 0, rows).slice(1, 0, vocab_);
  }

  const int64_t rows_, vocab_;
  Tensor logits_, dlogits_, row_loss_;
};

/// The loss of all rows of h, chunk by chunk; `use(dlogits, begin, end)` gets the gradient of each
/// chunk when `dy` is given.
template <class Use>
void chunked_loss(const Tape& tape, const View& h, const View& w, const Batch& batch,
                  const View& loss, const View& dy, Use&& use) {
  const bool gradient = static_cast<bool>(dy);
  const View targets = batch.targets.view().reshape({h.dim(0)});
  const LogitsScratch scratch(tape, h.dim(0), w.dim(0), h.dtype, gradient);
  kernels::fill(tape.stream(), loss, 0.0);
  for_chunks(h.dim(0), scratch.rows(), [&](int64_t begin, int64_t end) {
    const View logits = scratch.logits(end - begin);
    const View dlogits = scratch.dlogits(end - begin);
    kernels::gemm(tape.stream(),
                  {.a = h.slice(0, begin, end), .b = w.transpose(0, 1), .bias = {}, .c = {logits}});
    kernels::cross_entropy(tape.stream(), {.logits = logits,
                                           .targets = targets.slice(0, begin, end),
                                           .loss = loss,
                                           .dy = dy,
                                           .dlogits = dlogits,
                                           .row_loss = scratch.row_loss(end - begin),
                                           .loss_scale = mean_scale(batch),
                                           .grad_scale = mean_scale(batch)});
    if (gradient) use(dlogits, begin, end);
  });
}

struct LossViews {
  View loss, dy, dlogits;
};

/// The loss of stored logits and, when asked, their gradient.
void stored_loss(const Tape& tape, const View& logits, const Batch& batch, const LossViews& to) {
  const DType sum = accumulator_of(logits.dtype);
  const View targets = batch.targets.view().reshape({logits.dim(0)});
  const int64_t chunk = std::min(logits.dim(0), logits_chunk_rows(logits.dim(1)));
  const Tensor row_loss = tape.empty({chunk}, sum);
  const Tensor cast = logits.dtype == sum ? Tensor() : tape.empty({chunk, logits.dim(1)}, sum);
  kernels::fill(tape.stream(), to.loss, 0.0);
  for_chunks(logits.dim(0), chunk, [&](int64_t begin, int64_t end) {
    View part = logits.slice(0, begin, end);
    if (cast) {
      const View wide = cast.view().slice(0, 0, end - begin);
      kernels::copy(tape.stream(), part, {wide});
      part = wide;
    }
    kernels::cross_entropy(tape.stream(),
                           {.logits = part,
                            .targets = targets.slice(0, begin, end),
                            .loss = to.loss,
                            .dy = to.dy,
                            .dlogits = to.dlogits ? to.dlogits.slice(0, begin, end) : View{},
                            .row_loss = row_loss.view().slice(0, 0, end - begin),
                            .loss_scale = mean_scale(batch),
                            .grad_scale = mean_scale(batch)});
  });
}

}  // namespace

int64_t logits_chunk_rows(int64_t vocab) {
  constexpr int64_t kScratchElements = (int64_t{32} << 20) / 4;
  return std::clamp<int64_t>(kScratchElements / std::max<int64_t>(vocab, 1) / 64 * 64, 256, 4096);
}

Value linear_cross_entropy(const Value& h, Parameter& w, const Batch& batch) {
  check("linear_cross_entropy", h, batch);
  if (w.shape().rank() != 2 || w.shape()[1] != h.shape()[2]) {
    throw Error(Code::kInvalidArgument,
                fmt::format("linear_cross_entropy: h is {} but w is {} [{}]", h.shape().str(),
                            w.shape().str(), w.name()));
  }
  Tape& tape = h.tape();
  Tensor loss = tape.empty({1}, accumulator_of(h.dtype()));
  if (!tape.recording()) {
    chunked_loss(tape, rows_of(h.view()), w.view(), batch, loss.view(), {},
                 [](const View&, int64_t, int64_t) {});
    return tape.constant(std::move(loss));
  }
  return tape.record_deferred("linear_cross_entropy", loss, [h, &w, batch, loss](Backward& b) {
    const View rows = rows_of(h.view());
    const Grad dh = rows_of(b.grad(h.slot()));
    chunked_loss(b.tape(), rows, w.view(), batch, loss.view(), b.dy(),
                 [&](const View& dlogits, int64_t begin, int64_t end) {
                   if (dh) {
                     kernels::gemm(b.stream(),
                                   {.a = dlogits,
                                    .b = w.view(),
                                    .bias = {},
                                    .c = {dh.view.slice(0, begin, end), dh.accumulate}});
                   }
                   if (const Grad dw = w.grad()) {
                     kernels::gemm(b.stream(), {.a = dlogits.transpose(0, 1),
                                                .b = rows.slice(0, begin, end),
                                                .bias = {},
                                                .c = dw});
                   }
                 });
  });
}

Value cross_entropy(const Value& logits, const Batch& batch) {
  check("cross_entropy", logits, batch);
  Tape& tape = logits.tape();
  const DType sum = accumulator_of(logits.dtype());
  Tensor loss = tape.empty({1}, sum);
  stored_loss(tape, rows_of(logits.view()), batch, {.loss = loss.view(), .dy = {}, .dlogits = {}});
  return tape.record("cross_entropy", std::move(loss), [logits, batch, sum](Backward& b) {
    const Tensor dlogits = b.empty(logits.shape(), logits.dtype());
    const Tensor again = b.empty({1}, sum);
    stored_loss(b.tape(), rows_of(logits.view()), batch,
                {.loss = again.view(), .dy = b.dy(), .dlogits = rows_of(dlogits.view())});
    b.pass(logits.slot(), dlogits);
  });
}

}  // namespace zpp
