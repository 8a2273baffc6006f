// What the engines of several ranks tell each other beside weights and gradients.
#include <fmt/format.h>

#include <algorithm>

#include "core/rng.h"
#include "kernels/reduce.h"
#include "parallel/engine.h"

namespace zpp {

std::vector<int64_t> Engine::exchange(const std::vector<int64_t>& mine) {
  Communicator* control = groups_->control();
  if (control == nullptr) return mine;
  // Not by way of the compute stream, which may still be busy with the step before.
  Stream& stream = control->stream();
  const auto n = static_cast<int64_t>(mine.size());
  const View in = exchanged_.view().slice(0, 0, n);
  const View out = exchanged_.view().slice(0, kMostExchanged, kMostExchanged + n * world());
  copy_from_host(stream, mine, in);
  control->all_gather(in, out);
  std::vector<int64_t> all = copy_to_host<int64_t>(stream, out);
  for (size_t i = 0; runtime_.dry() && i < all.size(); ++i) all[i] = mine[i % mine.size()];
  return all;
}

void Engine::sum_over_world(const View& values) {
  Communicator* control = groups_->control();
  if (control == nullptr) return;
  Stream& stream = runtime_.compute();
  hooks_.stalls().wait(control->all_reduce(values, ReduceOp::kSum, {stream.record()}).done());
}

bool Engine::any_rank(bool mine) {
  return groups_->guarded([&] {
    const std::vector<int64_t> all = exchange({mine ? 1 : 0});
    return std::any_of(all.begin(), all.end(), [](int64_t x) { return x != 0; });
  });
}

int64_t Engine::sum_over_node(int64_t mine) {
  return groups_->guarded([&]() -> int64_t {
    Communicator* node = groups_->node();
    if (node == nullptr) return mine;
    const Tensor sum = runtime_.tensor({1}, DType::kI64);
    Stream& stream = runtime_.compute();
    copy_from_host(stream, std::vector<int64_t>{mine}, sum.view());
    node->all_reduce(sum.view(), ReduceOp::kSum, {stream.record()}).wait(stream);
    return copy_to_host<int64_t>(stream, sum.view())[0];
  });
}

CommStats Engine::comm_stats() const {
  CommStats stats;
  if (const Ledger* ledger = groups_->ledger()) {
    stats.sent_bytes = ledger->sent_bytes();
    stats.seconds = ledger->seconds();
  }
  stats.exposed_s = hooks_.stalls().seconds();
  return stats;
}

void Engine::check_same_models() {
  uint64_t hash = mix_hash(options_.seed, static_cast<uint64_t>(options_.compute));
  int64_t parameters = 0;
  for (const auto& unit : table_.units()) {
    for (const auto& p : unit->parameters()) {
      hash = mix_hash(hash, hash_name(p->name() + p->shape().str()));
      hash = mix_hash(hash, p->frozen() ? 1 : 0);
      ++parameters;
    }
  }
  hash = mix_hash(hash, hooks_.wires().hash());
  const std::vector<int64_t> all =
      exchange({static_cast<int64_t>(hash), parameters, table_.numel()});
  for (size_t r = 3; r < all.size(); r += 3) {
    if (all[r] == all[0]) continue;
    throw Error(Code::kFailedPrecondition,
                fmt::format("rank {} has a model of {} parameter tensors with {} elements, rank 0 "
                            "one of {} with {}, or names, shapes, dtype, seed, what is frozen or "
                            "the wires differ: all ranks need the same configuration",
                            r / 3, all[r + 1], all[r + 2], all[1], all[2]));
  }
}

int64_t Engine::count_targets(int64_t step, std::span<const HostBatch> micro_batches) {
  if (micro_batches.empty()) {
    throw Error(Code::kInvalidArgument, fmt::format("step {}: no micro-batches", step));
  }
  int64_t valid = 0;
  for (const HostBatch& micro : micro_batches) valid += micro.valid;
  const std::vector<int64_t> all =
      exchange({valid, step, static_cast<int64_t>(micro_batches.size()),
                static_cast<int64_t>(hooks_.trace_hash())});
  valid = 0;
  for (size_t r = 0; r < all.size(); r += 4) {
    valid += all[r];
    if (all[r + 1] != all[1] || all[r + 2] != all[2]) {
      throw Error(Code::kFailedPrecondition,
                  fmt::format("rank {} is in step {} with {} micro-batches, rank 0 in step {} with "
                              "{}",
                              r / 4, all[r + 1], all[r + 2], all[1], all[2]));
    }
    if (all[r + 3] != all[3]) {
      throw Error(Code::kFailedPrecondition,
                  fmt::format("before step {} rank {} has run other units, or in another order, "
                              "than rank 0",
                              step, r / 4));
    }
  }
  if (valid == 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("step {}: none of its tokens has a target to learn from", step));
  }
  return valid;
}

std::string Engine::describe_nonfinite() {
  return groups_->guarded([this] { return nonfinite_phrase(); });
}

std::string Engine::nonfinite_phrase() {
  const Tensor flag = runtime_.tensor({1}, DType::kI32);
  std::vector<const Parameter*> parameters;
  for (const auto& unit : table_.units()) {
    for (const auto& p : unit->parameters()) parameters.push_back(p.get());
  }
  // Parameter number i's weights are candidate i, its gradient candidate n + i.
  const auto n = static_cast<int64_t>(parameters.size());
  int64_t first_bad = 2 * n, at = 0;
  const auto look = [&](const View& kept, const Range& range) {
    // `kept` is `range` of the unit that the parameter is in.
    const Parameter& p = *parameters[static_cast<size_t>(at % n)];
    const int64_t begin = std::max(p.offset(), range.begin);
    const int64_t end = std::min(p.offset() + p.numel(), range.end);
    const bool bad =
        begin < end && nonfinite(kept.slice(0, begin - range.begin, end - range.begin), flag);
    if (bad) first_bad = std::min(first_bad, at);
    ++at;
  };
  for (size_t u = 0; u < table_.units().size(); ++u) {
    for (size_t i = 0; i < table_.units()[u]->parameters().size(); ++i) {
      look(hooks_.kept(u), hooks_.kept_range(u));
    }
  }
  for (size_t u = 0; u < table_.units().size(); ++u) {
    const bool frozen = table_.units()[u]->frozen();
    const Range range =
        frozen ? Range{} : groups_->layout().optimizer(table_.units()[u]->flat_numel());
    for (size_t i = 0; i < table_.units()[u]->parameters().size(); ++i) {
      look(hooks_.grads().part(u), range);
    }
  }
  const std::vector<int64_t> all = exchange({first_bad});
  const auto worst = std::min_element(all.begin(), all.end());
  const std::string where =
      all.size() > 1 ? fmt::format(" on rank {}", worst - all.begin()) : std::string();
  if (*worst == 2 * n) {
    return "all weights and gradients are finite, only the loss or the gradient's norm is not";
  }
  const Parameter& p = *parameters[static_cast<size_t>(*worst % n)];
  if (*worst < n) {
    return fmt::format("the weights of {} {} are not finite{}", p.name(), p.shape().str(), where);
  }
  return fmt::format("all weights are finite but the gradient of {} {} is not{}", p.name(),
                     p.shape().str(), where);
}

bool Engine::nonfinite(const View& view, const Tensor& flag) {
  kernels::any_nonfinite(runtime_.compute(), view, flag.view());
  return copy_to_host<int32_t>(runtime_.compute(), flag.view())[0] != 0;
}

}  // namespace zpp
