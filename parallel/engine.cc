#include "parallel/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace zpp {

Engine::Engine(Runtime& runtime, const EngineOptions& options, const MakeModel& make_model)
    : runtime_(runtime),
      options_(options),
      table_(options.compute),
      model_(make_model(Scope(table_))),
      hooks_(table_, runtime),
      optimizer_(runtime, table_, options.optimizer),
      loss_(runtime.tensor({1}, DType::kF64)),
      sum_squares_(runtime.tensor({1}, DType::kF64)),
      guard_(runtime.tensor({kernels::kGuardSize}, DType::kF64)) {
  kernels::fill(runtime.compute(), guard_.view(), 0.0);
  optimizer_.initialize(options.seed);
}

StepStats Engine::train_step(int64_t step, double lr, std::span<const HostBatch> micro_batches) {
  int64_t valid = 0;
  for (const HostBatch& micro : micro_batches) valid += micro.valid;
  if (valid == 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("step {}: none of its tokens has a target to learn from", step));
  }
  Stream& stream = runtime_.compute();
  for (const auto& unit : table_.units()) unit->restart_grads();
  kernels::fill(stream, loss_.view(), 0.0);
  for (const HostBatch& micro : micro_batches) {
    const Batch batch = upload(micro);
    Tape tape(runtime_.pool(), stream, hooks_,
              {.training = true,
               .recompute = options_.recompute,
               .seed = options_.seed,
               .step = static_cast<uint64_t>(step),
               .first_sample = micro.first_sample - micro_batches.front().first_sample,
               .samples = micro.samples,
               .doc_start = batch.doc_start ? batch.doc_start.view() : View{}});
    const double share = static_cast<double>(micro.valid) / static_cast<double>(valid);
    const Value loss = model_->run_loss(tape, batch);
    tape.backward(loss, share);
    kernels::copy(stream, loss.view().reshape({1}), {loss_.view(), true}, share);
  }

  bool first = true;
  for (const auto& unit : table_.units()) {
    unit->finish_grads(stream);
    kernels::sum_squares(stream, unit->grads(), {sum_squares_.view(), !first});
    first = false;
  }
  kernels::step_guard(stream, sum_squares_.view(), loss_.view(), options_.grad_clip, guard_.view());
  optimizer_.apply(lr, guard_.view());

  const std::vector<double> guard = copy_to_host<double>(stream, guard_.view());
  const double norm = guard[kernels::kGuardGradNorm];
  return {.loss = copy_to_host<double>(stream, loss_.view())[0],
          .grad_norm = norm,
          .grad_norm_clipped = options_.grad_clip > 0 ? std::min(norm, options_.grad_clip) : norm,
          .lr = lr,
          .tokens = valid,
          .skipped = guard[kernels::kGuardSkip] != 0.0};
}

double Engine::evaluate(std::span<const HostBatch> batches) {
  int64_t valid = 0;
  for (const HostBatch& batch : batches) valid += batch.valid;
  if (valid == 0) return 0.0;
  Stream& stream = runtime_.compute();
  const Tensor sum = runtime_.tensor({1}, DType::kF64);
  kernels::fill(stream, sum.view(), 0.0);
  for (const HostBatch& host : batches) {
    const Batch batch = upload(host);
    Tape tape(runtime_.pool(), stream, hooks_,
              {.training = false,
               .samples = host.samples,
               .doc_start = batch.doc_start ? batch.doc_start.view() : View{}});
    const Value loss = model_->run_loss(tape, batch);
    kernels::copy(stream, loss.view().reshape({1}), {sum.view(), true},
                  static_cast<double>(host.valid) / static_cast<double>(valid));
  }
  return copy_to_host<double>(stream, sum.view())[0];
}

std::vector<double> Engine::next_logits(const std::vector<int32_t>& tokens, int64_t fill) {
  const auto length = static_cast<int64_t>(tokens.size());
  Stream& stream = runtime_.compute();
  HostBatch host;
  host.samples = 1;
  host.length = length;
  host.tokens = tokens;
  if (fill < length) {
    // Before the text everything is a document of its own.
    host.doc_start.assign(tokens.size(), 0);
    std::fill(host.doc_start.end() - fill, host.doc_start.end(),
              static_cast<int32_t>(length - fill));
  }
  const Batch batch = upload(host);
  Tape tape(runtime_.pool(), stream, hooks_,
            {.training = false, .doc_start = batch.doc_start ? batch.doc_start.view() : View{}});
  const Value logits = model_->run_logits(tape, batch);
  const Tensor wide = runtime_.tensor({logits.shape()[-1]}, DType::kF64);
  kernels::copy(stream, logits.view().reshape(wide.shape()), {wide.view(), false});
  return copy_to_host<double>(stream, wide.view());
}

std::string Engine::describe_nonfinite() {
  const Tensor flag = runtime_.tensor({1}, DType::kI32);
  for (const auto& unit : table_.units()) {
    for (const auto& p : unit->parameters()) {
      const View weights = unit->weights().slice(0, p->offset(), p->offset() + p->numel());
      if (nonfinite(weights, flag)) {
        return fmt::format("the weights of {} {} are not finite", p->name(), p->shape().str());
      }
    }
  }
  for (const auto& unit : table_.units()) {
    for (const auto& p : unit->parameters()) {
      const View grads = unit->grads().slice(0, p->offset(), p->offset() + p->numel());
      if (nonfinite(grads, flag)) {
        return fmt::format("all weights are finite but the gradient of {} {} is not", p->name(),
                           p->shape().str());
      }
    }
  }
  return "all weights and gradients are finite, only the loss or the gradient's norm is not";
}

bool Engine::nonfinite(const View& view, const Tensor& flag) {
  kernels::any_nonfinite(runtime_.compute(), view, flag.view());
  return copy_to_host<int32_t>(runtime_.compute(), flag.view())[0] != 0;
}

int64_t Engine::weight_bytes() const {
  int64_t bytes = 0;
  for (const auto& unit : table_.units()) bytes += unit->weights().bytes();
  return bytes;
}

int64_t Engine::grad_bytes() const {
  int64_t bytes = 0;
  for (const auto& unit : table_.units()) bytes += unit->grads().bytes();
  return bytes;
}

Batch Engine::upload(const HostBatch& host) {
  const Shape shape{host.samples, host.length};
  const auto device = [&](const std::vector<int32_t>& values) {
    if (values.empty()) return Tensor();
    Tensor tensor = runtime_.tensor(shape, DType::kI32);
    copy_from_host(runtime_.compute(), values, tensor.view());
    return tensor;
  };
  return {.tokens = device(host.tokens),
          .targets = device(host.targets),
          .doc_start = device(host.doc_start),
          .valid = host.valid};
}

}  // namespace zpp
