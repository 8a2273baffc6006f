#include "parallel/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rng.h"
#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace zpp {
namespace {

enum SumSlot : int64_t { kLoss, kSquares, kStop, kSums };

View slot_of(const Tensor& sums, SumSlot slot) { return sums.view().slice(0, slot, slot + 1); }

std::unique_ptr<RankGroups> make_groups(const Mesh* mesh, const ZeroConfig& config) {
  if (mesh == nullptr) return std::make_unique<RankGroups>();
  return std::make_unique<RankGroups>(*mesh, config);
}

/// A batch that takes part in every collective and adds nothing.
HostBatch empty_batch(const HostBatch* like) {
  HostBatch batch;
  batch.samples = like != nullptr ? like->samples : 1;
  batch.length = like != nullptr ? like->length : 1;
  const auto n = static_cast<size_t>(batch.samples * batch.length);
  batch.tokens.assign(n, 0);
  batch.targets.assign(n, -1);
  return batch;
}

int64_t valid_targets(std::span<const HostBatch> batches) {
  int64_t valid = 0;
  for (const HostBatch& batch : batches) valid += batch.valid;
  return valid;
}

}  // namespace

std::unique_ptr<Model> make_frozen_model(ParameterTable& table, const Engine::MakeModel& make_model,
                                         const std::vector<std::string>& frozen) {
  auto model = make_model(Scope(table));
  try {
    table.freeze(frozen);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("train.frozen: {}", error.what()));
  }
  return model;
}

Engine::Engine(Runtime& runtime, const EngineOptions& options, const MakeModel& make_model,
               const Mesh* mesh)
    : Engine(runtime, options, make_model, make_groups(mesh, options.zero)) {}

Engine::Engine(Runtime& runtime, const EngineOptions& options, const MakeModel& make_model,
               const Topology& pretended)
    : Engine(runtime, options, make_model, std::make_unique<RankGroups>(pretended, options.zero)) {}

Engine::Engine(Runtime& runtime, const EngineOptions& options, const MakeModel& make_model,
               std::unique_ptr<RankGroups> groups)
    : runtime_(runtime),
      options_(options),
      groups_(std::move(groups)),
      table_(options.compute),
      model_(make_frozen_model(table_, make_model, options.frozen)),
      hooks_(runtime, table_, *groups_,
             {.prefetch_units = options.zero.prefetch_units,
              .overlap = options.zero.overlap,
              .wires =
                  zero_wires(options.zero, groups_->topology(), groups_->levels(), options.compute),
              .seed = options.seed,
              .warn = options.warn}),
      optimizer_(runtime, optimizer_parts(), options.optimizer),
      exchanged_(runtime.tensor({kMostExchanged * (1 + world())}, DType::kI64)),
      sums_(runtime.tensor({kSums}, DType::kF64)),
      guard_(runtime.tensor({kernels::kGuardSize}, DType::kF64)) {
  groups_->guarded([this] { initialize(); });
}

Engine::~Engine() {
  // The streams' tasks use the members.
  groups_->drain();
  try {
    runtime_.compute().synchronize();
  } catch (const Error&) {
    // Somebody has been told already.
  }
}

void Engine::initialize() {
  // Its memory may have been used on the compute stream before.
  if (Communicator* control = groups_->control()) {
    control->stream().wait(runtime_.compute().record());
  }
  check_same_models();
  for (const std::string& note : hooks_.wires().notes) {
    if (rank() == 0 && options_.warn) options_.warn(note);
  }
  kernels::fill(runtime_.compute(), guard_.view(), 0.0);
  optimizer_.initialize(options_.seed);
  for (size_t i = 0; i < optimizer_.parts(); ++i) hooks_.after_update(i);
}

std::vector<OptimizerPart> Engine::optimizer_parts() {
  std::vector<OptimizerPart> parts;
  for (const auto& unit : table_.units()) {
    const size_t i = parts.size();
    parts.push_back({.unit = unit.get(),
                     .begin = groups_->layout().optimizer(unit->flat_numel()).begin,
                     .weights = hooks_.optimizer_part(i),
                     .grads = hooks_.grads().part(i),
                     .separate_master = hooks_.publishes_codes()});
  }
  return parts;
}

StepStats Engine::train_step(int64_t step, double lr, std::span<const HostBatch> micro_batches,
                             bool stop) {
  return groups_->guarded([&]() -> StepStats {
    const int64_t valid = count_targets(step, micro_batches);
    kernels::fill(runtime_.compute(), sums_.view(), 0.0);
    hooks_.grads().restart(step);
    const int64_t first_sample =
        micro_batches.front().first_sample - rank() * micro_batches.front().samples;
    for (const HostBatch& micro : micro_batches) {
      hooks_.begin(&micro == &micro_batches.back() ? ZeroHooks::Pass::kLastMicro
                                                   : ZeroHooks::Pass::kMicro);
      run_micro_batch(step, micro, micro.first_sample - first_sample,
                      static_cast<double>(micro.valid) / static_cast<double>(valid));
    }
    hooks_.grads().finish();
    const Readout read = update(lr, stop);
    // The optimizer goes on while the host prepares the next step.
    read.done.synchronize();
    const std::vector<double>& sums = *read.sums;
    const std::vector<double>& guard = *read.guard;
    const double norm = guard[kernels::kGuardGradNorm];
    const bool skipped = guard[kernels::kGuardSkip] != 0.0;
    if (!skipped) hooks_.weights_updated();
    return {.loss = sums[kLoss],
            .grad_norm = norm,
            .grad_norm_clipped = options_.grad_clip > 0 ? std::min(norm, options_.grad_clip) : norm,
            .lr = lr,
            .tokens = valid,
            .skipped = skipped,
            .stop = sums[kStop] != 0.0};
  });
}

void Engine::run_micro_batch(int64_t step, const HostBatch& micro, int64_t first_sample,
                             double share) {
  const Batch batch = upload(micro);
  Tape tape(runtime_.pool(), runtime_.compute(), hooks_,
            {.training = true,
             .recompute = options_.recompute,
             .seed = options_.seed,
             .step = static_cast<uint64_t>(step),
             .first_sample = first_sample,
             .samples = micro.samples,
             .doc_start = batch.doc_start ? batch.doc_start.view() : View{}});
  const Value loss = model_->run_loss(tape, batch);
  tape.backward(loss, share);
  kernels::copy(runtime_.compute(), loss.view().reshape({1}), {slot_of(sums_, kLoss), true}, share);
}

Engine::Readout Engine::update(double lr, bool stop) {
  Stream& stream = runtime_.compute();
  // Each element's square counts once in the world.
  for (size_t i = 0; i < optimizer_.parts() && groups_->layout().counts(); ++i) {
    if (table_.units()[i]->frozen()) continue;
    kernels::sum_squares(stream, hooks_.grads().part(i), {slot_of(sums_, kSquares), true});
  }
  if (stop) kernels::fill(stream, slot_of(sums_, kStop), 1.0);
  sum_over_world(sums_.view());
  kernels::step_guard(stream, slot_of(sums_, kSquares), slot_of(sums_, kLoss), options_.grad_clip,
                      guard_.view());
  Readout read{
      .sums = start_reading(sums_.view()), .guard = start_reading(guard_.view()), .done = {}};
  read.done = stream.record();
  hooks_.before_update();
  for (size_t i = 0; i < optimizer_.parts(); ++i) {
    if (table_.units()[i]->frozen()) continue;
    optimizer_.apply(i, lr, guard_.view());
    hooks_.after_update(i);
  }
  return read;
}

std::shared_ptr<const std::vector<double>> Engine::start_reading(const View& values) {
  auto out = std::make_shared<std::vector<double>>(static_cast<size_t>(values.numel()));
  runtime_.compute().host(
      "read", [out, data = values.as<double>()] { std::copy_n(data, out->size(), out->begin()); });
  return out;
}

void Engine::change_weights(size_t unit, const std::function<void(const View&)>& fn) {
  groups_->guarded([&] {
    hooks_.weights_changed(unit);
    hooks_.before_update();
    fn(hooks_.kept(unit));
    hooks_.after_update(unit);
  });
}

double Engine::evaluate(std::span<const HostBatch> batches) {
  return groups_->guarded([&] { return evaluate_padded(batches); });
}

double Engine::evaluate_padded(std::span<const HostBatch> batches) {
  int64_t valid = 0, passes = 0;
  const std::vector<int64_t> all =
      exchange({valid_targets(batches), static_cast<int64_t>(batches.size())});
  for (size_t r = 0; r < all.size(); r += 2) {
    valid += all[r];
    passes = std::max(passes, all[r + 1]);
  }
  if (valid == 0) return 0.0;
  Stream& stream = runtime_.compute();
  const Tensor sum = runtime_.tensor({1}, DType::kF64);
  kernels::fill(stream, sum.view(), 0.0);
  const HostBatch none = empty_batch(batches.empty() ? nullptr : &batches.front());
  for (int64_t i = 0; i < passes; ++i) {
    const HostBatch& host =
        i < static_cast<int64_t>(batches.size()) ? batches[static_cast<size_t>(i)] : none;
    const Batch batch = upload(host);
    hooks_.begin(ZeroHooks::Pass::kForward);
    Tape tape(runtime_.pool(), stream, hooks_,
              {.training = false,
               .samples = host.samples,
               .doc_start = batch.doc_start ? batch.doc_start.view() : View{}});
    const Value loss = model_->run_loss(tape, batch);
    kernels::copy(stream, loss.view().reshape({1}), {sum.view(), true},
                  static_cast<double>(host.valid) / static_cast<double>(valid));
  }
  sum_over_world(sum.view());
  return copy_to_host<double>(stream, sum.view())[0];
}

std::vector<double> Engine::next_logits(const std::vector<int32_t>& tokens, int64_t fill) {
  return groups_->guarded([&] {
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
    hooks_.begin(ZeroHooks::Pass::kForward);
    Tape tape(runtime_.pool(), stream, hooks_,
              {.training = false, .doc_start = batch.doc_start ? batch.doc_start.view() : View{}});
    const Value logits = model_->run_logits(tape, batch);
    const Tensor wide = runtime_.tensor({logits.shape()[-1]}, DType::kF64);
    kernels::copy(stream, logits.view().reshape(wide.shape()), {wide.view(), false});
    return copy_to_host<double>(stream, wide.view());
  });
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
